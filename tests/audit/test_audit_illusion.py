"""What the client holds in flight and the server never saw, or forgot."""

from __future__ import annotations

from typing import Any

import pytest

from lab.audit.base import INVALID, WARNING, Code, Context
from lab.audit.concurrency import (
    client_inflight_illusion,
    hang,
)
from lab.audit.thresholds import (
    CLIENT_FULL,
    HUNG_SHARE,
    NO_QUEUE,
    NO_QUEUE_SHARE,
    SEEN_SHARE,
)
from tests.builders import trial_in_memory

HUNG = {"client.hung_streams": 4, "client.hung_mean": 3.1, "client.hung_since_s": -1.0, "server.running": 0.9}


@pytest.mark.parametrize(
    ("changes", "severity"),
    [
        (HUNG, INVALID),
        ({**HUNG, "client.hung_mean": HUNG_SHARE * 4.0 - 0.01}, WARNING),
        ({**HUNG, "server.delta": {"preemptions": 3.0}}, None),
        ({**HUNG, "client.hung_streams": 0, "client.hung_mean": 0.0}, None),
        ({**HUNG, "client.hung_mean": None}, None),
    ],
)
def test_streams_that_fell_silent_for_good_hang(changes: dict[str, Any], severity: str | None) -> None:
    code = hang(trial_in_memory(changes), Context())
    assert (code.severity if code else None) == severity
    assert code is None or "since before the window: on average " in code.text


def test_streams_that_hang_have_reached_the_server() -> None:
    assert client_inflight_illusion(trial_in_memory(HUNG), Context()) is None
    assert client_inflight_illusion(trial_in_memory({**HUNG, "client.hung_streams": 0}), Context()) is not None


def seen(running: float, waiting: float = 0.0, little: float = 16.0, **changes: Any) -> Code | None:
    fields = {
        "concurrency": 16,
        "client.littles_law": little,
        "server.running": running,
        "server.waiting": waiting,
        "server.held_error": 0.0,
        **changes,
    }
    return client_inflight_illusion(trial_in_memory(fields, facts={"cap": 32}), Context())


def test_requests_that_the_server_never_saw_are_an_illusion() -> None:
    code = seen(10.0)
    assert code is not None and (code.code, code.severity) == ("client-inflight-illusion", INVALID)
    assert "the client held 16.0 in flight, the server saw 10.0" in code.text


@pytest.mark.parametrize(
    ("code", "fires"),
    [
        (seen(SEEN_SHARE * 16 - 0.01), True),
        (seen(SEEN_SHARE * 16), False),
        (seen(10.0, NO_QUEUE_SHARE * 16 - 0.01), True),
        (seen(10.0, NO_QUEUE_SHARE * 16), False),
        (seen(4.0, NO_QUEUE - 0.01, 8.0, concurrency=8), True),
        (seen(4.0, NO_QUEUE, 8.0, concurrency=8), False),
        (seen(8.0, little=CLIENT_FULL * 16), True),
        (seen(8.0, little=CLIENT_FULL * 16 - 0.01), False),
        (seen(10.0, **{"server.held_error": 0.89}), True),
        (seen(10.0, **{"server.held_error": 0.91}), False),
        (seen(10.0, **{"client.sent": 15}), False),
    ],
)
def test_an_illusion_is_clear_beyond_the_error_of_its_samples(code: Code | None, fires: bool) -> None:
    assert (code is not None) == fires


def test_a_full_server_whose_queue_gauge_shows_nothing_is_no_illusion() -> None:
    trial = trial_in_memory({"server.running": 2.0, "server.waiting": 0.0, "server.held_error": 0.0}, {"cap": 2})
    assert client_inflight_illusion(trial, Context()) is None


def test_a_dozen_idle_samples_of_a_quiet_open_loop_are_no_illusion() -> None:
    quiet = {"client.arrivals": "poisson", "client.littles_law": 0.3}
    assert seen(0.0, **quiet) is None
    busy = {"client.arrivals": "poisson", "client.littles_law": 16.0, "server.samples": 1000}
    assert seen(8.0, **busy) is not None
