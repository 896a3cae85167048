"""The limits of the audit, in one place.

Without it the same limit lives in several checks and drifts apart. Starting values: pitfalls catalogue, as amended by
the contract (section 7).
"""

# failed-requests: share of issued requests that failed, above which the trial is invalid.
FAILED_SHARE_INVALID = 0.01
# batch-cap: the server ran this share of its cap while at least this many requests (or share of C) waited. Below one,
# since the mean wait at C = cap + 1 is a little less than one request.
CAP_FILLED_SHARE = 0.97
WAITING_MIN = 0.8
WAITING_SHARE = 0.05
# count-mismatch: relative difference between the tokens that client and server counted over the drained trial.
COUNT_MISMATCH_SHARE = 0.005
# foreign-traffic: tokens on the server beyond ours, relative to ours and at least this many.
FOREIGN_SHARE = 0.005
FOREIGN_TOKENS_MIN = 8
# Gauge samples inside the window below which no server mean is believed.
SAMPLES_MIN = 10
# machine-shared: cores that others used during the window, beside a server and a client of one core or less each.
OTHER_CORES = 0.5
