"""A campaign ends at its first decision, and only at one that the rule allows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as reference

from lab.stats.boundary import levels
from lab.stats.looks import ADOPT, INCONCLUSIVE, LABELS, NO_EFFECT, REJECT, SPENT_SHARE, Bounds, ending, shared_level
from lab.stats.spread import Estimate

calm = settings(deadline=None, max_examples=40)
FREE = 1e6  # degrees of freedom of a spread that is known
DONE = list(range(2, 9))


def bounds(least_pct: float = 0.0, better: int = 1, last: int = 8, alpha: float = 0.05) -> Bounds:
    return Bounds(last, alpha, math.log1p(-least_pct / 100), math.log1p(least_pct / 100), better)


def seen(log_ratio: float | np.ndarray, error: float | np.ndarray = 1.0, df: float = FREE) -> Estimate:
    log_ratio = np.atleast_1d(np.asarray(log_ratio, float))
    error, df = np.broadcast_to(error, log_ratio.shape), np.full(log_ratio.shape, float(df))
    return Estimate(log_ratio, error, df, error, df, error**2)


def ended(rule: Bounds, *looks: Estimate, passes: list[int] | None = None, comparisons: int = 1):
    """Label, look and hopelessness of one campaign."""
    end = ending(passes or DONE[: len(looks)], looks, rule, comparisons)
    return LABELS[int(end.label[0])], int(end.look[0]), bool(end.hopeless[0])


@pytest.mark.parametrize(("count", "z"), [(2, 2.21), (3, 2.35), (5, 2.51)])
def test_several_treatments_beside_one_control_pay_dunnetts_price(count, z):
    """Dunnett's table: two-sided 5 %, infinite degrees of freedom."""
    assert -reference.norm.ppf(shared_level(0.05, count) / 2) == pytest.approx(z, abs=5e-3)


@calm
@given(st.floats(1e-6, 0.4), st.integers(2, 12))
def test_dunnett_asks_less_than_bonferroni_and_more_than_one_comparison(level, count):
    assert level / count * (1 - 1e-9) <= shared_level(level, count) < level
    assert shared_level(level, count + 1) < shared_level(level, count)


def test_dunnetts_level_is_kept_by_dice():
    random = np.random.default_rng(4)
    control, levers = random.normal(0, 1, (200_000, 1)), random.normal(0, 1, (200_000, 4))
    z = np.abs(levers - control).max(axis=1) / math.sqrt(2)
    assert (2 * reference.norm.sf(z) <= shared_level(0.05, 4)).mean() == pytest.approx(0.05, abs=0.0025)


@pytest.mark.parametrize("level", [0.0, 1.0, 0.03])
def test_one_treatment_pays_nothing_and_no_level_is_made_up(level):
    assert shared_level(level, 1) == level
    assert level == 0.03 or shared_level(level, 3) == level


@pytest.mark.parametrize("level", [1e-12, 1e-6, 0.49, 0.9])
def test_dunnett_bears_extreme_levels(level):
    assert 0 < shared_level(level, 3) < level


def test_a_difference_is_called_exactly_from_the_level_of_its_look():
    level = levels(DONE[:3], 8, SPENT_SHARE * 0.05)[2]
    z = -reference.t.ppf(level / 2, 5)
    still = [seen(0.0), seen(0.0)]
    assert ended(bounds(), *still, seen(z + 1e-6, df=5)) == (ADOPT, 2, False)
    assert ended(bounds(), *still, seen(z - 1e-6, df=5))[0] == INCONCLUSIVE
    assert ended(bounds(), *still, seen(-z - 1e-6, df=5)) == (REJECT, 2, False)


def test_the_spread_of_each_arm_decides_not_the_pooled_one():
    sure, one = np.array([5.0]), np.ones(1)
    pooled_only = Estimate(sure, 0.1 * one, 99 * one, 5 * one, 3 * one, one)
    apart_only = Estimate(sure, 5 * one, 3 * one, 0.1 * one, 99 * one, one)
    assert ended(bounds(), pooled_only, passes=[8])[0] == INCONCLUSIVE
    assert ended(bounds(), apart_only, passes=[8])[0] == ADOPT


def test_an_effect_below_the_least_that_counts_is_not_adopted_however_sure():
    assert ended(bounds(3), seen(0.0290, 1e-3), passes=[8])[0] == INCONCLUSIVE
    assert ended(bounds(3), seen(0.0300, 1e-3), passes=[8])[0] == ADOPT
    assert ended(bounds(3), seen(-0.0300, 1e-3), passes=[8])[0] == INCONCLUSIVE  # -2.96 %
    assert ended(bounds(3), seen(-0.0305, 1e-3), passes=[8])[0] == REJECT


