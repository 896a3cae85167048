"""Evidence of several launches: read twice, drifting, without a null, or the best of many."""

from __future__ import annotations

from typing import Any

import pytest

from lab.audit.base import INVALID, WARNING, Code, Context
from lab.audit.repeats import no_null, not_counterbalanced, order_drift, repeat_not_measured, winners_curse
from lab.audit.thresholds_comparison import (
    FRESH_LAUNCHES,
    NULL_CONTROLS,
    ORDER_DRIFT_LAUNCHES,
    ORDER_DRIFT_SHARE,
    SEARCHED_CANDIDATES,
)
from lab.records import SWEEP, Trial
from tests.audit.two_arms import control_trial, treatment_trial

TABLE = "trials/chat-c4/requests.parquet"


def later(changes: dict[str, Any] | None = None, **launch: Any) -> Trial:
    """A second launch of the treatment's arm."""
    window = {"window.opened_s": 1060.0, "window.opened_at": "2026-11-30T20:47:00.000Z"}
    return treatment_trial({**window, **(changes or {})}, **{"launch": 3, "order": 3, **launch})


def test_a_launch_of_its_own_is_a_repeat() -> None:
    files = [{"files": {TABLE: digest}} for digest in ("a", "b")]
    context = Context(repeats=(treatment_trial(**files[0]),), control=control_trial())
    assert repeat_not_measured(later(**files[1]), context) is None


@pytest.mark.parametrize(
    ("trial", "same"),
    [
        (later(files={TABLE: "a"}), "request table"),
        (later(launch=1), "launch number"),
        (
            later({"window.opened_s": 1020.0, "window.opened_at": "2026-11-30T20:46:00.000Z"}),
            "window opening",
        ),
    ],
)
def test_a_result_read_twice_is_invalid(trial: Trial, same: str) -> None:
    code = repeat_not_measured(trial, Context(repeats=(treatment_trial(files={TABLE: "a"}),)))
    assert code is not None and (code.code, code.severity) == ("repeat-not-measured", INVALID)
    assert code.text == f"the same {same} as 001-mtp/chat-c4: one measurement counted twice"


def test_the_controls_result_under_another_name_is_invalid() -> None:
    control = control_trial(files={TABLE: "a"})
    assert repeat_not_measured(treatment_trial(files={TABLE: "a"}), Context(control=control)) is not None


def test_a_clock_that_started_again_is_another_measurement() -> None:
    again = later({"window.opened_s": 1020.0})
    assert repeat_not_measured(again, Context(repeats=(treatment_trial(),))) is None


def drifting(values: list[float]) -> Code | None:
    trials = [
        treatment_trial({"metrics.output_tok_s": value}, launch=order, order=order)
        for order, value in enumerate(values)
    ]
    return order_drift(trials[-1], Context(repeats=tuple(trials[:-1])))


def test_an_arm_that_slows_by_each_repeat_is_told() -> None:
    code = drifting([100.0, 97.0, 94.0, 91.0])
    assert code is not None and (code.code, code.severity) == ("order-drift", WARNING)
    assert code.text == "the arm's own launches drift: first half 98.5 tok/s, second 92.5 (-6.1%)"


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("over", "fires"), [(0.001, True), (-0.001, False)])
def test_the_drift_limit_is_kept_from_both_sides(sign: int, over: float, fires: bool) -> None:
    second = 100.0 * (1 + sign * (ORDER_DRIFT_SHARE + over))
    assert (drifting([100.0, 100.0, second, second]) is not None) == fires


def test_too_few_launches_have_no_halves() -> None:
    assert drifting([100.0] + [50.0] * (ORDER_DRIFT_LAUNCHES - 2)) is None
    assert drifting([100.0] * 2 + [50.0] * (ORDER_DRIFT_LAUNCHES - 2)) is not None


@pytest.mark.parametrize(
    ("treatments", "controls", "first"),
    [([2, 3], [0, 1], "controls"), ([0, 1], [2, 3], "treatments")],
)
def test_one_arm_after_the_other_is_no_fair_order(treatments: list[int], controls: list[int], first: str) -> None:
    code = not_counterbalanced(treatments, controls)
    assert code is not None and (code.code, code.severity) == ("order-drift", WARNING)
    assert f"all {first} came first" in code.text


@pytest.mark.parametrize(
    ("treatments", "controls"), [([1, 2], [0, 3]), ([1, 3], [0, 2]), ([1], [0]), ([2], [0, 1]), ([], []), ([1, 2], [0])]
)
def test_alternating_orders_and_a_single_launch_are_silent(treatments: list[int], controls: list[int]) -> None:
    assert not_counterbalanced(treatments, controls) is None


def test_two_controls_show_no_noise() -> None:
    code = no_null(treatment_trial(), Context(controls=NULL_CONTROLS - 1))
    assert code is not None and (code.code, code.severity) == ("no-null", WARNING)
    assert code.text.startswith("no A/A floor is known and only 2 valid control launches show")


@pytest.mark.parametrize(
    ("trial", "context"),
    [
        (treatment_trial(), Context(controls=NULL_CONTROLS)),
        (treatment_trial(), Context(controls=1, floor=0.8)),
        (treatment_trial(), Context()),
        (treatment_trial(), Context(controls=0)),
        (control_trial(), Context(controls=1)),
        (treatment_trial({"purpose": SWEEP}), Context(controls=1)),
    ],
)
def test_a_known_noise_and_what_is_not_compared_are_silent(trial: Trial, context: Context) -> None:
    assert no_null(trial, context) is None


def test_the_best_of_many_needs_fresh_launches() -> None:
    many = SEARCHED_CANDIDATES + 1
    code = winners_curse(treatment_trial(), Context(candidates=many, fresh=FRESH_LAUNCHES - 1))
    assert code is not None and (code.code, code.severity) == ("winners-curse", WARNING)
    assert winners_curse(treatment_trial(), Context(candidates=many, fresh=FRESH_LAUNCHES)) is None
    assert winners_curse(treatment_trial(), Context(candidates=SEARCHED_CANDIDATES, fresh=0)) is None
