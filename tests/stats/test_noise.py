"""The noise of identical launches, and what it lets a campaign tell."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from lab.stats import judge
from lab.stats.noise import noise, resolved_pct
from tests.golden import campaigns as sim


def run(passes: int, launch: float, window: float, seed: int) -> tuple[list[dict], list[tuple[float, float]]]:
    random = np.random.default_rng(seed)
    arms = ["control", "again"] * passes + ["control"]
    level = np.exp(random.normal(0, launch, len(arms)))
    one, two = (level * np.exp(random.normal(0, window, len(arms))) for _ in range(2))
    frame = pd.DataFrame({"order": range(len(arms)), "started_s": np.arange(len(arms)) * 60.0, "arm": arms})
    return frame.assign(value=100 * one).to_dict("records"), list(zip(100 * one, 100 * two, strict=True))


def test_the_spreads_between_and_inside_launches_are_told_apart():
    frame, repeats = run(200, 0.03, 0.01, 1)
    found = noise(frame, "control", "again", repeats, 0.05)
    assert found.launch_cv_pct == pytest.approx(100 * np.hypot(0.03, 0.01), rel=0.1)
    assert found.window_cv_pct == pytest.approx(1.0, rel=0.15)
    assert found.launches == 401


def test_without_a_second_window_the_spread_inside_a_launch_is_unknown():
    frame, _ = run(3, 0.03, 0.01, 1)
    assert noise(frame, "control", "again", [], 0.05).window_cv_pct is None


def test_more_passes_tell_smaller_gains():
    frame, repeats = run(6, 0.03, 0.01, 2)
    told = noise(frame, "control", "again", repeats, 0.05).resolved_pct
    assert list(told) == list(range(2, 13))
    assert list(told.values()) == sorted(told.values(), reverse=True)
    assert resolved_pct(2.0, 1, 0.05) is None


@pytest.mark.parametrize("passes", [4, 8])
def test_the_gain_that_is_told_is_adopted_about_four_times_in_five(passes: int):
    gain = np.log1p(resolved_pct(2.0, passes, 0.05) / 100)
    campaign, random = sim.plan(passes=passes), np.random.default_rng(passes)
    arms, rule = np.array(campaign.arms), sim.rule(0.0, passes)
    adopted = 0
    for _ in range(300):
        values = random.normal(0, 0.02, len(arms)) + campaign.of_lever * gain
        columns = {"pass": campaign.passes, "order": range(len(arms)), "started_s": campaign.hours, "arm": arms}
        adopted += judge(pd.DataFrame(columns).assign(value=np.exp(values)), "control", "lever", rule).label == "adopt"
    assert 0.75 <= adopted / 300 <= 0.97


def test_beyond_what_is_simulated_the_gain_falls_with_the_root_of_the_passes():
    assert resolved_pct(2.0, 64, 0.05) == pytest.approx(resolved_pct(2.0, 16, 0.05) / 2, rel=0.02)
    assert resolved_pct(2.0, 17, 0.05) < resolved_pct(2.0, 16, 0.05)
