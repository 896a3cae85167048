"""The window was not one state of the server, or requests in it failed."""

from __future__ import annotations

from lab.audit import INVALID, WARNING
from tests.golden.scenario import Scenario
from tests.golden.stage import Play

MOVED = frozenset({"false-plateau"})
"""Where throughput of a closed loop moves, so does the time per token."""
SLOWER_CLOCK = {"time_factor": 10.0}
"""Halves what the noise of a shared machine is in server time; it would hide a slow drift, or shift the window."""
HALFWAY_S = 34.0
"""The window opens some 14 s after the first request, which is the lab's question whether the server is ready: 6 s of
warm-up, and the start of the client, a real second of which is ten of the server."""
HALFWAY = SLOWER_CLOCK | {"slowdown.start_s": HALFWAY_S, "slowdown.span_s": 1.0}
FROZEN = SLOWER_CLOCK | {"compile_at_s": HALFWAY_S, "compile_log_line": False}
IN_ONE_PIECE = frozenset({"zero-is-missing", "chunk-not-token"})
RATE = {"arrivals": "constant", "rate_rps": 4.0}


def drift(percent: float, seconds: float = 40) -> dict[str, float]:
    """Steps get longer by so much over a window of so many seconds."""
    return {"drift_pct_per_minute": percent * 60 / seconds}


SCENARIOS = [
    Scenario(
        "cold-start-in-window",
        INVALID,
        fires=Play(flags={"dialect": "llamacpp", "cold.requests": 16, "cold.factor": 10.0}),
        silent=Play(flags={"dialect": "llamacpp", "cold.requests": 8, "cold.factor": 2.0}),
        also=frozenset({"no-steady-window", "false-plateau"}),  # it gets warm within the window
        case="slow first requests",
    ),
    Scenario(
        "cold-start-in-window",
        INVALID,
        fires=Play(flags=SLOWER_CLOCK | {"compile_at_s": HALFWAY_S, "compile_s": 2.0}),
        silent=Play(flags=SLOWER_CLOCK | {"compile_at_s": 0.5, "compile_s": 2.0}),
        case="compile",
    ),
    Scenario(
        "standstill",
        WARNING,
        fires=Play(flags=FROZEN | {"compile_s": 9.0}),
        # As long as what a busy machine does to a server ten times faster than real.
        silent=Play(flags=FROZEN | {"compile_s": 2.0}),
    ),
    Scenario(
        "hang",
        INVALID,
        # Ten tokens, and no end: one client after the other is lost. They are cut before they are given up.
        fires=Play(flags={"faults.stall_every": 20, "faults.spare_requests": 9}, limits={"drain_seconds": 10}),
        # Cut by the server, and so over.
        silent=Play(flags={"faults.cut_every": 150}, limits={"drain_seconds": 10}),
        also=MOVED | {"no-steady-window", "count-mismatch"},  # with fewer that run, steps are shorter
        besides=frozenset({"failed-requests"}),
        case="streams",
    ),
    Scenario(
        "warmup-overlap",
        WARNING,
        fires=Play(flags={"dialect": "sglang", "foreign.requests": 4, "foreign.output_tokens": 2000}),
        silent=Play(flags={"dialect": "sglang"}, workload={"output_tokens": 64}),
        also=frozenset({"foreign-traffic", "count-mismatch"}),  # nobody wrote down who sent them
    ),
    Scenario(
        "no-steady-window",
        INVALID,
        fires=Play(flags=SLOWER_CLOCK | drift(15, 60), window={"seconds": 60}),
        silent=Play(flags=SLOWER_CLOCK | drift(2, 60), window={"seconds": 60}),
        also=MOVED,
        case="drift",
    ),
    Scenario(
        "no-steady-window",
        INVALID,
        fires=Play(flags={"dialect": "llamacpp", **HALFWAY, "slowdown.by_pct": 50.0}),
        silent=Play(flags={"dialect": "llamacpp", **HALFWAY, "slowdown.by_pct": 2.0}),
        also=MOVED,
        case="step",
    ),
    Scenario(
        "no-steady-window",
        INVALID,
        # One client whose answers come in one piece, four and sixty in the window.
        fires=Play(flags={"one_chunk": True}, workload={"output_tokens": 192}, concurrency=1),
        silent=Play(flags={"one_chunk": True}, workload={"output_tokens": 8}, concurrency=1),
        also=IN_ONE_PIECE,
        besides=IN_ONE_PIECE,
        case="bursts",
    ),
    Scenario(
        "false-plateau",
        WARNING,
        fires=Play(flags={"dialect": "sglang", **SLOWER_CLOCK, **drift(15)}, workload=RATE, concurrency=16),
        silent=Play(flags={"dialect": "sglang", **SLOWER_CLOCK, **drift(2)}, workload=RATE, concurrency=16),
        also=frozenset({"no-steady-window"}),  # slower requests at the same rate: more of them in flight
    ),
    Scenario(
        "failed-requests",
        INVALID,
        fires=Play(flags={"dialect": "llamacpp", "faults.fail_every": 20}),
        silent=Play(flags={"dialect": "llamacpp", "output.stop_early_share": 0.05}),
        also=frozenset({"count-mismatch"}),  # nothing live to compare, and failures leave no total
    ),
    Scenario(
        "failed-requests",
        WARNING,
        fires=Play(flags={"faults.fail_every": 140}),
        silent=Play(),
        case="one in 200",
    ),
    Scenario(
        "nothing-completed",
        INVALID,
        fires=Play(flags={"dialect": "sglang", "faults.spare_requests": 9, "faults.fail_all": True}),
        silent=Play(flags={"dialect": "sglang", "faults.spare_requests": 9, "faults.fail_every": 2}),
        also=frozenset({"failed-requests"}),
        besides=frozenset({"failed-requests"}),
    ),
    Scenario(
        "tail-undersampled",
        WARNING,
        fires=Play(rule={"metric": "ttft_p99_ms"}),
        silent=Play(rule={"metric": "ttft_p50_ms"}),
    ),
]
