"""Published figures against their bounds: none is impossible, and one constant per stack predicts the rest."""

from __future__ import annotations

import pytest

from tests.golden.published import across_deployments, exceeding, points, within_deployments

ROWS = points()


def test_no_published_figure_is_above_its_hard_bound() -> None:
    assert len(ROWS) == 36
    assert exceeding(ROWS) == []


def test_only_skewed_routing_lifts_a_figure_above_its_nominal_bound() -> None:
    above = [row.id for row in ROWS if row.tok_s > row.bound().bound_tok_s]
    assert above == [34]  # 1.09 with independent tokens
    (row,) = (row for row in ROWS if row.id == 34)
    assert row.tok_s / row.bound(1.2).bound_tok_s == pytest.approx(0.95, abs=0.005)


@pytest.mark.parametrize("by_family", [False, True])
def test_a_fixed_cost_fitted_on_one_stream_predicts_other_batches(by_family: bool) -> None:
    plain, fitted = (within_deployments(ROWS, by_family, fitted=on) for on in (False, True))
    assert len(fitted.errors_pct) == 21
    assert fitted.median_pct <= 12 < plain.median_pct


@pytest.mark.parametrize("by_family", [False, True])
def test_fixed_costs_of_other_stacks_predict_a_stack(by_family: bool) -> None:
    plain, fitted = (across_deployments(ROWS, by_family, fitted=on) for on in (False, True))
    assert len(fitted.errors_pct) == 36
    assert fitted.median_pct <= 30 < plain.median_pct
