"""A calm control must not lend its calm to a treatment that scatters, and arms that agree must not be held apart."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as reference

from lab.stats.design import Design, design
from lab.stats.spread import CAUTION, CAUTION_BESIDE_MANY, DISAGREE_LEVEL, MANY, Estimate, estimate

calm = settings(deadline=None, max_examples=40)
CAMPAIGNS = 10_000
scales = st.floats(-2, 2).map(lambda power: 10**power)


def still(**launches: int) -> Design:
    """So many launches of each arm on a machine that does not drift."""
    arms = np.array([arm for arm, count in launches.items() for _ in range(count)], dtype=object)
    return design(arms, np.zeros(len(arms)), "control", "lever")


def passes_of(levers: list[str], passes: int) -> tuple[Design, np.ndarray]:
    arms = ["control"]
    for number in range(1, passes + 1):
        arms += (levers if number % 2 else levers[::-1]) + ["control"]
    array = np.array(arms, dtype=object)
    return design(array, np.linspace(0, 1, len(arms)), "control", levers[0]), array


def drawn(seed: int, *scaled: tuple[int, float]) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.normal(0, scale, count) for count, scale in scaled]


def cautious_df(mine: float, rest: float, own_df: float, rest_df: float) -> float:
    """The least Welch degrees of freedom over every ratio that the F bounds allow, by trying many."""
    level = CAUTION_BESIDE_MANY if rest_df > MANY * own_df + 1e-6 else CAUTION
    low, high = 1 / reference.f.ppf(level, own_df, rest_df), reference.f.ppf(level, rest_df, own_df)
    ratio = mine / rest * np.append(np.geomspace(low, high, 500), 1.0)
    return float(np.min((ratio + 1) ** 2 / (ratio**2 / own_df + 1 / rest_df)))


@calm
@given(st.integers(0, 1000), scales, st.integers(2, 8), st.integers(2, 8))
def test_two_arms_are_students_or_welchs_t_test_as_an_f_test_says(seed, scale, control_count, lever_count):
    control, lever = drawn(seed, (control_count, 1.0), (lever_count, scale))
    found = estimate(still(control=control_count, lever=lever_count), np.concatenate([control, lever]))
    ratio = np.var(lever, ddof=1) / np.var(control, ddof=1)
    spreads = reference.f(lever_count - 1, control_count - 1)
    agree = 2 * min(spreads.cdf(ratio), spreads.sf(ratio)) >= DISAGREE_LEVEL
    test = reference.ttest_ind(lever, control, equal_var=agree)
    assert float(found.df) == pytest.approx(test.df, rel=1e-6)
    assert float(found.log_ratio / found.error) == pytest.approx(test.statistic, rel=1e-6)
    assert float(found.log_ratio) == pytest.approx(lever.mean() - control.mean())


@calm
@given(st.integers(0, 1000), scales, st.integers(2, 8), st.integers(2, 8))
def test_the_error_apart_is_welchs_with_the_fewest_degrees_of_freedom_in_reach(seed, scale, control_count, lever_count):
    control, lever = drawn(seed, (control_count, 1.0), (lever_count, scale))
    found = estimate(still(control=control_count, lever=lever_count), np.concatenate([control, lever]))
    welch = reference.ttest_ind(lever, control, equal_var=False)
    assert float(found.log_ratio / found.error_apart) == pytest.approx(welch.statistic, rel=1e-6)
    mine, rest = np.var(lever, ddof=1) / lever_count, np.var(control, ddof=1) / control_count
    expected = cautious_df(mine, rest, lever_count - 1, control_count - 1)
    assert float(found.df_apart) == pytest.approx(expected, rel=1e-3)
    assert min(control_count, lever_count) - 1 - 1e-9 <= float(found.df_apart) <= welch.df + 1e-9


def test_beside_many_calm_launches_more_caution_is_taken():
    control, lever = drawn(1, (12, 1.0), (4, 1.0))
    found = estimate(still(control=12, lever=4), np.concatenate([control, lever]))
    assert MANY * 3 < 11
    expected = cautious_df(np.var(lever, ddof=1) / 4, np.var(control, ddof=1) / 12, 3, 11)
    assert float(found.df_apart) == pytest.approx(expected, rel=1e-3)


def test_other_arms_help_where_they_scatter_as_the_control_does():
    control, lever, other = drawn(4, (4, 1.0), (4, 30.0), (6, 1.0))
    found = estimate(still(control=4, lever=4, other=6), np.concatenate([control, lever, other]))
    rest = (np.var(control, ddof=1) * 3 + np.var(other, ddof=1) * 5) / 8
    mine = np.var(lever, ddof=1) / 4
    assert float(found.error) == pytest.approx(math.sqrt(mine + rest / 4))
    assert float(found.df) == pytest.approx((mine + rest / 4) ** 2 / (mine**2 / 3 + (rest / 4) ** 2 / 8))


def test_other_arms_are_left_out_where_they_scatter_more_than_the_control():
    control, lever, other = drawn(4, (4, 1.0), (4, 30.0), (6, 300.0))
    found = estimate(still(control=4, lever=4, other=6), np.concatenate([control, lever, other]))
    welch = reference.ttest_ind(lever, control, equal_var=False)
    assert float(found.log_ratio / found.error) == pytest.approx(welch.statistic)
    assert float(found.df) == pytest.approx(welch.df)


def test_arms_that_agree_are_pooled_all_of_them():
    control, lever, other = drawn(9, (4, 1.0), (4, 1.0), (6, 1.0))
    found = estimate(still(control=4, lever=4, other=6), np.concatenate([control, lever, other]))
    pooled = (np.var(control, ddof=1) * 3 + np.var(lever, ddof=1) * 3 + np.var(other, ddof=1) * 5) / 11
    assert float(found.variance) == pytest.approx(pooled)
    assert float(found.error) == pytest.approx(math.sqrt(pooled / 2))
    assert float(found.df) == 11


def test_a_treatment_of_one_launch_borrows_the_spread_of_all():
    control, lever = drawn(2, (6, 1.0), (1, 1.0))
    found = estimate(still(control=6, lever=1), np.concatenate([control, lever]))
    expected = math.sqrt(np.var(control, ddof=1) * (1 + 1 / 6))
    assert (float(found.error), float(found.error_apart)) == (pytest.approx(expected), pytest.approx(expected))
    assert (float(found.df), float(found.df_apart)) == (5, 5)


def test_a_control_of_one_launch_borrows_the_spread_of_all():
    control, lever = drawn(2, (1, 1.0), (6, 1.0))
    found = estimate(still(control=1, lever=6), np.concatenate([control, lever]))
    assert float(found.error) == pytest.approx(math.sqrt(np.var(lever, ddof=1) * (1 + 1 / 6)))
    assert float(found.df) == 5


@pytest.mark.parametrize("calm_arm", ["lever", "control", "both"])
def test_an_arm_without_any_spread_gives_finite_figures(calm_arm):
    control, lever = drawn(6, (4, float(calm_arm == "lever")), (4, float(calm_arm == "control")))
    found = estimate(still(control=4, lever=4), np.concatenate([control, lever]))
    for field in dataclasses.fields(Estimate):
        assert np.isfinite(getattr(found, field.name)), field.name
    assert float(found.df) > 0
    assert float(found.df_apart) > 0


@pytest.mark.parametrize("level", [0.0, 4.6001, -13.7])
def test_launches_that_are_all_alike_differ_by_nothing_and_scatter_by_nothing(level):
    model, arms = passes_of(["lever", "other"], 5)
    found = estimate(model, np.full(len(arms), level))
    assert (float(found.log_ratio), float(found.error), float(found.error_apart)) == (0, 0, 0)


@calm
@given(st.integers(0, 1000), scales, st.floats(-5, 5), st.sampled_from([1, 3]))
def test_units_change_no_degree_of_freedom_and_an_offset_changes_nothing(seed, scale, offset, levers):
    model, arms = passes_of(["lever", "other", "third"][:levers], 4)
    values = np.random.default_rng(seed).normal(0, 1, len(arms))
    plain, moved = estimate(model, values), estimate(model, scale * values + offset)
    for name in ("df", "df_apart"):
        assert float(getattr(moved, name)) == pytest.approx(float(getattr(plain, name)), rel=1e-6)
    for name in ("log_ratio", "error", "error_apart"):
        assert float(getattr(moved, name)) == pytest.approx(scale * float(getattr(plain, name)), rel=1e-6)


def test_many_campaigns_at_once_are_the_same_as_one_by_one():
    model, arms = passes_of(["lever", "other"], 5)
    values = np.random.default_rng(3).normal(0, 1, (50, len(arms))) * np.where(arms == "lever", 3, 1)
    together = estimate(model, values)
    for number, row in enumerate(values):
        alone = estimate(model, row)
        for field in dataclasses.fields(Estimate):
            assert getattr(together, field.name)[number] == pytest.approx(float(getattr(alone, field.name)))


def covered(found: Estimate, error: np.ndarray, df: np.ndarray) -> float:
    """Share of 95 % intervals that hold 0."""
    return float((np.abs(found.log_ratio) <= reference.t.ppf(0.975, df) * error).mean())


@pytest.mark.parametrize("levers", [1, 3])
@pytest.mark.parametrize("passes", [2, 4, 8])
def test_intervals_of_arms_that_scatter_alike_cover_as_often_as_they_say(levers, passes):
    model, arms = passes_of(["lever", "other", "third"][:levers], passes)
    found = estimate(model, np.random.default_rng(passes).normal(0, 1, (CAMPAIGNS, len(arms))))
    assert 0.935 <= covered(found, found.error, found.df) <= 0.965
    assert covered(found, found.error_apart, found.df_apart) >= 0.945


@pytest.mark.parametrize("levers", [1, 3])
@pytest.mark.parametrize("passes", [3, 4, 8])
@pytest.mark.parametrize("scatter", [0.2, 5.0])
def test_cautious_intervals_cover_arms_that_scatter_unlike(levers, passes, scatter):
    model, arms = passes_of(["lever", "other", "third"][:levers], passes)
    noise = np.random.default_rng(passes).normal(0, 1, (CAMPAIGNS, len(arms)))
    found = estimate(model, noise * np.where(arms == "lever", scatter, 1.0))
    assert covered(found, found.error_apart, found.df_apart) >= 0.94
