"""Scenarios about the evidence of several launches: measured afresh, in a fair order, against a known noise.

Without them a file that is read twice counts as two launches, and a machine that warms up is a lever.
"""

from __future__ import annotations

import shutil
from dataclasses import replace

from lab.audit import FINDING, INVALID, WARNING
from lab.campaign import CONTROL
from lab.records import SEARCH
from lab.runs import Run
from tests.golden.scenario import Scenario
from tests.golden.stage import TREATED, TWO_PASSES, Play

LONG_ANSWERS = {"output_tokens": 64}
"""A busy machine of the tests costs each request the same time, and long ones the smaller part."""
SHORT = {"seconds": 24, "min_steady_seconds": 20}


def _counted_again(run: Run) -> None:
    """Somebody restores a launch from a copy, under the next number."""
    shutil.copytree(run.path / "launches" / f"001-{CONTROL}", run.path / "launches" / f"002-{CONTROL}")


def _kept_elsewhere(run: Run) -> None:
    shutil.copytree(run.path / "launches" / f"001-{CONTROL}", run.path / "copies" / f"001-{CONTROL}")


SLOTS = {"max_running": 48}
STABLE = Play(flags={"noise.launch_drift_pct": 0.5}, treatment=SLOTS, order=TWO_PASSES, workload=LONG_ANSWERS)


def _slower_and_slower(pct: float) -> Play:
    flags = {"dialect": "sglang", "noise.launch_drift_pct": pct}
    return Play(flags=flags, order=(CONTROL,) * 4, workload=LONG_ANSWERS)


def _best_of(candidates: int) -> Play:
    """A search over equal candidates, then one fresh launch of its winner."""
    searched = range(1, candidates + 1)
    order = (CONTROL, *(TREATED for _ in searched), TREATED)
    return Play(
        flags={"dialect": "llamacpp"}, treatment=SLOTS, order=order, roles=dict.fromkeys(searched, SEARCH), window=SHORT
    )


SCENARIOS = [
    Scenario(
        code="repeat-not-measured",
        severity=INVALID,
        fires=Play(flags={"dialect": "llamacpp"}, order=(CONTROL, CONTROL), after=_counted_again),
        # Two launches of one truth and one seed are as alike as measurements get.
        silent=Play(flags={"dialect": "llamacpp"}, order=(CONTROL, CONTROL), after=_kept_elsewhere),
    ),
    Scenario(
        code="order-drift",
        severity=WARNING,
        fires=_slower_and_slower(5.0),
        silent=_slower_and_slower(0.5),
        case="launch by launch",
    ),
    Scenario(
        code="order-drift",
        severity=WARNING,
        fires=Play(treatment=SLOTS, order=(CONTROL, CONTROL, TREATED, TREATED), window=SHORT),
        silent=Play(treatment=SLOTS, order=(CONTROL, TREATED, TREATED, CONTROL), window=SHORT),
        case="one arm first",
    ),
    Scenario(
        code="no-null",
        severity=WARNING,
        fires=Play(flags=STABLE.flags, treatment=SLOTS, workload=LONG_ANSWERS),
        silent=STABLE,
    ),
    Scenario(
        code="drift",
        severity=FINDING,
        fires=replace(STABLE, flags={"noise.launch_drift_pct": 4.0}),
        silent=STABLE,
    ),
    Scenario(
        code="winners-curse",
        severity=WARNING,
        fires=_best_of(4),
        silent=_best_of(3),
    ),
]
