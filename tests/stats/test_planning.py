"""Passes asked for must be enough when they are then run, and not many too many."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from lab.stats import Effect, compare, passes_needed


def measured(passes: int, random: np.random.Generator, log_effect: float = 0.0, spread: float = 0.03) -> Effect:
    arms = ["control", "lever"] * passes + ["control"]
    logs = [log_effect * (arm == "lever") + random.normal(0, spread) for arm in arms]
    frame = pd.DataFrame({"order": range(len(arms)), "started_s": range(len(arms)), "arm": arms})
    return compare(frame.assign(value=np.exp(logs)), "control", "lever")


def half_width(effect: Effect) -> float:
    return (effect.ci_high_pct - effect.ci_low_pct) / 2


def test_nothing_more_is_needed_when_the_interval_is_narrow_already():
    effect = Effect(5.0, 4.0, 6.0, 1e-4, 5, 1.0, 0.1, 11)
    assert passes_needed(effect, 1.0 + 1e-9) == 0
    assert passes_needed(effect, 0.5) > 0


def test_narrower_targets_need_more_passes():
    effect = Effect(5.0, 0.0, 10.0, 0.04, 5, 4.0, 0.1, 11)
    needs = [passes_needed(effect, target) for target in (4, 3, 2, 1)]
    assert needs == sorted(needs)
    assert needs[0] < needs[-1]


def test_with_many_degrees_of_freedom_it_is_the_square_root_law():
    effect = Effect(0.0, -4.0, 4.0, 1.0, 10_000, 4.0, 0.1, 201)
    assert passes_needed(effect, 2.0) == 300


def test_the_passes_it_asks_for_are_about_enough():
    random = np.random.default_rng(7)
    more = [passes_needed(measured(6, random), 3.0) for _ in range(200)]
    reached = [half_width(measured(6 + int(np.median(more)), random)) for _ in range(200)]
    assert 0.5 * 3.0 < np.median(reached) < 1.2 * 3.0


def test_without_an_interval_there_is_no_plan():
    assert passes_needed(Effect(5.0, None, None, None, 0, None, 1.0, 3), 1.0) is None
    assert passes_needed(Effect(None, None, None, None, None, None, None, 1), 1.0) is None
    assert passes_needed(Effect(0.0, -99.0, 1e9, 0.9, 1, 50.0, None, 4), 1e-6) is None


@pytest.mark.parametrize("target", [0, -1, float("nan")])
def test_a_target_must_be_positive(target):
    with pytest.raises(ValueError, match="not positive"):
        passes_needed(Effect(0.0, -1.0, 1.0, 1.0, 4, 1.0, None, 7), target)
