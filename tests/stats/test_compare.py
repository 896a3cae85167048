"""An effect must be exact without noise, and its interval must keep its promise with noise."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as reference

from lab.stats import compare

calm = settings(deadline=None, max_examples=50)  # a busy machine is no defect
log_effects = st.floats(-0.7, 0.7)
slopes = st.floats(-0.5, 0.5)
gaps = st.lists(st.floats(0.1, 100.0), min_size=30, max_size=30)


def campaign(levers: list[str], passes: int, spacing: list[float] | float = 60.0) -> tuple[pd.DataFrame, np.ndarray]:
    """Launches of a campaign without values, and their start as a fraction of the run."""
    arms, numbers = ["control"], [0]
    for number in range(1, passes + 1):
        arms += (levers if number % 2 else levers[::-1]) + ["control"]
        numbers += [number] * (len(levers) + 1)
    spacings = [spacing] * len(arms) if isinstance(spacing, float) else spacing[: len(arms)]
    started_s = 1000.0 + np.cumsum(spacings)
    frame = pd.DataFrame({"pass": numbers, "order": range(len(arms)), "started_s": started_s, "arm": arms})
    return frame, (started_s - started_s[0]) / (started_s[-1] - started_s[0])


def with_values(frame: pd.DataFrame, log_value: np.ndarray) -> pd.DataFrame:
    return frame.assign(value=np.exp(log_value))


def truth(frame: pd.DataFrame, effects: dict[str, float]) -> np.ndarray:
    return np.array([effects.get(arm, 0.0) for arm in frame["arm"]])


@calm
@given(log_effects, log_effects, slopes, gaps, st.integers(1, 6))
def test_the_effect_is_exact_under_any_linear_drift(lever, other, slope, spacing, passes):
    frame, position = campaign(["lever", "other"], passes, spacing)
    log_value = 3 + truth(frame, {"lever": lever, "other": other}) + slope * position
    effect = compare(with_values(frame, log_value), "control", "lever")
    assert effect.effect_pct == pytest.approx(100 * math.expm1(lever), abs=1e-6)
    assert effect.drift_pct == pytest.approx(100 * math.expm1(slope), abs=1e-6)
    assert effect.launches == 2 * passes + 1


@calm
@given(
    log_effects,
    st.lists(st.floats(-0.3, 0.3), min_size=4, max_size=4),
    st.lists(st.floats(0.1, 100.0), min_size=33, max_size=33),
)
def test_with_many_passes_the_effect_is_exact_under_drift_that_bends_at_controls(lever, levels, spacing):
    frame, position = campaign(["lever"], 16, spacing)
    knots = position[frame["arm"] == "control"][
        [0, 5, 11, 16]
    ]  # 31 launches beyond two arms: four knots, spread evenly
    log_value = truth(frame, {"lever": lever}) + np.interp(position, knots, levels)
    effect = compare(with_values(frame, log_value), "control", "lever")
    assert effect.effect_pct == pytest.approx(100 * math.expm1(lever), abs=1e-6)
    assert effect.residual_cv_pct == pytest.approx(0, abs=1e-6)


def test_a_small_campaign_pays_for_a_bend_with_a_wider_interval_not_with_a_wrong_effect():
    frame, position = campaign(["lever"], 7)
    bent = truth(frame, {"lever": 0.05}) + 0.1 * np.abs(position - 0.5)
    straight = truth(frame, {"lever": 0.05}) + 0.1 * position
    effects = [compare(with_values(frame, log_value), "control", "lever") for log_value in (bent, straight)]
    widths = [effect.ci_high_pct - effect.ci_low_pct for effect in effects]
    assert effects[0].ci_low_pct < 100 * math.expm1(0.05) < effects[0].ci_high_pct
    assert widths[0] > 1 > 1e-6 > widths[1]


@calm
@given(log_effects, slopes, gaps, st.data())
def test_missing_launches_leave_the_effect_exact(lever, slope, spacing, data):
    frame, position = campaign(["lever", "other"], 4, spacing)
    launches = with_values(frame, truth(frame, {"lever": lever, "other": 0.1}) + slope * position)
    lost = data.draw(st.sets(st.sampled_from(range(len(frame))), max_size=6))
    left = launches.drop(index=sorted(lost))
    arms = list(left["arm"])
    effect = compare(left, "control", "lever")
    if "lever" in arms and arms.count("control") >= 2:
        assert effect.effect_pct == pytest.approx(100 * math.expm1(lever), abs=1e-5)
    assert effect.launches == arms.count("control") + arms.count("lever")


noise = st.lists(st.floats(-0.1, 0.1), min_size=30, max_size=30)


@calm
@given(noise, st.floats(1e-3, 1e3), st.floats(-1e4, 1e4), st.floats(0.1, 10), st.randoms())
def test_units_clock_origin_and_row_order_do_not_matter(noise, scale, origin, seconds, random):
    frame, _ = campaign(["lever", "other"], 4)
    launches = with_values(frame, truth(frame, {"lever": 0.05}) + np.array(noise[: len(frame)]))
    rows = list(range(len(frame)))
    random.shuffle(rows)
    moved = launches.assign(value=launches["value"] * scale, started_s=launches["started_s"] * seconds + origin).iloc[
        rows
    ]
    plain, other = (dataclasses.asdict(compare(frame, "control", "lever")) for frame in (launches, moved))
    assert other == {name: pytest.approx(value, rel=1e-6, abs=1e-6) for name, value in plain.items()}


@calm
@given(noise)
def test_swapping_control_and_treatment_gives_the_reciprocal(noise):
    frame, _ = campaign(["lever"], 2)
    launches = with_values(frame, np.array(noise[: len(frame)]))
    there, back = compare(launches, "control", "lever"), compare(launches, "lever", "control")
    assert (1 + there.effect_pct / 100) * (1 + back.effect_pct / 100) == pytest.approx(1)
    assert (1 + there.ci_low_pct / 100) * (1 + back.ci_high_pct / 100) == pytest.approx(1)
    assert there.p_value == pytest.approx(back.p_value, abs=1e-9)


def test_without_drift_terms_it_is_the_pooled_t_test():
    values = [10.0, 11.0, 12.5, 12.0, 13.0]
    launches = pd.DataFrame(
        {"order": range(5), "started_s": range(5), "arm": ["control", *["lever"] * 4], "value": values}
    )
    effect = compare(launches, "control", "lever")
    logs = np.log(values)
    spread = np.std(logs[1:], ddof=1)
    expected = logs[1:].mean() - logs[0]
    half_width = reference.t.ppf(0.975, 3) * spread * math.sqrt(1 + 1 / 4)
    assert effect.effect_pct == pytest.approx(100 * math.expm1(expected))
    assert effect.ci_low_pct == pytest.approx(100 * math.expm1(expected - half_width))
    assert effect.ci_high_pct == pytest.approx(100 * math.expm1(expected + half_width))
    assert effect.residual_cv_pct == pytest.approx(100 * math.sqrt(math.expm1(spread**2)))
    assert effect.df == 3
    assert effect.drift_pct is None


def test_a_block_of_four_is_worked_by_hand():
    logs = np.array([0.00, 0.11, 0.09, 0.02])  # control, treatment, treatment, control, evenly spaced
    frame = pd.DataFrame({"order": range(4), "started_s": [0, 1, 2, 3], "arm": ["c", "t", "t", "c"]})
    effect = compare(with_values(frame, logs), "c", "t")
    # Balanced in time, so the contrast is the plain difference of means, 0.10 - 0.01. The line's slope is
    # sum(x y) / sum(x x) with x = -1.5, -.5, .5, 1.5: (0.03 - 0.01) / 5 = 0.004 per launch. The residuals are
    # the deviations within arms, -.01, .01, -.01, .01, less 0.004 x; their squares sum to 3.2e-4 at df 1.
    assert effect.effect_pct == pytest.approx(100 * math.expm1(0.09))
    assert effect.drift_pct == pytest.approx(100 * math.expm1(0.012))
    assert effect.df == 1
    half_width = reference.t.ppf(0.975, 1) * math.sqrt(3.2e-4 * (1 / 2 + 1 / 2))
    assert effect.ci_high_pct == pytest.approx(100 * math.expm1(0.09 + half_width))


@pytest.mark.parametrize(
    ("levers", "passes", "df"),
    [
        (1, 1, 0),  # screening: control, treatment, control; the line takes the last degree of freedom
        (1, 2, 2),  # 5 launches, 2 arms, a line
        (1, 3, 4),  # 7 launches, 2 arms, a line
        (1, 8, 14),  # 17 launches, 2 arms, a line: 15 beyond the arms are not yet twice 8
        (1, 9, 15),  # 19 launches, 2 arms, 17 beyond them: a line that bends once
        (1, 12, 21),  # 25 launches, 2 arms, bends once
        (1, 13, 22),  # 27 launches, 2 arms, 25 beyond them: bends twice
        (3, 1, 0),
        (3, 2, 4),  # 9 launches, 4 arms, a line
        (3, 3, 8),  # 13 launches, 4 arms, a line
        (3, 5, 15),  # 21 launches, 4 arms, 17 beyond them: bends once
        (6, 2, 7),  # 15 launches, 7 arms, a line
        (6, 8, 44),  # 57 launches, 7 arms, 50 beyond them: bends five times
    ],
)
def test_degrees_of_freedom_follow_from_counts_alone(levers, passes, df):
    frame, _ = campaign([f"lever{number}" for number in range(levers)], passes)
    assert compare(frame.assign(value=1.0), "control", "lever0").df == df


def test_a_screening_is_an_estimate_without_interval():
    frame, _ = campaign(["lever"], 1)
    effect = compare(frame.assign(value=[100.0, 110.0, 102.0]), "control", "lever")
    assert effect.effect_pct == pytest.approx(100 * (110 / math.sqrt(100 * 102) - 1))
    assert (effect.ci_low_pct, effect.ci_high_pct, effect.p_value, effect.residual_cv_pct) == (None,) * 4
    assert effect.df == 0


@pytest.mark.parametrize("absent", ["control", "lever"])
def test_an_absent_arm_gives_no_effect_instead_of_a_made_up_one(absent):
    frame, _ = campaign(["lever", "other"], 2)
    launches = frame.assign(value=1.0)[frame["arm"] != absent]
    effect = dataclasses.asdict(compare(launches, "control", "lever"))
    assert effect.pop("launches") == (2 if absent == "control" else 3)
    assert set(effect.values()) == {None}


def test_no_launches_at_all_give_no_effect():
    frame, _ = campaign(["lever"], 1)
    assert compare(frame.assign(value=1.0).iloc[:0], "control", "lever").launches == 0


def test_falling_drift_is_negative():
    frame, position = campaign(["lever"], 2)
    effect = compare(with_values(frame, -0.1 * position), "control", "lever")
    assert effect.drift_pct == pytest.approx(100 * math.expm1(-0.1))


@pytest.mark.parametrize(
    "started_s",
    [
        pytest.param([1.0, None, 9.0, 10.0, 11.0, 12.0, 13.0], id="one start unknown"),
        pytest.param([math.nan] * 7, id="no start known"),
        pytest.param([5.0] * 7, id="a clock that stands still"),
        pytest.param([900.0, 960.0, 970.0, 3.0, 4.0, 15.0, 16.0], id="a reboot in between"),
    ],
)
def test_order_is_the_axis_where_the_clock_is_no_use(started_s):
    frame, _ = campaign(["lever"], 3)
    launches = with_values(frame, truth(frame, {"lever": 0.2}) + 0.1 * np.linspace(0, 1, len(frame)))
    effect = compare(launches.assign(started_s=started_s), "control", "lever")
    assert effect.effect_pct == pytest.approx(100 * math.expm1(0.2))
    assert effect.drift_pct == pytest.approx(100 * math.expm1(0.1))


def test_an_interval_without_end_stays_finite():
    frame, _ = campaign(["lever"], 2)
    effect = compare(frame.assign(value=[1.0, 9.0, 1.5, 2.0, 8.0]), "control", "lever", alpha=1e-12)
    assert math.isfinite(effect.ci_high_pct)
    assert effect.ci_low_pct == -100


def test_equal_values_have_no_effect_and_p_one():
    frame, _ = campaign(["lever"], 3)
    effect = compare(frame.assign(value=1.0), "control", "lever")
    assert (effect.effect_pct, effect.p_value, effect.residual_cv_pct) == (0, 1, 0)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), None])
def test_a_value_that_cannot_be_a_rate_is_refused_by_row(value):
    frame, _ = campaign(["lever"], 2)
    values = pd.Series([1.0, 1.0, value, 1.0, 1.0], dtype=object)
    with pytest.raises(ValueError, match="row 2: value is"):
        compare(frame.assign(value=values), "control", "lever")


def test_bad_questions_are_refused():
    frame, _ = campaign(["lever"], 2)
    launches = frame.assign(value=1.0)
    with pytest.raises(ValueError, match="both 'lever'"):
        compare(launches, "lever", "lever")
    with pytest.raises(ValueError, match="alpha is 95"):
        compare(launches, "control", "lever", alpha=95)
    with pytest.raises(ValueError, match="lack the column 'value'"):
        compare(frame, "control", "lever")


CAMPAIGNS = 400


@pytest.mark.parametrize(
    ("levers", "passes", "slope", "lost"),
    [
        (1, 2, 0.0, []),
        (1, 3, 0.2, []),
        (1, 8, -0.1, []),
        (3, 2, 0.2, []),
        (3, 4, 0.1, [2, 4, 9]),
    ],
)
def test_the_interval_covers_the_truth_as_often_as_it_says(levers, passes, slope, lost):
    random = np.random.default_rng(20_000 + 100 * levers + passes)
    names = [f"lever{number}" for number in range(levers)]
    spacing = list(random.uniform(20, 200, 40))
    frame, position = campaign(names, passes, spacing)
    mean = truth(frame, {name: 0.05 * number for number, name in enumerate(names, 1)}) + slope * position
    covered = agreed = 0
    for _ in range(CAMPAIGNS):
        values = np.exp(mean + random.normal(0, 0.03, len(frame)))
        effect = compare(frame.assign(value=values).drop(index=lost), "control", "lever0")
        covered += effect.ci_low_pct <= 100 * math.expm1(0.05) <= effect.ci_high_pct
        agreed += (effect.p_value < 0.05) == (effect.ci_low_pct > 0 or effect.ci_high_pct < 0)
    assert agreed == CAMPAIGNS, "p and the interval disagree"
    # A pooled spread that should not have been pooled costs a percent. Sharper: `test_spread`.
    low, high = reference.binom.ppf([0.0005, 0.9995], CAMPAIGNS, [0.935, 0.955])
    assert low <= covered <= high


def test_a_treatment_that_scatters_keeps_its_spread_to_itself():
    """The t interval of Welch, in a campaign without drift terms to fit."""
    control, lever = [100.0], [100.0, 180.0, 60.0, 130.0]
    others = [100.0, 100.4, 99.8, 100.1, 99.9, 100.2]
    arms = ["control", *["lever"] * 4, *["other"] * 6]
    frame = pd.DataFrame({"order": range(11), "started_s": range(11), "arm": arms, "value": control + lever + others})
    effect = compare(frame, "control", "lever")
    mine, rest = np.var(np.log(lever), ddof=1) / 4, np.var(np.log(others), ddof=1)
    df = (mine + rest) ** 2 / (mine**2 / 3 + rest**2 / 5)
    expected = np.mean(np.log(lever)) - np.log(100)
    assert effect.df == pytest.approx(df)
    half_width = reference.t.ppf(0.975, df) * math.sqrt(mine + rest)
    assert effect.ci_high_pct == pytest.approx(100 * math.expm1(expected + half_width))


def test_arms_that_agree_share_their_spread():
    frame, _ = campaign(["lever", "other"], 4)
    values = np.exp(np.random.default_rng(3).normal(0, 0.02, len(frame)))
    effect = compare(frame.assign(value=values), "control", "lever")
    assert effect.df == 9  # 13 launches, 3 arms, a line


@calm
@given(noise, st.integers(2, 5))
def test_p_and_interval_tell_the_same_story(noise, passes):
    frame, _ = campaign(["lever"], passes)
    launches = with_values(frame, np.array(noise[: len(frame)]))
    if launches["value"].nunique() < 4:
        return
    effect = compare(launches, "control", "lever", alpha=0.1)
    assert effect.ci_low_pct <= effect.effect_pct <= effect.ci_high_pct
    assert (effect.p_value < 0.1) == (effect.ci_low_pct > 0 or effect.ci_high_pct < 0)
