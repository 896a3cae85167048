"""What the roofline expects of each lever, worked out again by hand: one figure, or a sentence why there is none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lab.predictions import (
    Planned,
    Prediction,
    by_inputs,
    of_cache,
    of_checkpoint,
    of_drafts,
    of_experts,
    of_fixed_cost,
    of_kernels,
    of_ring,
)
from lab.roofline import Layout
from lab.roofline.hardware_catalogue import find
from lab.roofline.model_catalogue import find as find_model
from lab.roofline.nccl import all_reduce_us
from lab.served_bound import CacheTypes
from tests.builders import HARDWARE, MODEL

SMALL = Planned(MODEL, HARDWARE, Layout(), 4.0, 80.0, CacheTypes("f16", "f16"))
KV_BYTES = 2 * 2 * 2 * 16 * 2 * 80.0
"""Of one sequence: layers, keys and values, heads, width, bytes, tokens."""
CARDS = find("rtx_pro_6000_server")
LARGE = Planned(find_model("DeepSeek-V4-Flash"), CARDS, Layout(tp=4), 16.0, 1000.0, CacheTypes(None, None, "not shown"))


def step(weights: float, sequences: float, each: float = KV_BYTES) -> float:
    return weights + sequences * each


def test_a_smaller_checkpoint_gains_the_bytes_that_it_saves() -> None:
    smaller = replace(SMALL, model=replace(MODEL, format="Q4_0", weight_bytes=800_000, weight_bytes_per_step=800_000))
    found = of_checkpoint(SMALL, smaller)
    assert found.effect_pct == pytest.approx(100 * (step(1e6, 4) / step(8e5, 4) - 1))
    assert "1.0 → 0.8 MB of weights a step (Q4_1 → Q4_0)" in found.sentence
    assert f"{step(1e6, 4) / 1e6:.3g} ms, with the lever {step(8e5, 4) / 1e6:.3g} ms" in found.sentence
    assert str(found).startswith("+2")


def test_a_larger_checkpoint_loses() -> None:
    larger = replace(SMALL, model=replace(MODEL, weight_bytes_per_step=2_000_000))
    found = of_checkpoint(SMALL, larger)
    assert found.effect_pct == pytest.approx(100 * (step(1e6, 4) / step(2e6, 4) - 1))
    assert str(found).startswith("−4")


def test_a_smaller_cache_type_gains_by_its_share_of_the_step() -> None:
    found = of_cache(SMALL, replace(SMALL, cache=CacheTypes("q8_0", "q8_0")))
    after = step(1e6, 4, KV_BYTES / 2 * 34 / 32)
    assert found.effect_pct == pytest.approx(100 * (step(1e6, 4) / after - 1))
    assert "0.08 → 0.04 MB of cache a step beside 1.0 MB of weights" in found.sentence


def test_an_equal_type_of_another_name_is_no_prediction_of_zero() -> None:
    found = of_cache(SMALL, replace(SMALL, cache=CacheTypes("bf16", "bf16")))
    assert found.effect_pct is None and "the same bound" in found.sentence


def test_drafting_must_bring_what_its_verification_costs() -> None:
    plain, verified = LARGE.limit(), LARGE.limit(3)
    even = verified.step_ms / plain.step_ms
    found = of_drafts(LARGE, 3)
    assert found.effect_pct is None and even > 1.5
    assert f"{verified.step_ms:.3g} ms instead of {plain.step_ms:.3g} ms" in found.sentence
    assert f"pays from {even:.2f} tokens a step" in found.sentence
    assert f"from {100 * (even - 1) / 3:.0f} % of the drafts" in found.sentence
    assert f"at most +{100 * (4 / even - 1):.0f} %" in found.sentence
    assert "arithmetic of this hardware" not in found.sentence


def test_without_known_arithmetic_the_cost_of_verification_is_said_to_be_missing() -> None:
    assert "the arithmetic of this hardware is not known" in of_drafts(SMALL, 8).sentence


def test_experts_within_one_group_read_the_same_bytes() -> None:
    found = of_experts(LARGE, LARGE)
    touched = LARGE.limit().distinct_experts
    assert found.effect_pct is None
    assert f"touches {touched:.0f}: a slice of each on every device, or {touched / 4:.1f} whole ones" in found.sentence


def test_experts_that_tokens_travel_to_cost_messages() -> None:
    control = replace(LARGE, model=find_model("DeepSeek-V3"), hardware=find("h200_sxm"), layout=Layout(tp=8))
    spread = replace(control, layout=Layout(tp=1, dp=8, ep=8))
    found = of_experts(control, spread)
    before, after = control.limit(), spread.limit()
    assert found.effect_pct == pytest.approx(100 * (after.bound_tok_s / before.bound_tok_s - 1))
    sent = before.components_ms["all_reduce"], after.components_ms["all_to_all"]
    assert f"messages take {sent[0]:.3g} → {sent[1]:.3g} ms a step" in found.sentence


def test_the_ring_is_held_against_what_nccl_chooses_by_itself() -> None:
    found = of_ring(LARGE)
    sent = LARGE.limit().collectives["all_reduce"]
    assert f"{sent.count} all-reduces of 128 KiB on 4 devices" in found.sentence
    assert found.effect_pct is None and "would choose it by itself" in found.sentence


def test_a_ring_that_nccl_would_not_choose_costs_what_it_is_slower() -> None:
    wide = replace(LARGE, batch=4096.0)
    limit, sent = wide.limit(), wide.limit().collectives["all_reduce"]
    assert CARDS.link is not None and CARDS.link_bytes_s is not None
    chosen = float(all_reduce_us(CARDS.link, CARDS.link_bytes_s / 1e9, CARDS.generation, 4, sent.message_bytes))
    ring = 6.6 + 2 * 3 * 1.0 + float(sent.message_bytes) / (1e3 * 0.5 * CARDS.link_bytes_s / 1e9 * 4 / 6)
    found = of_ring(wide)
    assert ring > chosen and found.effect_pct is not None and found.effect_pct < 0
    slower_ms = limit.step_ms + sent.count * (ring - chosen) / 1e3
    assert found.effect_pct == pytest.approx(100 * (limit.step_ms / slower_ms - 1))


def test_one_device_has_nothing_to_reduce() -> None:
    assert of_ring(SMALL) == Prediction(
        None, "no figure: nothing is reduced between devices here, or their link is not known"
    )


def test_a_fixed_cost_has_no_figure_and_says_what_one_would_be_worth() -> None:
    found = of_fixed_cost(SMALL)
    assert found.effect_pct is None
    worth = 100 * 2 * 0.01 / (step(1e6, 4) / 1e6)
    assert "none was fitted here; 2 layers" in found.sentence and f"is {worth:.2g} % of it" in found.sentence


def test_better_kernels_leave_the_bound_where_it_is() -> None:
    found = of_kernels(SMALL)
    assert found.effect_pct is None and f"at least {step(1e6, 4) / 1e6:.3g} ms" in found.sentence


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"batch": 2.0}, "requests at once 4 → 2"),
        ({"cache": CacheTypes("q8_0", "q8_0")}, "cache f16 → q8_0"),
        ({"model": replace(MODEL, format="Q8_0", weight_bytes_per_step=2_000_000)}, "weights Q4_1 → Q8_0"),
    ],
)
def test_an_ad_hoc_lever_is_predicted_by_what_it_changes_in_the_inputs(changes: dict[str, Any], words: str) -> None:
    after = replace(SMALL, **changes)
    found = by_inputs(SMALL, after)
    expected = 100 * (after.limit().bound_tok_s / SMALL.limit().bound_tok_s - 1)
    assert found.effect_pct == pytest.approx(expected) and words in found.sentence


def test_what_the_bound_does_not_see_has_no_figure() -> None:
    found = by_inputs(SMALL, SMALL)
    assert found.effect_pct is None and "does not see what this changes" in found.sentence
