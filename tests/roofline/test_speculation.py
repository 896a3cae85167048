"""What drafting gains, costs, and when it loses."""

from __future__ import annotations

import numpy as np
import pytest

from lab.errors import InputError, LabError
from lab.roofline import Layout, bound
from lab.roofline.hardware_catalogue import find
from lab.roofline.model_catalogue import find as find_model
from lab.roofline.speculation import (
    break_even_tokens_per_step,
    draft_step_ms,
    tokens_per_step_conditional,
    tokens_per_step_iid,
    tokens_per_step_marginal,
)

SERVER = find("rtx_pro_6000_server")
V4, QWEN = find_model("DeepSeek-V4-Flash"), find_model("Qwen3.5-397B-A17B", "NVFP4")
RATES = [0.85, 0.67, 0.51, 0.36, 0.31]  # local-inference-lab/rtx6kpro: mean length 3.69


def test_marginal_rates_are_added_and_conditional_ones_multiplied() -> None:
    assert tokens_per_step_marginal(RATES) == pytest.approx(3.70)
    assert tokens_per_step_conditional(RATES) == pytest.approx(2.847, abs=5e-4)
    assert tokens_per_step_iid(0.8, 3) == pytest.approx(2.952)
    assert tokens_per_step_iid(1.0, 3) == 4 and tokens_per_step_iid(0.0, 3) == 1
    assert tokens_per_step_marginal([]) == 1


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan")])
def test_a_rate_is_a_share(rate: float) -> None:
    with pytest.raises(InputError, match="outside 0 to 1"):
        tokens_per_step_marginal([rate])


def test_no_position_is_accepted_oftener_than_the_one_before_it() -> None:
    with pytest.raises(InputError, match=r"^acceptance rises from 0\.5 to 0\.9 at position 2; give the share of all"):
        tokens_per_step_marginal([0.5, 0.9])
    assert tokens_per_step_marginal([0.5, 0.5, 0.0]) == 2
    assert tokens_per_step_conditional([0.5, 0.9]) == pytest.approx(1.95)


@pytest.mark.parametrize(("draft_tokens", "needed"), [(3, 2.45), (7, 2.89)])
def test_more_drafts_must_be_accepted_at_a_larger_batch(draft_tokens: int, needed: float) -> None:
    at = break_even_tokens_per_step(V4, SERVER, Layout(tp=4), 16, 1000, draft_tokens=draft_tokens)
    assert at == pytest.approx(needed, abs=0.005)
    many = break_even_tokens_per_step(V4, SERVER, Layout(tp=4), np.array([1.0, 16.0]), 1000, draft_tokens=draft_tokens)
    assert many[1] == pytest.approx(at)


def test_at_break_even_drafting_gains_nothing() -> None:
    inputs = {"draft_tokens": 3, "draft_step_ms": draft_step_ms(V4, SERVER, Layout(tp=4), 16, 1000)}
    needed = break_even_tokens_per_step(V4, SERVER, Layout(tp=4), 16, 1000, **inputs)
    drafted = bound(V4, SERVER, Layout(tp=4), 16, 1000, tokens_per_step=needed, **inputs)
    assert drafted.bound_tok_s == pytest.approx(bound(V4, SERVER, Layout(tp=4), 16, 1000).bound_tok_s)
    assert drafted.components_ms["draft"] == pytest.approx(3 * inputs["draft_step_ms"])


def test_a_draft_of_qwen_costs_an_eighth_of_a_step() -> None:
    # 2.59 GB over four cards; a step reads 3.48 ms
    cost = draft_step_ms(QWEN, SERVER, Layout(tp=4), 1, 500)
    assert cost == pytest.approx(2.592e9 / 4 / 1597e9 * 1e3, rel=0.005)
    whole = bound(QWEN, SERVER, Layout(tp=4), 1, 500)
    assert cost / (1e3 / whole.bound_memory_tok_s) == pytest.approx(0.12, abs=0.005)
    both = draft_step_ms(QWEN, SERVER, Layout(tp=4), np.array([1.0, 64.0]), 500)
    assert both[0] == pytest.approx(cost) and both[1] > cost


def test_a_model_without_a_draft_layer_says_so() -> None:
    with pytest.raises(LabError, match="no layer for next-token prediction"):
        draft_step_ms(find_model("Llama-3.1-8B"), SERVER, Layout(), 1, 100)
