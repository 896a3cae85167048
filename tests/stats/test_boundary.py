"""However often a campaign is looked at, it must be wrong as often as it says and no more."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as reference

from lab.stats.boundary import FEW_LAUNCHES_SHARE, levels, spent
from lab.stats.walk import Walk

calm = settings(deadline=None, max_examples=30)
looks_up_to_12 = st.sets(st.integers(1, 12), min_size=1).map(sorted)
alphas = st.sampled_from([0.001, 0.01, 0.05, 0.2, 0.45])


def z_of(level: float) -> float:
    return -reference.norm.ppf(level / 2)


def error_of(looks: list[int], found: tuple[float, ...], sides: int) -> float:
    """Probability that a walk without drift ever crosses."""
    walk, total = Walk(), 0.0
    for look, level in zip(looks, found, strict=True):
        bound = -reference.norm.ppf(level / sides)
        walk.go_on(look)
        total += sides * walk.beyond(bound)
        walk.stop_beyond(-bound if sides == 2 else -math.inf, bound)
    return total


def test_five_equal_looks_have_the_published_bounds():
    """Lan & DeMets' Pocock-type spending function, alpha 0.05 two-sided."""
    found = [z_of(level) for level in levels([10, 20, 30, 40, 50], 50, 0.05)]
    assert found == pytest.approx([2.438, 2.427, 2.410, 2.397, 2.386], abs=2e-3)


def test_five_equal_looks_resemble_pococks_boundary():
    assert np.mean(levels([10, 20, 30, 40, 50], 50, 0.05)) == pytest.approx(0.0158, abs=4e-4)


@pytest.mark.parametrize("alpha", [0.001, 0.05, 0.4])
@pytest.mark.parametrize("sides", [1, 2])
def test_one_look_at_the_end_is_the_fixed_test(alpha, sides):
    assert levels([8], 8, alpha, sides) == (pytest.approx(alpha),)


@pytest.mark.parametrize("sides", [1, 2])
@calm
@given(looks_up_to_12, alphas)
def test_exactly_what_may_be_spent_is_spent(sides, looks, alpha):
    last = looks[-1]
    assert error_of(looks, levels(looks, last, alpha, sides), sides) == pytest.approx(alpha, rel=1e-6)


@calm
@given(looks_up_to_12, alphas, st.integers(0, 8))
def test_before_the_last_pass_no_more_is_spent_than_the_share_of_the_passes(looks, alpha, further):
    last = looks[-1] + further
    assert error_of(looks, levels(looks, last, alpha), 2) == pytest.approx(spent(looks[-1], last, alpha), rel=1e-6)


@calm
@given(looks_up_to_12, alphas)
def test_a_later_look_changes_no_earlier_level(looks, alpha):
    full = levels(looks, 12, alpha)
    for count in range(1, len(looks)):
        assert levels(looks[:count], 12, alpha) == pytest.approx(full[:count], rel=1e-9)


@calm
@given(st.integers(2, 30), alphas)
def test_error_is_spent_in_step_with_the_passes_and_all_of_it_at_the_end(last, alpha):
    shares = [spent(passes, last, alpha) for passes in range(1, last + 1)]
    assert shares == sorted(shares)
    assert shares[0] > 0
    assert shares[-1] == pytest.approx(alpha)


def test_a_look_at_two_launches_spends_next_to_nothing_unless_it_is_the_last():
    assert spent(2, 8, 0.05) == pytest.approx(FEW_LAUNCHES_SHARE * 0.05 * math.log(1 + (math.e - 1) / 4))
    assert spent(2, 2, 0.05) == pytest.approx(0.05)
    assert spent(3, 8, 0.05) == pytest.approx(0.05 * math.log(1 + (math.e - 1) * 3 / 8))


def test_a_look_that_was_missed_leaves_its_error_to_the_next():
    assert levels([3, 5], 8, 0.05)[1] > levels([3, 4, 5], 8, 0.05)[2]


def test_one_side_at_half_the_level_is_two_sides_at_the_whole():
    two, one = levels(range(2, 9), 8, 0.05), levels(range(2, 9), 8, 0.025, sides=1)
    assert [level / 2 for level in two] == pytest.approx(one, rel=1e-3)


def test_levels_are_kept_by_dice():
    random, campaigns = np.random.default_rng(8), 200_000
    looks = np.arange(2, 9)
    steps = np.diff(looks, prepend=0)
    z = np.cumsum(random.normal(0, np.sqrt(steps), (campaigns, len(looks))), axis=1) / np.sqrt(looks)
    bounds = np.array([z_of(level) for level in levels(looks.tolist(), 8, 0.05)])
    assert (np.abs(z) > bounds).any(axis=1).mean() == pytest.approx(0.05, abs=0.0025)


@pytest.mark.parametrize("alpha", [1e-9, 1e-4, 0.4999])
def test_extreme_error_rates_give_levels(alpha):
    found = levels(range(2, 9), 8, alpha)
    assert all(0 <= level <= alpha for level in found)
    assert found[-1] > 0


def test_no_looks_have_no_levels():
    assert levels([], 8, 0.05) == ()


@pytest.mark.parametrize("looks", [[3, 2], [2, 2], [0, 1], [2, 9], [-1]])
def test_looks_that_cannot_be_are_refused(looks):
    with pytest.raises(ValueError, match="are not rising passes up to 8"):
        levels(looks, 8, 0.05)
