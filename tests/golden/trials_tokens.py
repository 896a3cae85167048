"""Tokens are counted wrongly, come several at once, or were not computed at all."""

from __future__ import annotations

from lab.audit import INVALID, WARNING
from tests.golden import broken
from tests.golden.scenario import Scenario
from tests.golden.stage import Play

RANDOM = {"kind": "random", "input_tokens": 128}
SPECULATION = {
    "speculation.tokens": 3,
    "speculation.acceptance": [0.8, 0.6, 0.4],
    "speculation.step_cost": 1.2,
}
SEVERAL = frozenset({"chunk-not-token"})
"""Chunks of several tokens belong to the scene, and the audit says so."""
# Short answers, so that the questions are gone through twice.
REPEATING = {"output_tokens": 24}
UNCOUNTED = {
    "metrics.absent": [
        *("vllm:prefix_cache_queries", "vllm:prefix_cache_hits"),
        *("vllm:prompt_tokens_cached", "vllm:prompt_tokens_by_source"),
    ]
}
"""No counter of the prefix cache: each answer's `usage` alone tells."""

SCENARIOS = [
    Scenario(
        "input-length-drift",
        INVALID,
        fires=Play(flags={"prompt_tokens_factor": 1.3}, workload=RANDOM),
        silent=Play(flags={"prompt_tokens_factor": 1.01}, workload=RANDOM),
    ),
    Scenario(
        "output-length-drift",
        INVALID,
        fires=Play(
            flags={
                "dialect": "sglang",
                "output.ignores_ignore_eos": True,
                "output.stop_early_share": 0.1,
            },
            workload=RANDOM,
        ),
        silent=Play(flags={"dialect": "sglang", "output.stop_early_share": 0.1}, workload=RANDOM),
        case="within an arm",
    ),
    Scenario(
        "chunk-not-token",
        WARNING,
        fires=Play(flags={"dialect": "llamacpp", "tokens_per_chunk": 3}),
        # One chunk in thirty carries two.
        silent=Play(flags={"speculation.tokens": 1, "speculation.acceptance": [0.03]}),
    ),
    Scenario(
        "first-chunk-empty",
        WARNING,
        fires=Play(flags={"role_chunk_ms": 1.0}),
        silent=Play(),
        case="role only",
    ),
    Scenario(
        "first-chunk-empty",
        WARNING,
        fires=Play(flags={"output.reasoning_tokens": 8, "output.reasoning_field": "hidden"}),
        silent=Play(flags={"output.reasoning_tokens": 8, "output.reasoning_field": "reasoning"}),
        also=SEVERAL,  # the first chunk brings the hidden ones
        case="hidden reasoning",
    ),
    Scenario(
        "zero-is-missing",
        WARNING,
        fires=Play(flags={"dialect": "sglang", "one_chunk": True}),
        silent=Play(flags={"dialect": "sglang", "tokens_per_chunk": 16}),
        also=SEVERAL,
        besides=SEVERAL,
    ),
    Scenario(
        "token-policy-unrecorded",
        WARNING,
        fires=Play(flags={"dialect": "llamacpp", "usage": "none"}, client=broken.no_tokenizer),
        silent=Play(flags={"dialect": "llamacpp", "usage": "none"}),
    ),
    Scenario(
        "prefix-contamination",
        INVALID,
        fires=Play(flags={"prefix_cache": True}, workload=REPEATING, client=broken.salt),
        silent=Play(flags={"prefix_cache": True}, workload=REPEATING),
        case="without a salt",
    ),
    Scenario(
        "prefix-contamination",
        INVALID,
        fires=Play(flags={"dialect": "sglang", "prefix_cache": True}, workload=REPEATING, client=broken.salt),
        silent=Play(
            flags={"dialect": "sglang", "prefix_cache": True},
            workload={"kind": "shared_prefix", "prefixes": 4, "prefix_tokens": 256, "input_tokens": 64},
        ),
        case="undeclared",
    ),
    Scenario(
        "prefix-contamination",
        INVALID,
        fires=Play(flags=UNCOUNTED | {"prefix_cache": True}, workload=REPEATING, client=broken.salt),
        silent=Play(flags=UNCOUNTED | {"prefix_cache": True}, workload=REPEATING),
        case="by answers alone",
    ),
    Scenario(
        "spec-random-tokens",
        INVALID,
        fires=Play(flags=SPECULATION, workload=RANDOM),
        silent=Play(flags=SPECULATION),
        also=SEVERAL,
        besides=SEVERAL,
        case="random prompts",
    ),
    Scenario(
        "spec-random-tokens",
        INVALID,
        fires=Play(flags={**SPECULATION, "dialect": "sglang", "output.repeats": 0.15}),
        silent=Play(flags={**SPECULATION, "dialect": "sglang", "output.repeats": 0.02}),
        also=SEVERAL,
        besides=SEVERAL,
        case="loops",
    ),
    Scenario(
        "spec-gauge-snapshot",
        WARNING,
        fires=Play(flags={**SPECULATION, "dialect": "sglang", "metrics.accept_length": 3.9}, client=broken.gauge),
        silent=Play(flags={**SPECULATION, "dialect": "sglang", "metrics.accept_length": 3.9}),
        also=SEVERAL,
        besides=SEVERAL,
    ),
    Scenario(
        "faked-output",
        INVALID,
        fires=Play(flags={**SPECULATION, "speculation.synthetic": True}),
        silent=Play(flags=SPECULATION),
        also=SEVERAL,
        besides=SEVERAL,
    ),
]
