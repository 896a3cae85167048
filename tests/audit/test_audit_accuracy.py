"""Wrong answers refuse the lever; too few answers, or other questions, prove nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.audit.accuracy import accuracy_regression, accuracy_underpowered
from lab.audit.base import INVALID, WARNING, Context
from lab.records import Launch
from tests.builders import launch_record


def record(right: int, items: int = 200, protocol: str = "p") -> dict[str, Any]:
    """The first `right` of the items are right."""
    ids = [f"item{number}" for number in range(items)]
    return {"items": items, "right": ids[:right], "wrong": ids[right:], "unparsed": 0, "protocol": protocol}


def launch(accuracy: dict[str, Any] | None) -> Launch:
    return Launch(Path("003-mtp"), launch_record(accuracy=accuracy))


def context(control: dict[str, Any] | None, max_drop_pct: float | None = 5.0) -> Context:
    return Context(control_accuracy=control, max_drop_pct=max_drop_pct)


def test_a_treatment_that_corrupts_answers_is_a_regression() -> None:
    code = accuracy_regression(launch(record(174)), context(record(190)))
    assert code is not None and (code.code, code.severity) == ("accuracy-regression", INVALID)
    assert code.text.startswith("of 200 answers 16 became wrong and 0 right: a drop of 8.0 points")
    assert code.figures["lost"] == 16


@pytest.mark.parametrize("right", [190, 184, 181])
def test_a_drop_within_the_allowance_is_none(right: int) -> None:
    assert accuracy_regression(launch(record(right)), context(record(190))) is None


def test_too_few_items_cannot_show_the_allowed_drop() -> None:
    code = accuracy_underpowered(launch(record(19, 20)), context(record(19, 20)))
    assert code is not None and (code.code, code.severity) == ("accuracy-underpowered", WARNING)
    assert code.text.startswith("not tested at this resolution: 20 items")
    assert accuracy_underpowered(launch(record(190)), context(record(190))) is None


def test_a_control_that_is_hardly_ever_right_shows_no_drop_either() -> None:
    assert accuracy_underpowered(launch(record(8)), context(record(8))) is not None
    assert accuracy_underpowered(launch(record(12)), context(record(12))) is None


def test_a_regression_is_not_called_underpowered_too() -> None:
    assert accuracy_underpowered(launch(record(2, 20)), context(record(20, 20))) is None


def test_other_questions_are_no_comparison() -> None:
    mine = launch(record(100, protocol="q"))
    code = accuracy_underpowered(mine, context(record(190)))
    assert code is not None and code.severity == INVALID
    assert "asked the two arms differently" in code.text
    assert accuracy_regression(mine, context(record(190))) is None


@pytest.mark.parametrize(
    ("mine", "theirs", "limit"), [(None, record(190), 5.0), (record(100), None, 5.0), (record(100), record(190), None)]
)
def test_without_both_records_and_a_limit_there_is_no_gate(mine: Any, theirs: Any, limit: float | None) -> None:
    assert accuracy_regression(launch(mine), context(theirs, limit)) is None
    assert accuracy_underpowered(launch(mine), context(theirs, limit)) is None
