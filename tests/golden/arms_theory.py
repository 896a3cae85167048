"""Scenarios in which measurement, bound and prediction contradict each other.

Without them an impossible figure passes for a fast server, and accepted drafts for a speed-up.
"""

from __future__ import annotations

from typing import Any

from lab.audit import FINDING, INVALID, WARNING
from lab.roofline.hardware import Hardware
from tests.golden.scenario import Scenario
from tests.golden.stage import PAIR, TWO_PASSES, Play

CACHE_BYTES = 50_000_000


def _memory(bytes_s: float) -> Hardware:
    return Hardware("card", bytes_s, "data sheet", cache_bytes=CACHE_BYTES)


def _half_the_weights(**flags: Any) -> Play:
    """A checkpoint of half the bytes, which the bound expects to be nearly twice as fast."""
    changed = {"weights.bytes_per_step": 7_505_000_000, **flags}
    treatment = {"checkpoint": "half-model", "flags": changed}
    return Play(
        flags={"dialect": "llamacpp"},
        treatment={},
        lever={"treatment": treatment, "proof": {"model_name": "half-model"}},
        order=TWO_PASSES,
        workload={"output_tokens": 96},  # a request waits for a step to end: a small share of a long answer
        hardware=_memory(500e9),
    )


def _drafting(step_cost: float) -> Play:
    drafts = {"speculation.tokens": 3, "speculation.acceptance": [0.9, 0.85, 0.8], "speculation.step_cost": step_cost}
    return Play(treatment=drafts, order=PAIR, workload={"output_tokens": 64})


SCENARIOS = [
    Scenario(
        code="over-roofline",
        severity=INVALID,
        fires=Play(flags={"dialect": "llamacpp"}, hardware=_memory(275e9)),
        silent=Play(flags={"dialect": "llamacpp"}, hardware=_memory(400e9)),
    ),
    Scenario(
        code="model-error",
        severity=WARNING,
        fires=_half_the_weights(step_ms=46.0),
        silent=_half_the_weights(step_ms=18.0),
        also=frozenset({"expected-sign-missed"}),
    ),
    Scenario(
        code="expected-sign-missed",
        severity=FINDING,
        fires=_half_the_weights(step_ms=46.0),
        silent=_half_the_weights(step_ms=18.0),
        also=frozenset({"model-error"}),
    ),
    Scenario(
        code="acceptance-not-speedup",
        severity=WARNING,
        fires=_drafting(3.3),
        silent=_drafting(1.3),
        also=frozenset({"chunk-not-token"}),  # a verified step sends all its tokens at once
        besides=frozenset({"chunk-not-token"}),
    ),
]
