"""What is said before each pass: who launches, the time left, and what can still be told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.campaign import CONTROL, Campaign
from lab.outlook import describe, outlook
from lab.plan import NOTEBOOK_SECONDS
from lab.records import CLOSING, OPENING, TREATMENT
from lab.stats.noise import resolved_pct
from tests.builders import RunBuilder, lever_plan, write_campaign

LEVERS = [lever_plan("one"), lever_plan("two")]


def campaign(folder: Path, **changes: Any) -> Campaign:
    return Campaign.load(write_campaign(folder, changes))


def measured(folder: Path, passes: int) -> RunBuilder:
    """Launches of 18 seconds each."""
    build = RunBuilder(folder, LEVERS)
    build.launch(CONTROL, 0, OPENING)
    for number in range(1, passes + 1):
        for name in ("one", "two"):
            build.launch(name, number, TREATMENT)
        build.launch(CONTROL, number, CLOSING)
    return build


def test_without_a_budget_all_passes_are_left(tmp_path: Path) -> None:
    seen = outlook(campaign(tmp_path), LEVERS, 2, 8, [])
    assert (seen.hours_left, seen.passes_left, seen.levers) == (None, 7, ("two", "one"))
    assert "pass 2 of at most 8: control, two, one, control · about " in describe(seen)


def test_the_budget_is_what_the_launches_left_of_it(tmp_path: Path) -> None:
    launches = measured(tmp_path / "run", 1).run.launches()
    spent_s = len(launches) * (18.0 + NOTEBOOK_SECONDS)
    seen = outlook(campaign(tmp_path, budget={"hours": 0.1}), LEVERS, 2, 8, launches)
    assert seen.hours_left == pytest.approx(0.1 - spent_s / 3600)
    assert seen.passes_left == int(seen.hours_left * 3600 // seen.pass_seconds) < 7
    assert f"{seen.passes_left} such passes fit" in describe(seen)


def test_a_spent_budget_leaves_no_pass(tmp_path: Path) -> None:
    launches = measured(tmp_path / "run", 2).run.launches()
    assert outlook(campaign(tmp_path, budget={"hours": 0.01}), LEVERS, 3, 8, launches).passes_left == 0


def test_over_budget_there_is_none(tmp_path: Path) -> None:
    launches = measured(tmp_path / "run", 2).run.launches()
    short = campaign(tmp_path, budget={"hours": 0.01})
    seen = outlook(short, LEVERS, 3, 8, launches, over_budget=True)
    assert (seen.hours_left, seen.passes_left) == (None, 6)


def test_launches_on_record_tell_how_long_a_pass_takes(tmp_path: Path) -> None:
    """18 seconds each, of which the notebook is none; two treatments and one control."""
    launches = measured(tmp_path / "run", 1).run.launches()
    seen = outlook(
        campaign(tmp_path, window={"warmup_seconds": 3, "seconds": 6, "min_steady_seconds": 4}), LEVERS, 2, 8, launches
    )
    window = sum(launches[0].trials[0].record["window"][key] for key in ("warmup_seconds", "seconds"))
    assert seen.pass_seconds == pytest.approx(3 * (9 + (18.0 - window) + NOTEBOOK_SECONDS))


def test_only_passes_that_fit_count_for_what_can_be_told(tmp_path: Path) -> None:
    launches = measured(tmp_path / "run", 1).run.launches()
    free = outlook(campaign(tmp_path / "free"), LEVERS, 2, 8, launches, 2.0)
    short = outlook(campaign(tmp_path / "short", budget={"hours": 0.06}), LEVERS, 2, 8, launches, 2.0)
    assert free.resolved_pct == resolved_pct(2.0, 8, 0.05)
    assert 1 <= short.passes_left < 7
    assert short.resolved_pct == resolved_pct(2.0, 1 + short.passes_left, 0.05) > free.resolved_pct
    assert "launches differ by 2.0 %, gains from " in describe(free)


def test_a_prediction_below_what_can_be_told_is_named(tmp_path: Path) -> None:
    seen = outlook(campaign(tmp_path), LEVERS, 2, 4, [], 3.0, {"one": 0.4, "two": -30.0, "three": None})
    assert dict(seen.too_small) == {"one": 0.4}
    assert describe(seen).endswith("of one only +0.4 % is predicted")


def test_nothing_is_said_of_a_spread_that_nobody_knows(tmp_path: Path) -> None:
    seen = outlook(campaign(tmp_path), LEVERS, 1, 4, [], None, {"one": 0.4})
    assert (seen.resolved_pct, dict(seen.too_small)) == (None, {})
    assert "differ" not in describe(seen)
