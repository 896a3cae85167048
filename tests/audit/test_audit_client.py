"""The client as the bottleneck, requests that failed, and trials in which nothing was completed."""

from __future__ import annotations

from typing import Any

import pytest

from lab.audit.base import INVALID, WARNING, Code, Context
from lab.audit.client import (
    client_bound,
    client_conn_cap,
    coordinated_omission,
    failed_requests,
    nothing_completed,
    peak_bucketed,
    ramp_heavy,
)
from lab.audit.thresholds import (
    CLIENT_CPU_SHARE,
    CLIENT_SHORT,
    FLAT_PCT,
    LOOP_LAG_SHARE,
    NO_QUEUE,
    PEAK_SHARE,
    RATE_SHORT,
    SAME_HELD_SHARE,
    SEND_DELAY_SHARE,
    SLOT_WAIT_SHARE,
)
from lab.records import Trial
from tests.builders import trial_in_memory


def pool(**changes: Any) -> Trial:
    """A hundred of 128 requests in flight, all of them on a server that could run 256."""
    clean = {
        "concurrency": 128,
        "client.sent": 1000,
        "client.littles_law": 100.0,
        "client.in_flight_flat_pct": 0.4,
        "server.running": 99.0,
        "server.waiting": 0.0,
    }
    return trial_in_memory({**clean, **{key.replace("__", "."): value for key, value in changes.items()}}, {"cap": 256})


def test_a_pool_of_a_hundred_connections_is_named() -> None:
    code = client_conn_cap(pool(), Context())
    assert code is not None and (code.code, code.severity) == ("client-conn-cap", INVALID)
    assert code.text.startswith("asked 128, the client never held more than 100.0 in flight")


@pytest.mark.parametrize(
    ("changes", "fires"),
    [
        ({"client__littles_law": CLIENT_SHORT * 128 - 0.01, "server__running": 115.0}, True),
        ({"client__littles_law": CLIENT_SHORT * 128, "server__running": 115.0}, False),
        ({"client__in_flight_flat_pct": FLAT_PCT}, True),
        ({"client__in_flight_flat_pct": FLAT_PCT + 0.01}, False),
        ({"server__running": 99.0, "server__waiting": NO_QUEUE - 0.01}, True),
        ({"server__running": 99.0, "server__waiting": NO_QUEUE}, False),
        ({"server__running": 100 * (1 - SAME_HELD_SHARE)}, True),
        ({"server__running": 100 * (1 - SAME_HELD_SHARE) - 0.1}, False),
        ({"server__running": None}, False),
        ({"client__sent": 127}, False),
        ({"client__arrivals": "poisson"}, False),
    ],
)
def test_a_pool_shows_as_a_flat_level_that_the_server_sees(changes: dict[str, Any], fires: bool) -> None:
    assert (client_conn_cap(pool(**changes), Context()) is not None) == fires


@pytest.mark.parametrize(
    ("changes", "fires"),
    [
        ({}, False),
        ({"client__loop_lag_p99_ms": LOOP_LAG_SHARE * 40.0 + 0.1}, True),
        ({"client__loop_lag_p99_ms": LOOP_LAG_SHARE * 40.0}, False),
        ({"client__due_delay_p99_ms": SEND_DELAY_SHARE * 1100.0 + 0.1}, True),
        ({"client__due_delay_p99_ms": SEND_DELAY_SHARE * 1100.0}, False),
        ({"client__cpu_share": CLIENT_CPU_SHARE + 0.01}, True),
        ({"client__cpu_share": CLIENT_CPU_SHARE}, False),
        ({"client__cpu_share": 1.0, "client__littles_law": 120.0}, False),
        ({"client__cpu_share": 1.0, "client__sent": 10}, False),
    ],
)
def test_a_client_that_is_slow_and_falls_short_is_the_bottleneck(changes: dict[str, Any], fires: bool) -> None:
    code = client_bound(pool(**changes), Context())
    assert (code is not None) == fires
    if code is not None:
        assert (code.code, code.severity) == ("client-bound", INVALID)
        assert "the client is the bottleneck (" in code.text


def test_ten_requests_for_a_hundred_clients_say_nothing_of_the_client() -> None:
    trial = pool(
        concurrency=100, client__sent=10, client__littles_law=6.0, client__cpu_share=1.0, metrics__requests_in_window=10
    )
    assert client_bound(trial, Context()) is None and client_conn_cap(trial, Context()) is None


@pytest.mark.parametrize(("issued", "fires"), [(RATE_SHORT * 1000, False), (RATE_SHORT * 1000 - 1, True)])
def test_a_client_that_cannot_keep_a_rate_is_the_bottleneck(issued: float, fires: bool) -> None:
    trial = pool(
        client__arrivals="constant", client__due_in_window=1000, client__issued_in_window=issued, client__cpu_share=1.0
    )
    assert (client_bound(trial, Context()) is not None) == fires