def test_no_effect_needs_the_whole_interval_within_the_least_effects():
    half_width = 1.96 * 0.01
    limit = math.log1p(0.03)
    for sign in (1, -1):
        edge = (limit if sign > 0 else -math.log1p(-0.03)) - half_width
        level = min(0.025, levels([8], 8, SPENT_SHARE * 0.05, sides=1)[0])
        assert level == 0.025
        assert ended(bounds(3), seen(sign * (edge - 1e-4), 0.01), passes=[8])[0] == NO_EFFECT
        assert ended(bounds(3), seen(sign * (edge + 1e-4), 0.01), passes=[8])[0] == INCONCLUSIVE


def test_an_early_no_effect_pays_for_its_look():
    level = levels([2], 8, SPENT_SHARE * 0.05, sides=1)[0]
    edge = math.log1p(0.03) + reference.norm.ppf(level) * 0.005
    assert level < 0.025
    assert ended(bounds(3), seen(edge - 1e-5, 0.005))[0] == NO_EFFECT
    assert ended(bounds(3), seen(edge + 1e-5, 0.005))[0] == INCONCLUSIVE


def test_without_a_least_effect_nothing_is_called_no_effect():
    assert ended(bounds(0), *(seen(0.0, 1e-9) for _ in DONE))[0] == INCONCLUSIVE


def test_the_first_decision_stands():
    looks = [seen(0.0), seen(9.0), seen(-9.0), seen(0.0)]
    assert ended(bounds(), *looks) == (ADOPT, 1, False)


def test_where_nothing_is_decided_the_last_look_is_told():
    assert ended(bounds(), *(seen(2.0) for _ in DONE)) == (INCONCLUSIVE, 6, False)


def test_a_lever_that_further_passes_cannot_settle_leaves():
    """The estimate lies on the least effect but one: far too surely to be adopted, far too near for no-effect."""
    label, look, hopeless = ended(bounds(3), *(seen(0.0285, 0.0012 * math.sqrt(8 / done)) for done in DONE))
    assert (label, hopeless) == (INCONCLUSIVE, True)
    assert look < 6


def test_nobody_is_hopeless_at_the_last_pass():
    assert ended(bounds(3), seen(0.0285, 0.0012), passes=[8]) == (INCONCLUSIVE, 0, False)


def test_a_wide_open_question_is_not_hopeless():
    assert not ended(bounds(3), seen(0.0, 0.02))[2]
    assert not ended(bounds(3), seen(0.03, 0.02))[2]


@calm
@given(st.lists(st.floats(-6, 6), min_size=7, max_size=7), st.sampled_from([0, 3, 50]), st.sampled_from([1.0, 0.01]))
def test_where_less_is_better_adopt_and_reject_change_places_and_nothing_else_does(ratios, least, scale):
    looks = [seen(scale * ratio, scale) for ratio in ratios]
    other = {ADOPT: REJECT, REJECT: ADOPT}
    label, look, hopeless = ended(bounds(least), *looks)
    assert ended(bounds(least, better=-1), *looks) == (other.get(label, label), look, hopeless)


@calm
@given(st.lists(st.floats(-6, 6), min_size=7, max_size=7), st.integers(1, 6), st.sampled_from([0, 3]))
def test_a_decision_taken_is_never_taken_back(ratios, count, least):
    looks = [seen(0.01 * ratio, 0.01) for ratio in ratios]
    label, look, hopeless = ended(bounds(least), *looks[:count])
    if label != INCONCLUSIVE or hopeless:
        assert ended(bounds(least), *looks) == (label, look, hopeless)


def test_campaigns_side_by_side_are_judged_as_if_alone():
    random = np.random.default_rng(2)
    looks = [seen(random.normal(0.01, 0.02, 300), 0.01) for _ in DONE]
    together = ending(DONE, looks, bounds(3))
    assert set(together.label) == {0, 1, 2, 3}
    for number in range(300):
        alone = ended(bounds(3), *(seen(look.log_ratio[number], 0.01) for look in looks))
        assert alone == (LABELS[together.label[number]], together.look[number], together.hopeless[number])


def test_more_comparisons_ask_for_more():
    level = levels([8], 8, SPENT_SHARE * 0.05)[0]
    z = -reference.norm.ppf(level / 2) + 0.05
    assert ended(bounds(), seen(z), passes=[8])[0] == ADOPT
    assert ended(bounds(), seen(z), passes=[8], comparisons=3)[0] == INCONCLUSIVE


@pytest.mark.parametrize(("log_ratio", "label"), [(0.2, ADOPT), (-0.2, REJECT), (0.0, NO_EFFECT)])
def test_launches_without_any_spread_are_judged_by_their_effect(log_ratio, label):
    assert ended(bounds(3), seen(log_ratio, 0.0))[0] == label


def test_without_spread_effect_or_least_effect_nothing_is_known():
    label, _, _ = ended(bounds(0), seen(0.0, 0.0), passes=[8])
    assert label == INCONCLUSIVE
