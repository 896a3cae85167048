"""The server does not run what was offered, or not as it should."""

from __future__ import annotations

from lab.audit import FINDING, INVALID, WARNING
from lab.campaign import CONTROL
from tests.golden import broken
from tests.golden.scenario import Scenario
from tests.golden.stage import TREATED, Play

PAIR = (CONTROL, TREATED)
ONE_CONTROL = frozenset({"no-null"})
"""A single control launch does not show how far equal launches differ, and the audit says so."""
# Prompts of one length, so that a cache of a given size holds a known number of requests: 128 and 288 tokens each.
EQUAL = {"kind": "random", "input_tokens": 64, "output_tokens": 64}
LONG = {"kind": "random", "input_tokens": 256}

UNEVEN = {"output.stop_early_share": 0.7, "output.stop_early_factor": 0.2}
LONGER = {"output_tokens": 64}

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
        "batch-cap",
        INVALID,
        fires=Play(flags={"max_running": 8, "echoed_max_running": 64}, concurrency=16),
        silent=Play(flags={"max_running": 16, "echoed_max_running": 64}, concurrency=16),
        case="below the claim",
    ),
    Scenario(
        "batch-cap",
        INVALID,
        # Answers of many lengths: the batch empties one by one before the next one begins.
        fires=Play(flags=UNEVEN | {"whole_batches": True}, workload=LONGER),
        silent=Play(flags=UNEVEN, workload=LONGER),
        case="whole batches",
    ),
    Scenario(
        "below-load",
        INVALID,
        # Two small shortages, neither of which is a cause: a connection too few, and a slow way into the queue.
        fires=Play(flags={"overhead_ms": 300.0}, concurrency=16, client=broken.pool_of(15)),
        silent=Play(flags={"overhead_ms": 60.0}, concurrency=16),
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
        # Prompts are read again after a retraction, whose counter a fresh SGLang does not show before the first one.
        fires=Play(flags={"dialect": "sglang", "kv_tokens": 5 * 128}, workload=EQUAL),
        silent=Play(flags={"dialect": "sglang", "kv_tokens": 8 * 128 + 16}, workload=EQUAL),
        case="retracted",
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
        "graph-miss",
        WARNING,
        fires=Play(flags={"dialect": "sglang", "ranks": 2, "graphs.max_batch": 3}),
        silent=Play(flags={"dialect": "sglang", "ranks": 2, "graphs.max_batch": 4}),
        case="two ranks",
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
