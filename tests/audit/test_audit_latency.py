"""Latencies that may not be used are withdrawn, and never take the throughput with them."""

from __future__ import annotations

from typing import Any

import pytest

from lab.audit.base import WARNING, Context
from lab.audit.latency import (
    E2E,
    LATENCIES,
    TPOT,
    TTFT,
    false_plateau,
    first_chunk_empty,
    tail_undersampled,
    too_few_requests,
    zero_is_missing,
)
from lab.audit.thresholds import (
    CUT_SHARE,
    EARLY_EVENTS_SHARE,
    REQUESTS_FEW,
    REQUESTS_MISSING,
    TAIL_REQUESTS,
    ZERO_SHARE,
)
from tests.builders import TRIAL, trial_in_memory


def test_only_names_of_metrics_are_withdrawn() -> None:
    assert set(LATENCIES) <= set(TRIAL["metrics"])
    assert not {"output_tok_s", "tok_s_per_user"} & set(LATENCIES)


@pytest.mark.parametrize(
    ("issued", "fires", "withdrawn"),
    [
        (REQUESTS_FEW * 4, False, ()),
        (REQUESTS_FEW * 4 - 1, True, ()),
        (REQUESTS_MISSING * 4, True, ()),
        (REQUESTS_MISSING * 4 - 1, True, LATENCIES),
        (0, True, LATENCIES),
    ],
)
def test_few_requests_warn_and_fewer_withdraw(issued: int, fires: bool, withdrawn: tuple[str, ...]) -> None:
    code = too_few_requests(trial_in_memory({"metrics.requests_in_window": issued}), Context())
    assert (code is not None) == fires
    if code is not None:
        assert (code.code, code.severity, code.withdraws) == ("too-few-requests", WARNING, withdrawn)


def test_an_open_loop_needs_requests_for_what_is_in_flight_not_for_its_slots() -> None:
    changes = {"concurrency": 1000, "client.arrivals": "poisson", "client.littles_law": 2.4}
    assert too_few_requests(trial_in_memory({**changes, "metrics.requests_in_window": 30}), Context()) is None
    assert too_few_requests(trial_in_memory({**changes, "metrics.requests_in_window": 29}), Context()) is not None


def test_a_rule_on_throughput_asks_for_no_latencies() -> None:
    trial = trial_in_memory({"metrics.requests_in_window": 3})
    assert too_few_requests(trial, Context(metrics=("output_tok_s",))) is None
    assert too_few_requests(trial, Context(metrics=("output_tok_s", "ttft_p50_ms"))) is not None


@pytest.mark.parametrize(("issued", "fires"), [(TAIL_REQUESTS - 1, True), (TAIL_REQUESTS, False)])
def test_a_rules_p99_of_a_few_hundred_requests_decides_nothing(issued: int, fires: bool) -> None:
    changes = {"metrics.requests_in_window": issued, "metrics.ttft_p99_ms": 900.0, "metrics.e2e_p99_ms": 990.0}
    code = tail_undersampled(trial_in_memory(changes), Context(metrics=("output_tok_s", "ttft_p99_ms")))
    assert (code is not None) == fires
    if code is not None:
        assert (code.severity, code.withdraws) == (WARNING, ("ttft_p99_ms",))


def test_a_p99_that_decides_nothing_needs_no_warning() -> None:
    trial = trial_in_memory({"metrics.requests_in_window": 200, "metrics.ttft_p99_ms": 900.0})
    assert tail_undersampled(trial, Context(metrics=("ttft_p50_ms",))) is None


@pytest.mark.parametrize(("cut", "fires"), [(CUT_SHARE * 200, False), (CUT_SHARE * 200 + 1, True)])
def test_requests_that_were_cut_are_told(cut: float, fires: bool) -> None:
    changes = {"metrics.requests_in_window": 200, "client.aborted_of_window": cut}
    code = tail_undersampled(trial_in_memory(changes), Context())
    assert (code is not None) == fires
    if code is not None:
        assert code.withdraws == ()
    assert tail_undersampled(trial_in_memory({**changes, "metrics.e2e_p50_ms": None}), Context()) is None


@pytest.mark.parametrize(
    ("ttft", "tpot", "withdrawn"),
    [
        (ZERO_SHARE, ZERO_SHARE, None),
        (ZERO_SHARE + 0.001, 0.0, TTFT),
        (0.0, ZERO_SHARE + 0.001, TPOT),
        (1.0, 1.0, (*TTFT, *TPOT)),
        (None, None, None),
    ],
)
def test_zero_is_missing_and_its_metric_is_withdrawn(
    ttft: float | None, tpot: float | None, withdrawn: tuple[str, ...] | None
) -> None:
    changes = {"client.zero_ttft_share": ttft, "client.zero_tpot_share": tpot}
    code = zero_is_missing(trial_in_memory(changes), Context())
    assert (code.withdraws if code else None) == withdrawn
    assert code is None or (code.code, code.severity) == ("zero-is-missing", WARNING)


@pytest.mark.parametrize(("limit", "withdrawn"), [("ttft_ms", True), ("tpot_ms", False)])
def test_goodput_by_a_time_that_is_missing_is_withdrawn(limit: str, withdrawn: bool) -> None:
    trial = trial_in_memory({"client.zero_ttft_share": 1.0, "client.zero_tpot_share": 0.0, "prompts.slo": {limit: 9.0}})
    assert ("goodput_rps" in zero_is_missing(trial, Context()).withdraws) == withdrawn


@pytest.mark.parametrize(
    ("changes", "fires"),
    [
        ({"client.first_event_early_share": EARLY_EVENTS_SHARE}, False),
        ({"client.first_event_early_share": EARLY_EVENTS_SHARE + 0.01}, True),
        ({"client.reasoning_tokens": 900, "client.reasoning_seen": False}, True),
        ({"client.reasoning_tokens": 900, "client.reasoning_seen": True}, False),
        ({"client.reasoning_tokens": 0, "client.reasoning_seen": False}, False),
        ({"client.first_event_early_share": None}, False),
    ],
)
def test_streams_that_open_before_their_first_token(changes: dict[str, Any], fires: bool) -> None:
    code = first_chunk_empty(trial_in_memory(changes), Context())
    assert (code is not None) == fires
    assert code is None or (code.code, code.severity) == ("first-chunk-empty", WARNING)


@pytest.mark.parametrize(("drifts", "fires"), [(True, True), (False, False), (None, False)])
def test_a_time_per_token_that_moves_is_withdrawn(drifts: bool | None, fires: bool) -> None:
    changes = {"steady.tpot_drifts": drifts, "steady.tpot_trend_pct": 9.0, "steady.tpot_p_value": 1e-6}
    code = false_plateau(trial_in_memory(changes), Context())
    assert (code is not None) == fires
    if code is not None:
        assert (code.severity, code.withdraws) == (WARNING, (*TPOT, *E2E, "goodput_rps"))
        assert "moved by +9.0 %" in code.text
