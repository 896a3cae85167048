"""The limits of the codes that concern two arms, or a whole launch, in one place.

Without it the same limit lives in several checks and drifts apart. Starting values: pitfalls catalogue, as amended by
the contract (section 7).
"""

# input-length-drift between arms: relative difference of the prompt tokens of the same prompts.
INPUT_LENGTH_SHARE = 0.01
# output-length-drift: the mean difference of the same prompts' answers, in standard errors and relative to the
# control's mean; fewer pairs than this say nothing, since three standard errors of a handful are exceeded by chance.
OUTPUT_LENGTH_ERRORS = 3.0
OUTPUT_LENGTH_SHARE = 0.05
LENGTH_PAIRS_MIN = 30
# arms-not-comparable: windows of one plan differ by timer jitter only.
WINDOW_SECONDS_SHARE = 0.02
# server-age: one server's age at the window, or the requests it served before, against the other's; differences below
# a minute of life or a thousand requests are those of one start against another.
SERVER_AGE_RATIO = 2.0
SERVER_AGE_SECONDS_MIN = 600.0
SERVER_AGE_REQUESTS_MIN = 1000
# throttled: relative difference of the mean clocks of the window.
CLOCK_SHARE = 0.03
# throttled: NVML's names of heat and power holding the clocks down; idleness and chosen clocks are none.
THROTTLING = {"sw_power_cap", "hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"}
# order-drift: first half against second half of the same arm's launches, and how many launches make halves.
ORDER_DRIFT_SHARE = 0.05
ORDER_DRIFT_LAUNCHES = 4
# no-null: valid control launches that stand in for an A/A floor; two give one difference, which is no spread.
NULL_CONTROLS = 3
# winners-curse: candidates of a search beyond which its best needs this many fresh launches.
SEARCHED_CANDIDATES = 3
FRESH_LAUNCHES = 2
# over-roofline: share of the hard bound above which the figure is impossible (timer and counting error below it).
OVER_HARD_BOUND = 1.02
# model-error: measured ratio against predicted ratio, beyond which the prediction explains nothing.
MODEL_ERROR_RATIO = 1.4
# acceptance-not-speedup: accepted share of drafts that promises a gain, and the least share of the promise to be kept.
ACCEPTANCE_HIGH = 0.7
SPEEDUP_KEPT = 0.5
# orphan-process: GPU memory in use before the start that a driver and its contexts never hold.
GPU_IDLE_BYTES = 2 * 1024**3
# sweep-cost: seconds of a launch against the planned ones; a minute more than planned is never worth a word.
COST_RATIO = 2.0
COST_SECONDS_MIN = 60.0
