"""Measurement against bound and prediction: the impossible is refused, the unexplained is told."""

from __future__ import annotations

from typing import Any

import pytest

from lab.audit.base import INVALID, WARNING, Code, Context
from lab.audit.theory import (
    acceptance_not_speedup,
    over_roofline,
    predicted_not_measured,
    prediction_missed,
    sign_missed,
)
from lab.audit.thresholds_comparison import ACCEPTANCE_HIGH, MODEL_ERROR_RATIO, OVER_HARD_BOUND, SPEEDUP_KEPT
from lab.stats.compare import Effect
from tests.audit.two_arms import control_trial, treatment_trial


def roofed(tok_s: float | None, nominal: float | None = 100.0, hard: float | None = 120.0) -> Code | None:
    trial = treatment_trial({"metrics.output_tok_s": tok_s})
    return over_roofline(trial, Context(bound_tok_s=nominal, hard_bound_tok_s=hard))


@pytest.mark.parametrize(
    ("tok_s", "severity"),
    [
        (99.9, None),
        (100.1, WARNING),
        (120 * OVER_HARD_BOUND - 0.1, WARNING),
        (120 * OVER_HARD_BOUND + 0.1, INVALID),
    ],
)
def test_above_the_nominal_bound_is_doubtful_and_above_the_hard_one_impossible(
    tok_s: float, severity: str | None
) -> None:
    code = roofed(tok_s)
    assert (code and code.severity) == severity
    assert code is None or code.code == "over-roofline"


def test_the_ratio_is_told_unclamped() -> None:
    code = roofed(300.0)
    assert code is not None and code.text.startswith(
        "300.0 tok/s is 250% of what memory can feed at this batch: impossible"
    )


@pytest.mark.parametrize(
    ("tok_s", "nominal", "hard", "severity"),
    [(None, 1.0, 1.0, None), (1e6, None, None, None), (1e6, 100.0, None, WARNING)],
)
def test_a_bound_that_is_unknown_refuses_nothing(
    tok_s: float | None, nominal: float | None, hard: float | None, severity: str | None
) -> None:
    code = roofed(tok_s, nominal, hard)
    assert (code and code.severity) == severity


def test_a_predicted_figure_may_not_be_used_and_the_measured_ones_stand() -> None:
    trial = treatment_trial()
    assert predicted_not_measured(trial, Context()) is None
    trial.record["predicted"] = ["ttft_p50_ms", "ttft_p99_ms"]
    code = predicted_not_measured(trial, Context())
    assert code is not None and (code.code, code.severity, code.withdraws) == ("model-error", WARNING, ("ttft_p50_ms",))


def effect(pct: float, half: float | None = 2.0) -> Effect:
    low, high = (None, None) if half is None else (pct - half, pct + half)
    return Effect(pct, low, high, 0.01, 4, 1.0, 0.0, 5)


@pytest.mark.parametrize(
    ("measured", "predicted", "fires"),
    [
        (0.0, 45.0, True),
        (0.0, -45.0, True),
        (0.0, 100 * (MODEL_ERROR_RATIO - 1) - 0.1, False),
        (0.0, 100 * (MODEL_ERROR_RATIO - 1) + 0.1, True),
        (-10.0, 3.0, True),
        (10.0, -3.0, True),
        (10.0, 11.0, False),
        (1.0, -3.5, False),
        (10.0, None, False),
    ],
)
def test_a_prediction_that_misses_by_far_or_by_its_sign_is_told(
    measured: float, predicted: float | None, fires: bool
) -> None:
    code = prediction_missed(effect(measured), predicted)
    assert (code is not None) == fires
    assert code is None or (code.code, code.severity) == ("model-error", WARNING)


def test_without_an_interval_nothing_is_missed() -> None:
    assert prediction_missed(None, 45.0) is None
    assert prediction_missed(effect(0.0, None), 45.0) is None
    assert prediction_missed(effect(0.0, 50.0), 45.0) is None
    assert not sign_missed(None, 45.0) and not sign_missed(effect(-9.0, None), 45.0)


@pytest.mark.parametrize(
    ("measured", "predicted", "missed"),
    [
        (-10.0, 5.0, True),
        (10.0, -5.0, True),
        (10.0, 5.0, False),
        (-1.0, 5.0, False),
        (10.0, 0.0, False),
        (9.0, None, False),
    ],
)
def test_the_expected_sign_is_missed_by_the_whole_interval(
    measured: float, predicted: float | None, missed: bool
) -> None:
    assert sign_missed(effect(measured), predicted) == missed


def speculating(acceptance: float | None, length: float | None, tpot_ms: float, control: Any = None) -> Code | None:
    names = {"metrics.acceptance": acceptance, "metrics.acceptance_length": length, "metrics.tpot_p50_ms": tpot_ms}
    return acceptance_not_speedup(treatment_trial(names), Context(control=control_trial(control)))


def test_drafts_that_cost_what_they_save_are_told() -> None:
    code = speculating(0.85, 3.0, 38.0)
    assert code is not None and (code.code, code.severity) == ("acceptance-not-speedup", WARNING)
    assert code.text == (
        "85% of the drafts are accepted, 3.00 tokens a step, but tokens come only 1.05 times as fast: a step costs "
        "2.85 times the control's"
    )


@pytest.mark.parametrize(
    ("acceptance", "over", "fires"),
    [
        (ACCEPTANCE_HIGH + 0.01, -0.01, True),
        (ACCEPTANCE_HIGH + 0.01, 0.01, False),
        (ACCEPTANCE_HIGH, -0.01, False),
        (None, -0.5, False),
    ],
)
def test_low_acceptance_and_half_of_the_promise_are_silent(acceptance: float | None, over: float, fires: bool) -> None:
    length = 3.0
    assert (speculating(acceptance, length, 40.0 / (SPEEDUP_KEPT * length * (1 + over))) is not None) == fires


def test_speculation_in_both_arms_or_without_a_length_is_not_compared() -> None:
    assert speculating(0.9, 3.0, 40.0, {"metrics.acceptance": 0.5}) is None
    assert speculating(0.9, None, 40.0) is None
    assert acceptance_not_speedup(treatment_trial({"metrics.acceptance": 0.9}), Context()) is None
