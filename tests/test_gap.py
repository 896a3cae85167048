"""The gap account: parts that sum to the measured step, what drafting adds, and the finding in plain words."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from lab.gap import UNEXPLAINED, account, structural, structural_gap
from lab.health import plain_bound, trial_bound, verified_bound
from lab.records import Trial
from lab.roofline import Bound, Layout, bound
from lab.roofline.hardware_catalogue import find as find_hardware
from lab.roofline.model_catalogue import find as find_model
from tests.builders import HARDWARE, trial_in_memory

V4, SERVER = find_model("DeepSeek-V4-Flash"), find_hardware("rtx_pro_6000_server")
RAN_16 = {
    "concurrency": 16,
    "server.running": 16.0,
    "metrics.output_tok_s": 28.7,
    "metrics.mean_context_tokens": 1000.0,
}


def deepseek(changes: dict[str, Any] | None = None, **inputs: Any) -> tuple[Trial, Bound]:
    """The case of the reference: 28.7 tok/s at batch 16 on four cards."""
    trial = trial_in_memory({**RAN_16, **(changes or {})}, model=asdict(V4))
    return trial, bound(V4, SERVER, Layout(tp=4), trial.server["running"], 1000, **inputs)


def test_the_parts_of_deepseek_v4_flash_are_those_worked_by_hand() -> None:
    gap = account(*deepseek())
    assert gap is not None and gap.layers == 43
    assert list(gap.parts_ms) == ["weights", "experts", "kv", "collectives", "compute", "unexplained"]
    assert gap.step_ms == pytest.approx(1e3 * 16 / 28.7)
    for name, part_ms in {"weights": 1.055, "experts": 7.275, "kv": 0.059, "collectives": 2.140}.items():
        assert gap.parts_ms[name] == pytest.approx(part_ms, rel=0.005)
    assert gap.per_layer_ms(UNEXPLAINED) == pytest.approx(12.7, rel=0.005)
    assert gap.bound_fraction == pytest.approx(0.0189, rel=0.005)


@pytest.mark.parametrize("tok_s", [0.37, 28.7, 1519.0, 5000.0])
def test_the_parts_sum_to_the_measured_step(tok_s: float) -> None:
    gap = account(*deepseek({"metrics.output_tok_s": tok_s}))
    assert gap is not None
    assert sum(gap.parts_ms.values()) == pytest.approx(gap.step_ms, rel=1e-12)
    assert sum(map(gap.per_layer_ms, gap.parts_ms)) == pytest.approx(gap.step_ms / 43, rel=1e-12)


def test_a_step_shorter_than_its_bound_is_told_and_not_clamped() -> None:
    gap = account(*deepseek({"metrics.output_tok_s": 3000.0}))
    assert gap is not None and gap.unexplained_ms == pytest.approx(16 / 3 - 10.529, rel=0.005)
    assert gap.bound_fraction > 1
    assert "an input is wrong" in gap.note and "speculation" in gap.note
    slow = account(*deepseek())
    assert slow is not None and slow.note == ""


def test_speculation_costs_what_its_verification_adds_to_a_plain_step() -> None:
    trial, plain = deepseek({"metrics.output_tok_s": 60.0}, tokens_per_step=2.5)
    _, verified = deepseek(tokens_per_step=2.5, draft_tokens=3)
    gap = account(trial, plain, verified)
    assert gap is not None
    assert gap.parts_ms["speculation"] == pytest.approx(verified.step_ms - plain.step_ms)
    assert gap.parts_ms["speculation"] > 5
    assert gap.bound_tok_s == pytest.approx(verified.bound_tok_s)
    assert gap.plain_bound_tok_s == pytest.approx(plain.bound_tok_s)
    assert gap.bound_fraction == pytest.approx(60 / verified.bound_tok_s)
    assert gap.step_ms == pytest.approx(1e3 * 16 * 2.5 / 60)
    assert sum(gap.parts_ms.values()) == pytest.approx(gap.step_ms, rel=1e-12)


def test_drafts_of_unknown_number_are_in_the_unexplained_part_and_the_note_says_so() -> None:
    counted = {"server.delta": {"output_tokens": 3000.0, "draft_accepted": 1000.0}}
    trial = trial_in_memory(counted, {"speculative": True})
    limit = trial_bound(trial, HARDWARE)
    assert limit is not None and verified_bound(trial, HARDWARE) is None
    gap = account(trial, limit)
    assert gap is not None and "speculation" not in gap.parts_ms and "unexplained part" in gap.note


def test_the_record_says_how_many_drafts_are_verified() -> None:
    counted = {"server.delta": {"output_tokens": 3000.0, "draft_accepted": 1000.0}}
    trial = trial_in_memory(counted, {"speculative": True, "speculative_tokens": 3})
    plain, verified = plain_bound(trial, HARDWARE), verified_bound(trial, HARDWARE)
    assert plain is not None and verified is not None and verified.flops_per_step is plain.flops_per_step is None
    gap = account(trial, plain, verified)
    assert gap is not None and gap.parts_ms["speculation"] == 0  # dense, one device, no known peak: nothing is added
    assert verified_bound(trial_in_memory(facts={"speculative": False, "speculative_tokens": 3}), HARDWARE) is None


@pytest.mark.parametrize("changes", [{"server.running": None}, {"metrics.output_tok_s": None}])
def test_without_batch_or_throughput_there_is_no_account(changes: dict[str, Any]) -> None:
    _, limit = deepseek()
    trial = trial_in_memory({**RAN_16, **changes}, model=asdict(V4))
    assert account(trial, limit) is None and structural_gap(trial, limit) is None


def test_the_structural_gap_is_told_in_plain_words() -> None:
    text = structural_gap(*deepseek())
    assert text is not None
    for part in (
        "28.7 tok/s is 1.9 %",
        "1,520 tok/s",
        "16.0 requests that ran",
        "557.5 ms",
        "10.5 ms",
        "12.7 ms of each",
    ):
        assert part in text


def test_the_gap_of_several_trials_is_told_by_their_means() -> None:
    gaps = [account(*deepseek({"metrics.output_tok_s": tok_s})) for tok_s in (20.0, 40.0)]
    text = structural([gap for gap in gaps if gap is not None])
    assert text is not None and "30.0 tok/s is 2.0 % of the 1,520" in text and "600.0 ms" in text
    assert structural([]) is None


def test_one_fast_trial_among_slow_ones_may_lift_the_mean_over_the_limit() -> None:
    gaps = [account(*deepseek({"metrics.output_tok_s": tok_s})) for tok_s in (200.0, 500.0)]
    assert structural([gap for gap in gaps if gap is not None]) is None


def test_a_cache_type_that_is_not_proven_is_noted() -> None:
    trial = trial_in_memory(facts={"kv_dtype_k": None, "kv_dtype_v": None, "kv_dtype_asked": "fp8"})
    limit = trial_bound(trial, HARDWARE)
    gap = account(trial, limit) if limit else None
    assert gap is not None and gap.note == "the type of the cache is asked, not proven: its part may be another"


def test_a_fifth_of_the_bound_is_no_structural_gap() -> None:
    _, limit = deepseek()
    fifth = 0.2 * float(limit.bound_tok_s)
    assert structural_gap(*deepseek({"metrics.output_tok_s": fifth * 1.001})) is None
    assert structural_gap(*deepseek({"metrics.output_tok_s": fifth * 0.999})) is not None
