"""Arms and drift must come apart, whatever the machine does in between, and no launch may count twice."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.stats.design import Design, design, error_per_spread, positions

calm = settings(deadline=None, max_examples=50)
gaps = st.lists(st.floats(0.1, 10.0), min_size=60, max_size=60)
BLOCK = ["control", "lever", "lever", "control"]


def arms_of(levers: int, passes: int) -> np.ndarray:
    names = ["lever", "other", "third"][:levers]
    arms = ["control"]
    for number in range(1, passes + 1):
        arms += (names if number % 2 else names[::-1]) + ["control"]
    return np.array(arms, dtype=object)


def spaced(spacing: list[float], count: int) -> np.ndarray:
    place = np.cumsum(spacing[:count])
    return (place - place[0]) / (place[-1] - place[0])


def of(arms: list[str] | np.ndarray, position: np.ndarray | None = None) -> Design:
    arms = np.array(arms, dtype=object)
    return design(arms, np.linspace(0, 1, len(arms)) if position is None else position, "control", "lever")


@calm
@given(st.integers(1, 3), st.integers(1, 12), gaps)
def test_the_contrast_counts_the_treatment_once_the_control_once_back_and_drift_not_at_all(levers, passes, spacing):
    arms = arms_of(levers, passes)
    position = spaced(spacing, len(arms))
    weights = of(arms, position).weights
    assert weights[arms == "lever"].sum() == pytest.approx(1)
    assert weights[arms == "control"].sum() == pytest.approx(-1)
    for other in ("other", "third"):
        assert weights[arms == other].sum() == pytest.approx(0, abs=1e-9)
    assert weights @ position == pytest.approx(0, abs=1e-9)


@calm
@given(st.integers(1, 3), st.integers(1, 12), gaps)
def test_the_residual_maker_is_a_projection_that_leaves_the_degrees_of_freedom(levers, passes, spacing):
    arms = arms_of(levers, passes)
    model = of(arms, spaced(spacing, len(arms)))
    maker = model.residual_maker
    assert np.allclose(maker, maker.T, atol=1e-9)
    assert np.allclose(maker @ maker, maker, atol=1e-9)
    assert np.trace(maker) == pytest.approx(model.df, abs=1e-8)
    for arm in set(arms):
        assert np.allclose(maker @ (arms == arm), 0, atol=1e-8)


@calm
@given(st.integers(1, 3), st.integers(1, 12), gaps)
def test_the_groups_share_out_launches_residuals_and_variance_without_rest(levers, passes, spacing):
    arms = arms_of(levers, passes)
    model = of(arms, spaced(spacing, len(arms)))
    groups = (model.treatment, model.control, model.others)
    assert sorted(np.concatenate([group.index for group in groups])) == list(range(len(arms)))
    assert sum(group.trace for group in groups) == pytest.approx(model.df, abs=1e-8)
    assert sum(group.weight for group in groups) == pytest.approx(error_per_spread(model) ** 2)
    for group in groups:
        assert 0 <= group.df <= len(group.index)


@pytest.mark.parametrize("levers", [1, 3])
@pytest.mark.parametrize("passes", [2, 8, 12])
def test_estimate_residuals_and_drift_are_those_of_least_squares(levers, passes):
    random = np.random.default_rng(passes)
    arms = arms_of(levers, passes)
    position = spaced(list(random.uniform(0.1, 10, 60)), len(arms))
    values = random.normal(0, 1, len(arms))
    model = of(arms, position)
    names = sorted(set(arms))
    controls = position[arms == "control"]
    count = max(2, 1 + (len(arms) - len(names)) // 8)
    knots = controls[np.linspace(0, len(controls) - 1, count).round().astype(int)]
    hats = [np.maximum(0, position - knot) for knot in knots[1:-1]]
    matrix = np.column_stack([*(arms == name for name in names), position, *hats]).astype(float)
    found, *_ = np.linalg.lstsq(matrix, values, rcond=None)
    assert values @ model.weights == pytest.approx(found[names.index("lever")] - found[names.index("control")])
    assert np.allclose(values @ model.residual_maker, values - matrix @ found)
    assert np.allclose(values @ model.drift_maker, matrix[:, len(names) :] @ found[len(names) :])
    assert model.df == len(arms) - matrix.shape[1]


def test_a_block_of_four_is_worked_by_hand():
    model = of(BLOCK)
    assert list(model.weights) == pytest.approx([-0.5, 0.5, 0.5, -0.5])
    assert error_per_spread(model) == pytest.approx(1)
    # The line is 0, 1/3, 2/3, 1; within arms it is -1/2, -1/6, 1/6, 1/2, whose squares sum to 5/9. It takes 1/4 / (5/9)
    # = 0.45 from each control and 1/36 / (5/9) = 0.05 from each treatment: 2 (1 - 1/2 - 0.45) = 0.1 is left of the two
    # controls, and 0.9 of the treatments.
    assert (model.control.trace, model.treatment.trace) == (pytest.approx(0.1), pytest.approx(0.9))
    assert (model.control.df, model.treatment.df) == (pytest.approx(1), pytest.approx(1))
    assert (model.control.weight, model.treatment.weight) == (pytest.approx(0.5), pytest.approx(0.5))
    assert (model.others.df, model.others.weight, len(model.others.index)) == (0, 0, 0)


def test_an_arm_of_one_launch_says_nothing_about_its_spread():
    model = of(["control", "lever", "control", "other", "control", "other", "control"])
    assert model.treatment.df == 0
    assert model.others.df > 0


@pytest.mark.parametrize(
    "arms",
    [
        pytest.param(["control", "lever", "lever", "lever"], id="one control"),
        pytest.param(["lever", "lever", "control"], id="one control, last"),
    ],
)
def test_without_two_controls_no_drift_is_claimed(arms):
    model = of(arms)
    assert model.drift_maker is None
    assert model.df == len(arms) - 2


def test_controls_that_all_start_at_once_show_no_drift():
    assert of(BLOCK, np.zeros(4)).drift_maker is None


def test_no_noise_is_drawn_from_the_values_when_the_drift_is_chosen():
    """A line below twice eight launches beyond the arms, then a bend for every eight."""
    taken = {passes: 2 * passes + 1 - 2 - of(arms_of(1, passes)).df for passes in range(1, 26)}
    assert taken == {passes: max(1, (2 * passes - 1) // 8) for passes in range(1, 26)}


def test_bends_never_outnumber_the_controls():
    arms = ["control", *["lever", "other"] * 20, "control"]
    assert len(arms) - 3 - of(arms).df == 1


@pytest.mark.parametrize(
    ("started_s", "expected"),
    [
        pytest.param([10.0, 20.0, 50.0], [0, 0.25, 1], id="by time"),
        pytest.param([10.0, math.nan, 50.0], [0, 1 / 3, 1], id="one start unknown"),
        pytest.param([10.0, math.inf, 50.0], [0, 1 / 3, 1], id="one start endless"),
        pytest.param([10.0, 10.0, 50.0], [0, 1 / 3, 1], id="two starts alike"),
        pytest.param([900.0, 3.0, 5.0], [0, 1 / 3, 1], id="a reboot"),
    ],
)
def test_a_place_is_the_time_where_times_rise_and_the_order_elsewhere(started_s, expected):
    assert list(positions(np.array([4.0, 5.0, 7.0]), np.array(started_s))) == pytest.approx(expected)


def test_a_single_launch_has_a_place():
    assert list(positions(np.array([3.0]), np.array([9.0]))) == [0]
