"""How many experts a step touches, by each law of routing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.errors import InputError
from lab.roofline.experts import distinct, fewest

shapes = st.sampled_from([(256, 6), (512, 10), (128, 4), (256, 8), (8, 2), (4, 4)])
laws = st.sampled_from(["uniform", "balanced", 1.01, 1.2])
calm = settings(deadline=None, max_examples=40)


@pytest.mark.parametrize(
    ("shape", "tokens", "count"), [((256, 6), 16, 80.838), ((512, 10), 128, 470.999), ((128, 4), 64, 111.221)]
)
def test_independent_tokens(shape: tuple[int, int], tokens: int, count: float) -> None:
    assert distinct(*shape, tokens) == pytest.approx(count, abs=5e-4)


def test_a_rank_of_four_holds_a_quarter_of_them() -> None:
    assert distinct(256, 6, 16) / 4 == pytest.approx(20.209, abs=5e-4)


def test_balanced_tokens_share_no_expert() -> None:
    assert distinct(256, 6, 16, "balanced") == 96
    assert distinct(256, 6, 64, "balanced") == 256


# (experts, per token), tokens, exponents 1.01 and 1.2: ai-dynamo/aiconfigurator collector/helper.py, 20 draws, ±5 %
@pytest.mark.parametrize(
    ("shape", "tokens", "mild", "steep"),
    [
        ((256, 6), 16, 82.3, 73.3),
        ((256, 6), 32, 114.4, 104.5),
        ((256, 6), 64, 179, 171),
        ((256, 6), 128, 196.1, 192.2),
        ((512, 10), 32, 213.3, 190.8),
        ((512, 10), 128, 372.9, 364.1),
    ],
)
def test_skewed_loads(shape: tuple[int, int], tokens: int, mild: float, steep: float) -> None:
    assert distinct(*shape, tokens, 1.01) == pytest.approx(mild, rel=0.05)
    assert distinct(*shape, tokens, 1.2) == pytest.approx(steep, rel=0.05)


def test_independent_tokens_are_no_lower_bound() -> None:
    assert fewest(256, 6, 64) < 0.9 * distinct(256, 6, 64)
    assert fewest(256, 6, 1) == pytest.approx(6)


@calm
@given(shapes, laws, st.lists(st.floats(0.1, 3000), min_size=2, max_size=6))
def test_more_tokens_touch_more_and_never_too_many(
    shape: tuple[int, int], law: str | float, tokens: list[float]
) -> None:
    tokens = sorted(tokens)
    together = distinct(*shape, np.array(tokens), law)
    assert np.all(np.diff(together) >= -1e-9)
    assert np.all(together <= shape[0] + 1e-9)
    whole = np.maximum(tokens, 1.0)
    assert np.all(distinct(*shape, whole, law) <= distinct(*shape, whole, "balanced") + 1e-9)
    single = [float(distinct(*shape, size, law)) for size in tokens]
    assert np.allclose(together, single, rtol=1e-12)
    assert np.all(fewest(*shape, np.array(tokens)) <= together + 1e-9)


@pytest.mark.parametrize("law", ["unifrom", 0.0, -1.2])
def test_an_unknown_law_is_refused(law: str | float) -> None:
    with pytest.raises(InputError, match="unknown routing"):
        distinct(256, 6, 16, law)
