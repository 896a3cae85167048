"""Whole simulated trials: clean ones raise no invalidating code, and each fault comes out as its own."""

from __future__ import annotations

import pytest

from lab.audit import INVALID, Code, Context, audit
from lab.audit.diagnosis import diagnose
from tests.audit.simulated import Scene, trial_of

CLEAN = {
    "four clients for six seconds": Scene(),
    "one client": Scene(clients=1),
    "steps that vary by 15 %": Scene(noise=0.15),
    "answers of eight tokens": Scene(output_tokens=8, prefill_s=0.03),
    "just as many clients as slots": Scene(clients=2, cap=2, seconds=4.0, token_s=0.05),
    "answers longer than the window": Scene(output_tokens=400, drain_s=1.0),
}
SIXTEEN = {"clients": 16, "cap": 32, "token_s": 0.03, "prefill_s": 0.01, "warmup_s": 2.0, "seconds": 12.0}
FAULTS = {
    "half the slots": (Scene(**{**SIXTEEN, "cap": 8}), {"batch-cap"}, "cap-bound"),
    "a pool of ten connections": (Scene(**SIXTEEN, pool=10), {"client-conn-cap", "client-bound"}, "client-bound"),
    "five held back on the way": (Scene(**SIXTEEN, hidden=5), {"client-inflight-illusion"}, "lost on the way"),
    "a server that slows down": (
        Scene(**{**SIXTEEN, "seconds": 60.0}, slow=0.2),
        {"no-steady-window"},
        "not to be believed",
    ),
    "somebody else's requests": (Scene(**SIXTEEN, foreign=3), {"foreign-traffic"}, "not ours"),
    "prompts that were cached": (Scene(**SIXTEEN, cached=0.9), {"prefix-contamination"}, "not to be believed"),
    "tokens that the client overlooks": (Scene(**SIXTEEN, tokens_lost=1), {"count-mismatch"}, "not to be believed"),
}


def invalid(codes: list[Code]) -> set[str]:
    return {code.code for code in codes if code.severity == INVALID}


@pytest.mark.parametrize("scene", CLEAN.values(), ids=CLEAN)
def test_clean_trials_raise_no_invalidating_code(scene: Scene) -> None:
    """Fifteen of each kind; 2,000 of each were simulated once, with none."""
    for seed in range(15):
        trial = trial_of(scene, seed)
        assert invalid(audit(trial)) == set(), seed
        assert diagnose(trial).name in ("healthy", "unclear"), seed


@pytest.mark.parametrize(("scene", "codes", "name"), FAULTS.values(), ids=FAULTS)
def test_a_fault_comes_out_as_its_own_code(scene: Scene, codes: set[str], name: str) -> None:
    trial = trial_of(scene, 3)
    assert invalid(audit(trial)) == codes
    assert diagnose(trial).name == name


def test_a_lever_that_halves_the_slots_is_a_finding() -> None:
    capped = trial_of(Scene(**{**SIXTEEN, "cap": 8}), 3)
    codes = audit(capped, Context(control_cap=32))
    assert invalid(codes) == set()
    assert "capacity-limited" in {code.code for code in codes}


def test_three_tokens_a_chunk_are_told() -> None:
    assert "chunk-not-token" in {code.code for code in audit(trial_of(Scene(chunk=3)))}


def test_long_answers_have_a_throughput_and_no_latency() -> None:
    trial = trial_of(Scene(output_tokens=400, drain_s=1.0))
    codes = {code.code: code for code in audit(trial)}
    assert set(codes) == {"too-few-requests"}
    assert trial.metrics["output_tok_s"] > 0
    assert trial.metrics["e2e_p50_ms"] is None
    assert "e2e_p50_ms" in codes["too-few-requests"].withdraws


def test_a_window_that_opens_on_the_first_request_is_a_ramp() -> None:
    """Requests that start one after the other over a third of the window."""
    trial = trial_of(Scene(**{**SIXTEEN, "warmup_s": -0.5, "seconds": 2.0, "output_tokens": 64}))
    assert trial.window["started_s"] >= 0
    assert "ramp-heavy" in {code.code for code in audit(trial)}
