"""The server's own account cannot be believed, or is not of our requests."""

from __future__ import annotations

from lab.audit import INVALID
from tests.golden import broken
from tests.golden.scenario import Scenario
from tests.golden.stage import Play

LONGER_WATCHED = Play(flags={"dialect": "sglang"}, client=broken.sampling(each=1 / 16, around_s=0.75))
"""Half of the samples are of an idle server before and after the load."""

SCENARIOS = [
    Scenario(
        "foreign-traffic",
        INVALID,
        fires=Play(flags={"dialect": "llamacpp", "foreign.idle_running": 1}),
        silent=Play(flags={"dialect": "llamacpp"}),
        also=frozenset({"count-mismatch"}),  # the server counts the stranger's tokens
        case="before the trial",
    ),
    Scenario(
        "foreign-traffic",
        INVALID,
        fires=Play(flags={"foreign.start_s": 20.0, "foreign.requests": 50, "foreign.output_tokens": 16}),
        # As large as somebody's health check.
        silent=Play(
            flags={
                "foreign.start_s": 20.0,
                "foreign.requests": 1,
                "foreign.prompt_tokens": 2,
                "foreign.output_tokens": 1,
            }
        ),
        also=frozenset({"count-mismatch"}),
        case="in the window",
    ),
    Scenario(
        "gate-misaligned",
        INVALID,
        fires=Play(client=broken.sampling(each=1 / 5)),
        silent=LONGER_WATCHED,
        case="few samples",
    ),
    Scenario(
        "gate-misaligned",
        INVALID,
        fires=Play(flags={"dialect": "sglang"}, client=broken.sampling(each=1 / 30, most=25)),
        silent=LONGER_WATCHED,
        case="half of the window",
    ),
    Scenario(
        "metric-absent",
        INVALID,
        fires=Play(flags={"metrics.absent": ["vllm:num_requests_running"]}),
        silent=Play(flags={"metrics.absent": ["vllm:num_preemptions_total"]}),
        case="absent",
    ),
    Scenario(
        "metric-absent",
        INVALID,
        fires=Play(flags={"dialect": "sglang", "metrics.zero": ["token_usage", "sglang:token_usage"]}),
        silent=Play(flags={"dialect": "sglang", "metrics.zero": ["num_waiting_reqs", "sglang:num_queue_reqs"]}),
        case="zero",
    ),
    Scenario(
        "counter-reset",
        INVALID,
        fires=Play(flags={"metrics.reset_at_s": 30.0}),
        # A server that has long worked before, whose counters run through.
        silent=Play(flags={"metrics.requests_before": 1000}),
    ),
    Scenario(
        "foreign-traffic",
        INVALID,
        # A few failures of ours hide nobody.
        fires=Play(
            flags={"dialect": "sglang", "faults.fail_every": 150, "foreign.start_s": 20.0, "foreign.requests": 8}
            | {"foreign.output_tokens": 2000}
        ),
        silent=Play(flags={"dialect": "sglang", "faults.fail_every": 150}),
        also=frozenset({"failed-requests", "count-mismatch", "no-steady-window"}),  # they come and go in the window
        besides=frozenset({"failed-requests"}),
        case="beside a failure",
    ),
    Scenario(
        "count-mismatch",
        INVALID,
        fires=Play(flags={"faults.fail_every": 150, "output.usage_surplus_per_chunk": 1}),
        silent=Play(flags={"faults.fail_every": 150}),
        also=frozenset({"failed-requests", "chunk-not-token"}),
        besides=frozenset({"failed-requests"}),
        case="beside a failure",
    ),
    Scenario(
        "count-mismatch",
        INVALID,
        fires=Play(flags={"dialect": "llamacpp", "output.usage_surplus_per_chunk": 1}),
        silent=Play(flags={"dialect": "llamacpp", "usage": "final"}),
        also=frozenset({"chunk-not-token"}),  # two tokens a chunk, says the count
    ),
]
