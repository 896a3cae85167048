"""The server does not run what was offered, or not as it should."""

from __future__ import annotations

from lab.audit import FINDING, INVALID, WARNING
from lab.campaign import CONTROL
from tests.golden.scenario import Scenario
from tests.golden.stage import TREATED, Play

PAIR = (CONTROL, TREATED)
ONE_CONTROL = frozenset({"no-null"})
"""A single control launch does not show how far equal launches differ, and the audit says so."""
# Prompts of one length, so that a cache of a given size holds a known number of requests: 128 and 288 tokens each.
EQUAL = {"kind": "random", "input_tokens": 64, "output_tokens": 64}
LONG = {"kind": "random", "input_tokens": 256}


SCENARIOS = [
    Scenario(
        "batch-cap",
        INVALID,
        fires=Play(flags={"dialect": "vllm", "max_running": 8}, concurrency=16),
        silent=Play(flags={"dialect": "vllm", "max_running": 16}, concurrency=16),
    ),
    Scenario(
        "batch-cap",
        INVALID,
        fires=Play(flags={"dialect": "llamacpp", "max_running": 7}, concurrency=8),
        silent=Play(flags={"dialect": "llamacpp", "max_running": 8}, concurrency=8),
        case="by one",
    ),
    Scenario(
        "capacity-limited",
        FINDING,
        fires=Play(flags={"dialect": "sglang"}, concurrency=16, treatment={"max_running": 8}, order=PAIR),
        silent=Play(flags={"dialect": "sglang"}, concurrency=16, treatment={"max_running": 16}, order=PAIR),
        also=ONE_CONTROL,
        besides=ONE_CONTROL,
    ),
    Scenario(
        "kv-bound",
        INVALID,
        fires=Play(flags={"kv_tokens": 5 * 128}, workload=EQUAL),
        silent=Play(flags={"kv_tokens": 8 * 128 + 16}, workload=EQUAL),
        case="preempted",
    ),
    Scenario(
        "kv-bound",
        INVALID,
        # There is always some room left, and never enough for a prompt.
        fires=Play(flags={"dialect": "sglang", "kv_tokens": 6 * 288 + 48}, workload=LONG),
        silent=Play(flags={"dialect": "sglang", "kv_tokens": 8 * 288 + 48}, workload=LONG),
        case="long prompts",
    ),
    Scenario(
        "dp-underfilled",
        WARNING,
        fires=Play(flags={"dialect": "sglang", "ranks": 2, "router": "first"}),
        silent=Play(flags={"dialect": "sglang", "ranks": 2, "router": "even"}),
    ),
    Scenario(
        "graph-miss",
        WARNING,
        fires=Play(flags={"dialect": "sglang", "graphs.max_batch": 7}),
        silent=Play(flags={"dialect": "sglang", "graphs.max_batch": 8}),
    ),
    Scenario(
        "lever-not-applied",
        INVALID,
        fires=Play(treatment={"block_tokens": 32, "ignored_flags": ["block_tokens"]}, order=PAIR),
        silent=Play(treatment={"block_tokens": 32}, order=PAIR),
        also=ONE_CONTROL,
        besides=ONE_CONTROL,
    ),
]