def test_late_sends_of_an_open_loop_are_the_servers_doing() -> None:
    trial = pool(
        client__arrivals="constant",
        client__due_in_window=1000,
        client__issued_in_window=500,
        client__due_delay_p99_ms=9000.0,
    )
    assert client_bound(trial, Context()) is None


@pytest.mark.parametrize(
    ("arrivals", "waited_ms", "fires"),
    [
        ("poisson", SLOT_WAIT_SHARE * 1100.0, False),
        ("poisson", SLOT_WAIT_SHARE * 1100.0 + 1, True),
        ("poisson", None, True),
        ("closed", 9000.0, False),
    ],
)
def test_a_wait_for_a_client_slot_is_told(arrivals: str, waited_ms: float | None, fires: bool) -> None:
    changes = {"client.arrivals": arrivals, "client.wait_for_slot_mean_ms": waited_ms}
    code = coordinated_omission(trial_in_memory(changes), Context())
    assert (code is not None) == fires
    assert code is None or (code.code, code.severity) == ("coordinated-omission", WARNING)


@pytest.mark.parametrize(
    ("bins", "fires"),
    [
        ([4.0] * 20, False),
        ([1.0, 2.0, *[4.0] * 18], False),
        ([1.0, 2.0, 3.0, *[4.0] * 17], True),
        ([*[4.0] * 17, 3.5, 3.5, 3.5], True),
        ([*[4.0] * 17, 3.6, 3.6, 3.6], False),
        ([3.0] * 20, False),
        ([], False),
    ],
)
def test_a_ramp_inside_the_window_is_told_and_a_client_that_falls_short_is_not_a_ramp(
    bins: list[float], fires: bool
) -> None:
    code = ramp_heavy(trial_in_memory({"client.in_flight_bins": bins}), Context())
    assert (code is not None) == fires
    assert code is None or (code.code, code.severity) == ("ramp-heavy", WARNING)


@pytest.mark.parametrize(
    ("exact", "reported", "fires"),
    [(1, 2, True), (100, PEAK_SHARE * 100, False), (100, PEAK_SHARE * 100 + 1, True), (4, None, False)],
)
def test_a_peak_counted_in_whole_seconds_is_discarded(exact: int, reported: float | None, fires: bool) -> None:
    changes = {"concurrency": 128, "client.peak_in_flight": exact, "client.peak_reported": reported}
    code = peak_bucketed(trial_in_memory(changes), Context())
    assert (code is not None) == fires
    assert code is None or (code.code, code.severity) == ("peak-bucketed", WARNING)


def test_more_in_flight_than_clients_is_told() -> None:
    assert peak_bucketed(trial_in_memory({"client.peak_in_flight": 5}), Context()) is not None


def failing(failed: int, sent: int) -> Code | None:
    changes = {"client.failed": failed, "client.sent": sent, "client.errors": {"timeout": failed} if failed else {}}
    return failed_requests(trial_in_memory(changes), Context())


def test_no_failure_is_silence() -> None:
    assert failing(0, 200) is None


@pytest.mark.parametrize(("failed", "severity"), [(1, WARNING), (2, WARNING), (3, INVALID), (200, INVALID)])
def test_above_one_percent_of_failures_a_trial_is_invalid(failed: int, severity: str) -> None:
    code = failing(failed, 200)
    assert code is not None
    assert (code.code, code.severity) == ("failed-requests", severity)
    assert code.text == f"{failed} of 200 requests failed ({failed} × timeout)"
    assert code.figures == {"failed": failed, "issued": 200}


def test_every_kind_of_failure_is_counted_in_the_sentence() -> None:
    errors = {"timeout": 2, "http-500": 1}
    code = failed_requests(trial_in_memory({"client.failed": 3, "client.errors": errors}), Context())
    assert code is not None and "(1 × http-500, 2 × timeout)" in code.text


def test_requests_aborted_at_the_end_are_no_failures() -> None:
    assert failed_requests(trial_in_memory({"client.aborted": 4, "client.drained": False}), Context()) is None


def test_a_trial_with_requests_and_tokens_is_silent() -> None:
    assert nothing_completed(trial_in_memory(), Context()) is None


def test_long_answers_that_all_end_after_the_trial_still_have_a_throughput() -> None:
    assert nothing_completed(trial_in_memory({"client.completed": 0}), Context()) is None


def test_a_window_without_a_token_is_invalid() -> None:
    code = nothing_completed(trial_in_memory({"client.window_tokens": 0}), Context())
    assert code is not None
    assert (code.code, code.severity) == ("nothing-completed", INVALID)
