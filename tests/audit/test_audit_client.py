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
    CLIENT_FULL,
    CLIENT_SHORT,
    FLAT_PCT,
    LATE_REAL_MS,
    LOOP_LAG_LIFE_SHARE,
    LOOP_LAG_SHARE,
    NO_QUEUE,
    NO_QUEUE_SHARE,
    PEAK_SHARE,
    RATE_SHORT,
    SAME_HELD_SHARE,
    SEND_DELAY_SHARE,
    SLOT_WAIT_SHARE,
)
from tests.audit.pools import pool
from tests.builders import trial_in_memory


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
        ({"server__running": 99.0, "server__waiting": NO_QUEUE_SHARE * 100 - 0.01}, True),
        ({"server__running": 99.0, "server__waiting": NO_QUEUE_SHARE * 100}, False),
        ({"server__running": 100 * (1 - SAME_HELD_SHARE)}, True),
        ({"server__running": 100 * (1 - SAME_HELD_SHARE) - 0.1}, False),
        ({"server__running": None}, False),
        ({"client__sent": 127}, False),
        ({"client__arrivals": "poisson"}, False),
    ],
)
def test_a_pool_shows_as_a_flat_level_that_the_server_sees(changes: dict[str, Any], fires: bool) -> None:
    assert (client_conn_cap(pool(**changes), Context()) is not None) == fires


@pytest.mark.parametrize(("waiting", "fires"), [(NO_QUEUE - 0.01, True), (NO_QUEUE, False)])
def test_half_a_request_is_a_queue_where_few_are_in_flight(waiting: float, fires: bool) -> None:
    few = pool(concurrency=8, client__littles_law=6.0, server__running=5.7, server__waiting=waiting)
    assert (client_conn_cap(few, Context()) is not None) == fires


@pytest.mark.parametrize(
    ("changes", "fires"),
    [
        ({}, False),
        ({"metrics__tpot_p50_ms": 200.0, "client__loop_lag_p99_ms": LOOP_LAG_SHARE * 200 + 0.1}, True),
        ({"metrics__tpot_p50_ms": 200.0, "client__loop_lag_p99_ms": LOOP_LAG_SHARE * 200}, False),
        ({"client__loop_lag_p99_ms": LATE_REAL_MS + 0.1}, True),
        ({"client__loop_lag_p99_ms": LATE_REAL_MS}, False),
        ({"client__due_delay_mean_ms": SEND_DELAY_SHARE * 1100 + 0.1}, True),
        ({"client__due_delay_mean_ms": SEND_DELAY_SHARE * 1100}, False),
        ({"client__due_delay_p99_ms": SEND_DELAY_SHARE * 1100 + 0.1}, True),
        ({"client__due_delay_p99_ms": SEND_DELAY_SHARE * 1100}, False),
        ({"client__e2e_mean_ms": 100.0, "client__due_delay_p99_ms": LATE_REAL_MS + 0.1}, True),
        ({"client__e2e_mean_ms": 100.0, "client__due_delay_p99_ms": LATE_REAL_MS}, False),
        ({"client__cpu_share": CLIENT_CPU_SHARE + 0.01}, True),
        ({"client__cpu_share": CLIENT_CPU_SHARE}, False),
        ({"client__cpu_share": 1.0, "client__littles_law": 120.0, "server__running": 118.0}, False),
        ({"client__cpu_share": 1.0, "client__sent": 10}, False),
    ],
)
def test_a_client_that_is_slow_and_falls_short_is_the_bottleneck(changes: dict[str, Any], fires: bool) -> None:
    code = client_bound(pool(**changes), Context())
    assert (code is not None) == fires
    if code is not None:
        assert (code.code, code.severity) == ("client-bound", INVALID)
        assert "the client is the bottleneck (" in code.text


@pytest.mark.parametrize("name", ["loop_lag_p99_ms", "due_delay_p99_ms"])
@pytest.mark.parametrize(("real_ms", "fires"), [(LATE_REAL_MS, False), (LATE_REAL_MS + 0.1, True)])
def test_what_a_virtual_clock_multiplies_is_judged_by_real_time(name: str, real_ms: float, fires: bool) -> None:
    trial = pool(window__time_factor=20.0, client__e2e_mean_ms=2000.0, **{f"client__{name}": 20 * real_ms})
    assert (client_bound(trial, Context()) is not None) == fires


UNTIMED = {"metrics__tpot_p50_ms": None, "metrics__chunk_gap_p50_ms": None, "client__due_delay_mean_ms": None}


@pytest.mark.parametrize(
    ("life_ms", "lag_ms", "said"),
    [
        (1100.0, LOOP_LAG_LIFE_SHARE * 1100 + 0.1, "a request lives 1100 ms"),
        (1100.0, LOOP_LAG_LIFE_SHARE * 1100, None),
        (None, LATE_REAL_MS + 0.1, "no request has a time"),
        (None, LATE_REAL_MS, None),
    ],
)
def test_a_client_too_late_to_see_any_token_is_measured_by_the_life_of_a_request(
    life_ms: float | None, lag_ms: float, said: str | None
) -> None:
    trial = pool(**UNTIMED, client__e2e_mean_ms=life_ms, client__loop_lag_p99_ms=lag_ms)
    code = client_bound(trial, Context())
    assert (code is None) == (said is None)
    assert code is None or f"lags {lag_ms:.1f} ms at p99, {said}" in code.text


def backing_off(failed: int, kind: str = "http-5xx", sent: int = 1000) -> dict[str, Any]:
    return {
        "client__sent": sent,
        "client__failed": failed,
        "client__errors": {kind: failed},
        "window__seconds": 60.0,
    }


# Of 128 clients 100 were in flight, and so many must be explained.
AWAY = CLIENT_SHORT * 128 - 100


@pytest.mark.parametrize(("away", "fires"), [(AWAY - 0.1, True), (AWAY + 0.1, False), (0.0, True)])
def test_clients_that_wait_as_the_server_asks_are_counted_as_measured(away: float | None, fires: bool) -> None:
    """Three refusals with a long Retry-After: their number says nothing of the wait, and the label C is false."""
    few = {**backing_off(3), "client__backing_off": away}
    trial = pool(**few, client__cpu_share=1.0)
    assert (client_bound(trial, Context()) is not None) == fires
    assert (client_conn_cap(trial, Context()) is not None) == fires
    code = failed_requests(trial, Context())
    assert code is not None and code.severity == (INVALID if away else WARNING)
    assert not away or f"{away:.1f} of 128 clients were backing off on average" in code.text
    full = failed_requests(pool(**few, client__littles_law=CLIENT_SHORT * 128), Context())
    assert full is not None and full.severity == WARNING


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


@pytest.mark.parametrize(("little", "fires"), [(CLIENT_FULL * 128, False), (CLIENT_FULL * 128 - 0.1, True)])
def test_a_rate_is_not_kept_where_all_slots_are_taken_and_that_is_the_servers_doing(little: float, fires: bool) -> None:
    trial = pool(
        client__arrivals="poisson",
        client__due_in_window=199,
        client__issued_in_window=116,
        client__littles_law=little,
        server__running=120.0,
        client__loop_lag_p99_ms=31.0,
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


def test_a_client_out_of_breath_is_no_ramp() -> None:
    ramp = {"client.in_flight_bins": [*[4.0] * 8, *[3.0] * 8], "client.littles_law": 3.5}
    assert ramp_heavy(trial_in_memory(ramp), Context()) is not None
    assert ramp_heavy(trial_in_memory({**ramp, "client.cpu_share": 1.0}), Context()) is None


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
