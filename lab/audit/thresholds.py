"""The limits of the audit of one trial, in one place.

Without it the same limit lives in several checks and drifts apart. Starting values: pitfalls catalogue, section 1, as
amended by the contract (sections 2, 4 and 7); where another value stands, the reason stands beside it.
"""

# client-conn-cap, client-bound, client-inflight-illusion: share of the offered load that the client kept in flight, or
# of the offered rate that it sent, below which the client fell short; and above which it did not.
CLIENT_SHORT = 0.9
CLIENT_FULL = 0.95
RATE_SHORT = 0.95
# client-conn-cap: no queue on the server, the server sees all that is in flight, and it stands still at a level. No
# queue is half a request, or this share of what is in flight: each request waits for half a step on average before it
# is admitted, which is 1 of 2·n steps of an answer of n tokens, so L / (2·n) wait on a server that admits all (n ≥ 10).
NO_QUEUE = 0.5
NO_QUEUE_SHARE = 0.05
SAME_HELD_SHARE = 0.1
FLAT_PCT = 2.0
# client-bound: what slows a client: delay of its event loop against the time per token (where none is known, against
# the life of a request), delay of its sends against the life of a request, share of one core.
LOOP_LAG_SHARE = 0.2
LOOP_LAG_LIFE_SHARE = 0.05
SEND_DELAY_SHARE = 0.05
CLIENT_CPU_SHARE = 0.9
# Real milliseconds that a p99 of lag or delay needs besides, since a virtual clock multiplies what timers and a busy
# machine do to every process: healthy clients show 1 to 3, on a crowded machine up to 8.
LATE_REAL_MS = 20.0
# client-inflight-illusion: share of what was in flight that the server saw; by more than this many standard errors,
# since a dozen samples of a single request's gauge are short of it by chance in one trial of ten.
SEEN_SHARE = 0.85
SEEN_ERRORS = 4.0
# coordinated-omission: mean wait for a client slot against the life of a request.
SLOT_WAIT_SHARE = 0.05
# ramp-heavy: share of the window's bins that lie below CLIENT_SHORT of the load, although it was reached.
RAMP_SHARE = 0.1
# batch-cap: the server ran this share of its cap while at least this many requests (or share of C) waited. Below one,
# since the mean wait at C = cap + 1 is a little less than one request.
CAP_FILLED_SHARE = 0.97
WAITING_MIN = 0.8
WAITING_SHARE = 0.05
# batch-cap with the scheduler as the reason: below this share of what could run. Lower than CAP_FILLED_SHARE, since
# prompts that are admitted step by step keep some per cent of the requests of a healthy server in its queue.
SCHEDULER_SHARE = 0.9
# Below this share the label C is false; above it the queue is what long prompts cost, and a warning tells it.
SCHEDULER_SHARE_INVALID = 0.5
SCHEDULER_WAITING_MIN = 1.0
# batch-cap without a queue that stands: the server ran less than SCHEDULER_SHARE beyond so many standard errors. It
# fills whole batches where it ran for a quarter of the time less than this share of what it ran at most: answers of
# evenly spread lengths leave a whole batch below 0.27 of itself for that long.
BELOW_ERRORS = 2.0
WAVES_SHARE = 0.4
# below-load: share of what was asked that ran, beyond SEEN_ERRORS standard errors, where nothing explains the rest.
BELOW_SHARE = 0.85
# kv-bound: the cache is full from this usage on.
KV_FULL = 0.95
KV_WAITING_MIN = 1.0
# too-few-requests: requests issued in the window for each of the load; fewer than the first have no latency at all.
REQUESTS_MISSING = 5
REQUESTS_FEW = 10
# dp-underfilled: the fullest data-parallel rank against the mean of all.
RANK_SKEW = 1.5
# peak-bucketed: a harness's peak of requests in flight against the exact one.
PEAK_SHARE = 1.05
# graph-miss: share of decode steps outside captured graphs where graphs are on.
EAGER_SHARE = 0.05
# Gauge samples inside the window below which no server mean is believed.
SAMPLES_MIN = 10
# metric-absent: a gauge that is zero in every sample is absent only where this many samples should have met a request.
BUSY_SAMPLES_MIN = 10
# count-mismatch: relative difference between the tokens that client and server counted over the drained trial; and in
# the window, where live counters are all there is: those are read at other moments, so requests in flight are allowed a
# few tokens each.
COUNT_MISMATCH_SHARE = 0.005
LIVE_MISMATCH_SHARE = 0.02
LIVE_TOKENS_EACH = 4
# From so many times what is allowed on, the difference is no matter of the moment of reading.
LIVE_MISMATCH_INVALID = 2.0
# foreign-traffic: tokens on the server beyond ours, relative to ours and at least this many; finished requests likewise
# (one may be a health check); and requests that it held beyond ours in the window.
FOREIGN_SHARE = 0.005
FOREIGN_TOKENS_MIN = 8
FOREIGN_REQUESTS_SHARE = 0.005
FOREIGN_REQUESTS_MIN = 1
FOREIGN_HELD_SHARE = 0.1
FOREIGN_HELD_MIN = 1.0
# Prompt tokens that a request whose count nobody told may have had, in mean lengths.
FOREIGN_UNKNOWN_LENGTHS = 2.0
# input-length-drift: prompt tokens counted against those asked for; a begin-of-text token is nobody's error.
INPUT_SHARE = 0.02
INPUT_TOKENS_MIN = 2
# output-length-drift within an arm: share of answers that do not have the length they were told to have.
LENGTH_ERRORS_SHARE = 0.01
# chunk-not-token: chunks for each token; and the share of tokens that are known only from the final count.
CHUNKS_PER_TOKEN = 0.95
LATE_TOKENS_SHARE = 0.05
# token-policy-unrecorded: share of the window's tokens that nobody counted.
UNCOUNTED_SHARE = 0.05
# first-chunk-empty: share of requests whose first event came clearly before their first token.
EARLY_EVENTS_SHARE = 0.05
# zero-is-missing: share of requests without a time.
ZERO_SHARE = 0.01
# prefix-contamination: share of the prompt that was cached although nothing is to be reused. Of templated prompts the
# part that all have in common, at most this long, may be cached without being a repeated prompt.
PREFIX_SHARE = 0.01
TEMPLATE_TOKENS_MOST = 64
TEMPLATE_TOKENS_SLACK = 8
# prefix-contamination where reuse is declared: points apart between arms.
PREFIX_APART_POINTS = 0.01
# prefix-contamination: points by which the answers' own account of cached tokens may differ from the counters'.
PREFIX_TOLD_POINTS = 0.05
# cold-start-in-window: the first requests against the others, beyond chance (the catalogue has the ratio alone; a
# median of two requests exceeds it by chance).
EARLY_RATIO = 1.5
EARLY_P = 1e-4
# Where others used OTHER_CORES of the machine: two programs that share a core slow each other by a factor of two.
EARLY_RATIO_SHARED = 2.5
# warmup-overlap: requests on the server beyond ours when the window opened.
OVERLAP_REQUESTS = 1.0
BACKLOG_SHARE = 0.05
# failed-requests: share of issued requests that failed, above which the trial is invalid.
FAILED_SHARE_INVALID = 0.01
# spec-random-tokens: share of answers that end in a short repeating cycle.
REPEATS_SHARE = 0.05
# tail-undersampled: requests below which a p99 decides nothing; share of the window's requests that were cut.
TAIL_REQUESTS = 1000
CUT_SHARE = 0.01
# machine-shared: cores that others used during the window, beside a server and a client of one core or less each.
OTHER_CORES = 0.5
# standstill: pauses of at least half the longest one's length that may be an accident; more are the server's pace.
STANDSTILLS_MOST = 3
# standstill: share of the silence that the reading of the prompts that waited explains.
READING_SHARE = 0.5
# hung: share of what was in flight that had fallen silent for good, from which on it explains the trial; what
# client-inflight-illusion may be short by.
HUNG_SHARE = 0.15
# healthy: the server held this share of what was in flight, and ran this share of what could run, within so many
# standard errors of its samples.
HEALTHY_ERRORS = 2.0
HEALTHY_HELD_SHARE = 0.9
HEALTHY_RUNNING_SHARE = 0.95
# healthy: the server ran at most this many times what we had in flight, or one more.
HEALTHY_RUNNING_MOST = 1.1
HEALTHY_RUNNING_MORE = 1.0
