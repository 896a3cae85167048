"""Windows that were cold, still warming up, drifting or too short."""

from __future__ import annotations

from typing import Any

import pytest

from lab.audit.base import INVALID, WARNING, Context
from lab.audit.latency import REQUEST_LEVEL
from lab.audit.machine import machine_shared
from lab.audit.steady import cold_start_in_window, no_steady_window, warmup_overlap
from lab.audit.thresholds import EARLY_P, EARLY_RATIO, EARLY_RATIO_SHARED, OVERLAP_REQUESTS
from lab.records import SEARCH, TREATMENT
from tests.builders import trial_in_memory


@pytest.mark.parametrize("outcome", ["drifting", "too-short"])
def test_a_window_without_one_state_is_invalid(outcome: str) -> None:
    code = no_steady_window(trial_in_memory({"steady.outcome": outcome, "steady.reason": "because"}), Context())
    assert code is not None and (code.code, code.severity) == ("no-steady-window", INVALID)
    assert code.text == f"no steady window ({outcome}): because"
    assert set(code.figures) == {"seconds", "bins", "trend_pct", "p_value", "cv_pct"}


def test_a_steady_window_is_silent() -> None:
    assert no_steady_window(trial_in_memory(), Context()) is None


@pytest.mark.parametrize(
    ("outcome", "role", "fires"),
    [("too-short", SEARCH, False), ("drifting", SEARCH, True), ("too-short", TREATMENT, True)],
)
def test_the_short_windows_of_a_search_are_never_judged(outcome: str, role: str, fires: bool) -> None:
    trial = trial_in_memory({"steady.outcome": outcome, "steady.reason": "because"}, role=role)
    assert (no_steady_window(trial, Context()) is not None) == fires


def test_a_window_without_tokens_is_told_once() -> None:
    changes = {"steady.outcome": "too-short", "steady.reason": "no token", "client.window_tokens": 0}
    assert no_steady_window(trial_in_memory(changes), Context()) is None


@pytest.mark.parametrize(
    ("arrivals", "trend_pct", "fires"),
    [("poisson", 80.0, True), ("poisson", 0.0, False), ("poisson", -80.0, False), ("closed", 80.0, False)],
)
def test_a_queue_that_grows_withdraws_latencies_and_keeps_the_throughput(
    arrivals: str, trend_pct: float, fires: bool
) -> None:
    changes = {"client.arrivals": arrivals, "client.in_flight_trend_pct": trend_pct}
    code = no_steady_window(trial_in_memory(changes), Context())
    assert (code is not None) == fires
    if code is not None:
        assert (code.severity, code.withdraws) == (WARNING, REQUEST_LEVEL)
        assert code.text.startswith("requests in flight rose by 80 % over the window: ")


def test_a_compile_in_the_window_is_invalid() -> None:
    events = [{"kind": "compile", "text": "torch.compile takes 12 s"}, {"kind": "capture", "text": "graph"}]
    code = cold_start_in_window(trial_in_memory({"server.log_events": events}), Context())
    assert code is not None and (code.code, code.severity) == ("cold-start-in-window", INVALID)
    assert code.text == "2 log lines in the window tell of compile: torch.compile takes 12 s"


@pytest.mark.parametrize(
    ("ratio", "chance", "fires"),
    [
        (EARLY_RATIO + 0.01, EARLY_P, True),
        (EARLY_RATIO, EARLY_P, False),
        (EARLY_RATIO + 0.01, EARLY_P * 1.01, False),
        (None, None, False),
    ],
)
@pytest.mark.parametrize(("name", "severity"), [("tpot", INVALID), ("ttft", WARNING)])
def test_slow_first_requests_beyond_chance(
    name: str, severity: str, ratio: float | None, chance: float | None, fires: bool
) -> None:
    changes = {f"client.early_ratio_{name}": ratio, f"client.early_p_{name}": chance}
    code = cold_start_in_window(trial_in_memory(changes), Context())
    assert (code is not None) == fires
    if code is not None:
        assert (code.severity, code.withdraws) == (severity, REQUEST_LEVEL if name == "ttft" else ())


@pytest.mark.parametrize(
    ("ratio", "chance", "fires"),
    [
        (EARLY_RATIO_SHARED, EARLY_P, False),
        (EARLY_RATIO_SHARED + 0.01, EARLY_P, True),
        (EARLY_RATIO_SHARED + 0.01, EARLY_P * 1.01, False),
        (10.0, 7e-9, True),
    ],
)
@pytest.mark.parametrize("name", ["tpot", "ttft"])
def test_other_programs_excuse_a_start_that_was_a_little_slow_and_no_more(
    name: str, ratio: float, chance: float, fires: bool
) -> None:
    changes = {f"client.early_ratio_{name}": ratio, f"client.early_p_{name}": chance, "server.machine_cpu_pct": 99.0}
    trial = trial_in_memory(changes)
    assert machine_shared(trial, Context()) is not None
    assert (cold_start_in_window(trial, Context()) is not None) == fires


@pytest.mark.parametrize(
    ("started", "cap", "fires"), [(4, 4, False), (3, 4, True), (2, 2, False), (1, 2, True), (None, 4, False)]
)
def test_a_warm_up_that_was_smaller_than_the_load(started: int | None, cap: int, fires: bool) -> None:
    trial = trial_in_memory({"client.clients_started": started}, facts={"cap": cap})
    assert (cold_start_in_window(trial, Context()) is not None) == fires


@pytest.mark.parametrize(
    ("changes", "fires"),
    [
        ({"client.last_warmup_end_s": 2.0}, False),
        ({"server.excess_at_open": OVERLAP_REQUESTS}, False),
        ({"server.excess_at_open": OVERLAP_REQUESTS + 0.1}, True),
        ({"server.excess_at_open": None}, False),
        ({"client.arrivals": "poisson", "client.backlog_at_open": 1}, False),
        ({"client.arrivals": "poisson", "client.backlog_at_open": 2}, True),
        ({"client.arrivals": "poisson", "client.backlog_at_open": 2, "client.littles_law": 100.0}, False),
    ],
)
def test_work_from_before_the_window(changes: dict[str, Any], fires: bool) -> None:
    code = warmup_overlap(trial_in_memory(changes), Context())
    assert (code is not None) == fires
    assert code is None or (code.code, code.severity) == ("warmup-overlap", WARNING)
