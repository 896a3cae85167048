"""A client that holds its load by reading late: the server answered long before, and serves less than it could."""

from __future__ import annotations

from typing import Any

import pytest

from lab.audit.base import Context
from lab.audit.client import client_bound
from lab.audit.concurrency import client_inflight_illusion
from lab.audit.thresholds import LATE_REAL_MS, LOOP_LAG_LIFE_SHARE, NO_QUEUE_SHARE, SEEN_SHARE
from tests.audit.pools import pool


@pytest.mark.parametrize("changes", [{}, {"client__arrivals": "poisson", "client__issued_in_window": 115}])
@pytest.mark.parametrize(
    ("running", "waiting", "lag_ms", "fires"),
    [
        (SEEN_SHARE * 128 - 0.1, 0.0, 300.0, True),
        (SEEN_SHARE * 128, 0.0, 300.0, False),
        (SEEN_SHARE * 128 - 20, NO_QUEUE_SHARE * 128, 300.0, False),
        (60.0, 0.0, 1.5, False),
        (None, 0.0, 300.0, False),
    ],
)
def test_answers_that_lie_unread_at_a_client_that_lags(
    changes: dict[str, Any], running: float | None, waiting: float, lag_ms: float, fires: bool
) -> None:
    """The load looks full, since the client has not read that its requests ended."""
    server = {"server__running": running, "server__waiting": waiting, "server__held_error": 0.0}
    trial = pool(**changes, **server, client__littles_law=128.0, client__loop_lag_p99_ms=lag_ms)
    code = client_bound(trial, Context())
    assert (code is not None) == fires
    assert code is None or f"128.0 were in flight, the server held {running:.1f} and queued nothing" in code.text


SLOW = {
    "busy": {"client__cpu_share": 1.0},
    "sends late": {"client__due_delay_mean_ms": 200.0, "client__due_delay_p99_ms": 300.0},
    "healthy": {},
}


@pytest.mark.parametrize(("how", "fires"), [("busy", True), ("sends late", True), ("healthy", False)])
def test_answers_that_lie_unread_at_a_client_that_is_slow_without_a_lag(how: str, fires: bool) -> None:
    """Between nine tenths of the load and all of it, where no other check looks at what the server held."""
    server = {"server__running": SEEN_SHARE * 118 - 1, "server__waiting": 0.0, "server__held_error": 0.0}
    trial = pool(**SLOW[how], **server, client__littles_law=118.0)
    assert client_inflight_illusion(trial, Context()) is None
    assert (client_bound(trial, Context()) is not None) == fires


LATE_MS = LOOP_LAG_LIFE_SHARE * 1100


@pytest.mark.parametrize("arrivals", ["closed", "poisson"])
@pytest.mark.parametrize(
    ("mean_ms", "p99_ms", "fires"),
    [
        (LATE_MS + 0.1, 300.0, True),
        (LATE_MS, 300.0, False),
        (None, 300.0, False),
        (LATE_MS + 0.1, LATE_REAL_MS, False),
    ],
)
def test_a_client_that_keeps_the_whole_load_in_flight_by_reading_late(
    arrivals: str, mean_ms: float | None, p99_ms: float, fires: bool
) -> None:
    """The server saw nine tenths of it: too much for an alarm by itself, and throughput is a tenth too low."""
    trial = pool(
        client__arrivals=arrivals,
        client__littles_law=128.0,
        client__loop_lag_mean_ms=mean_ms,
        client__loop_lag_p99_ms=p99_ms,
        server__running=115.0,
        server__held_error=0.0,
    )
    assert client_inflight_illusion(trial, Context()) is None
    code = client_bound(trial, Context())
    assert (code is not None) == fires
    assert code is None or "lies unread for 55 ms of the 1100 ms that a request lives" in code.text
