"""The client is the bottleneck, or does not offer the load that is written on the trial."""

from __future__ import annotations

from lab.audit import INVALID, WARNING
from tests.golden import broken
from tests.golden.scenario import Scenario
from tests.golden.stage import Play

# 32 clients at a step of 116 ms: some 270 tokens in a server second, 5,500 in a real one.
MANY = {"step_ms": 100.0}
LONG = {"output_tokens": 64}
JUDGED_BY_LATENCY = {"metric": "tpot_p50_ms"}
# 100 clients at a step of 150 ms: some 670 tokens in a server second, 6,700 in a real one.
CATALOGUE = {"step_ms": 100.0, "time_factor": 10.0, "max_running": 256}
# Four slots serve three requests a second, and five come.
RATE = {"arrivals": "poisson", "rate_rps": 5.0}
OPEN = {"arrivals": "poisson", "rate_rps": 3.0, "output_tokens": 16}

SCENARIOS = [
    Scenario(
        "client-conn-cap",
        INVALID,
        fires=Play(flags=MANY, workload=LONG, concurrency=32, client=broken.pool_of(25)),
        silent=Play(flags=MANY, workload=LONG, concurrency=32, client=broken.pool_of(32)),
        also=frozenset({"client-bound"}),  # requests wait in the client for a connection
    ),
    Scenario(
        "client-conn-cap",
        INVALID,
        fires=Play(flags=CATALOGUE, workload=LONG, concurrency=128, client=broken.pool_of(100)),
        silent=Play(flags=CATALOGUE, workload=LONG, concurrency=128, client=broken.pool_of(128)),
        also=frozenset({"client-bound"}),
        besides=frozenset({"cold-start-in-window"}),  # an answer takes longer than the warm-up
        case="100 of 128",
    ),
    Scenario(
        "client-bound",
        INVALID,
        fires=Play(client=broken.busy(milliseconds=1)),
        silent=Play(client=broken.busy(milliseconds=0.02)),
        also=frozenset({"zero-is-missing"}),  # chunks that waited for the client are read together
        case="busy",
    ),
    Scenario(
        "client-bound",
        INVALID,
        # It reads what was sent long before the window, and sees nothing of the window itself.
        fires=Play(client=broken.busy(milliseconds=20)),
        silent=Play(client=broken.busy(milliseconds=0.02)),
        # It takes three times as long as planned, takes for silence what it has not read, and reads after the window
        # what was sent in it, or before it, all at once.
        also=frozenset(
            {"zero-is-missing", "sweep-cost", "failed-requests", "hang", "count-mismatch", "cold-start-in-window"}
            | {"no-steady-window"}
        ),
        case="very busy",
    ),
    Scenario(
        "client-bound",
        INVALID,
        # 3 requests a second fall due, and 24 slots are enough for any server that is in time.
        fires=Play(workload=OPEN, concurrency=24, client=broken.busy(milliseconds=2)),
        silent=Play(workload=OPEN, concurrency=24, client=broken.busy(milliseconds=0.02)),
        # Answers lie unread, and with them the slots that others wait for.
        also=frozenset(
            {
                "zero-is-missing",
                "client-inflight-illusion",
                "coordinated-omission",
                "warmup-overlap",
                "no-steady-window",
            }
        ),
        case="open loop",
    ),
    Scenario(
        "client-bound",
        INVALID,
        fires=Play(flags={"dialect": "sglang"}, client=broken.pool_of(1)),
        silent=Play(flags={"dialect": "sglang"}),
        also=frozenset({"client-conn-cap"}),  # one request at a time, and the server sees it
        case="one at a time",
    ),
    Scenario(
        "client-inflight-illusion",
        INVALID,
        fires=Play(flags={"dialect": "llamacpp", "hold_beyond": 6}),
        silent=Play(flags={"dialect": "llamacpp", "hold_beyond": 8}),
    ),
    Scenario(
        "coordinated-omission",
        WARNING,
        fires=Play(workload=RATE, concurrency=4),
        silent=Play(workload=RATE, concurrency=24),
        also=frozenset({"warmup-overlap"}),  # requests of the warm-up wait for a slot when the window opens
    ),
    Scenario(
        "ramp-heavy",
        WARNING,
        fires=Play(flags={"dialect": "sglang"}, client=broken.leaving(clients=3, share=0.8)),
        silent=Play(flags={"dialect": "sglang"}, client=broken.leaving(clients=3, share=0.95)),
        also=frozenset({"no-steady-window"}),  # with the load the throughput falls
    ),
    Scenario(
        "peak-bucketed",
        WARNING,
        fires=Play(flags={"dialect": "llamacpp"}, client=broken.more(clients=1)),
        silent=Play(flags={"dialect": "llamacpp"}, workload={"output_tokens": 16}, concurrency=1),
    ),
    Scenario(
        "too-few-requests",
        WARNING,
        fires=Play(workload={"output_tokens": 400}, rule=JUDGED_BY_LATENCY),
        silent=Play(workload=LONG, rule=JUDGED_BY_LATENCY),
    ),
    Scenario(
        "too-few-requests",
        WARNING,
        fires=Play(
            workload={"output_tokens": 1000},
            concurrency=100,
            rule=JUDGED_BY_LATENCY,
            client=broken.only(requests=10),
        ),
        silent=Play(workload=LONG, rule=JUDGED_BY_LATENCY),
        also=frozenset({"cold-start-in-window"}),  # the warm-up was as small as the load
        case="ten of a hundred",
    ),
]
