"""The first diagnosis that matches, for closed and open loops."""

from __future__ import annotations

from typing import Any

import pytest

from lab.audit.base import Context
from lab.audit.diagnosis import diagnose
from tests.builders import trial_in_memory


def named(changes: dict[str, Any], **facts: Any) -> tuple[str, str | None]:
    """Sixteen clients on a server that can run 32, with some figures changed."""
    clean = {
        "concurrency": 16,
        "client.littles_law": 15.9,
        "client.in_flight_bins": [15.9] * 12,
        "client.clients_started": 16,
        "client.peak_in_flight": 16,
        "server.running": 15.8,
        "server.running_p95": 16.0,
        "server.held_error": 0.0,
    }
    found = diagnose(trial_in_memory({**clean, **changes}, facts={"cap": 32, **facts}))
    assert found.text and "\n" not in found.text
    assert (found.code is None) == (found.name in ("healthy", "unclear"))
    assert found.name == "healthy" or found.fix
    return found.name, found.code


RAMP = {"client.littles_law": 13.0, "client.in_flight_bins": [2.0, 8.0, *[16.0] * 10]}
SHORT = {
    "server.running": 9.9,
    "client.littles_law": 10.0,
    "client.in_flight_bins": [10.0] * 12,
    "client.in_flight_flat_pct": 9.0,
}
FREE_SLOTS = {"client.littles_law": 12.0, "server.running": 12.0}
HUNG = {"client.hung_streams": 6, "client.hung_mean": 5.9, "client.hung_since_s": 0.5}
MOVED = {"steady.outcome": "drifting", "steady.reason": "it moved"}
STILL = {"client.silence_max_s": 2.0, "client.silences_alike": 1, "client.silences_alike_s": 2.0}
QUEUE = {"server.running": 10.0, "server.waiting": 6.0, "server.waiting_p10": 6.0}


@pytest.mark.parametrize(
    ("changes", "facts", "name", "code"),
    [
        ({}, {}, "healthy", None),
        ({"server.running": None}, {}, "blind", "metric-absent"),
        ({"server.samples": 3}, {}, "blind", "gate-misaligned"),
        ({"server.idle_running_max": 1.0}, {}, "not ours", "foreign-traffic"),
        ({"client.sent": 8, **SHORT}, {}, "not enough work", "too-few-requests"),
        ({"metrics.requests_in_window": 70, **SHORT}, {}, "not enough work", "too-few-requests"),
        ({"server.running": 13.0, **RAMP}, {}, "ramp-bound", "ramp-heavy"),
        ({"server.running": 8.0, "server.waiting": 7.9}, {"cap": 8}, "cap-bound", "batch-cap"),
        ({**QUEUE, "server.kv_usage_max": 0.97}, {}, "KV-bound", "kv-bound"),
        (QUEUE, {}, "admission-bound", "batch-cap"),
        ({**QUEUE, "server.running_max": 10.0}, {}, "hidden cap", "batch-cap"),
        ({"server.running": 10.0, **HUNG}, {}, "hung", "hang"),
        ({"server.running": 10.0, **HUNG, "client.hung_mean": 1.0}, {}, "lost on the way", "client-inflight-illusion"),
        # A fault that leaves the load as it was is no health.
        ({"client.output_tokens": 4100}, {}, "not to be believed", "count-mismatch"),
        (MOVED, {}, "not to be believed", "no-steady-window"),
        ({**MOVED, "client.output_tokens": 4100}, {}, "not to be believed", "count-mismatch"),
        ({**MOVED, "client.littles_law": 14.8, "server.running": 14.7}, {}, "not to be believed", "no-steady-window"),
        (STILL, {}, "stood still", "standstill"),
        ({**STILL, "client.output_tokens": 4100}, {}, "not to be believed", "count-mismatch"),
        ({"client.failed": 15, "client.errors": {"http-5xx": 15}}, {}, "failing", "failed-requests"),
        ({"client.failed": 1, "client.errors": {"http-5xx": 1}}, {}, "healthy", None),
        ({"server.running": 10.0}, {}, "lost on the way", "client-inflight-illusion"),
        (SHORT, {}, "client-bound", "below-load"),
        ({**SHORT, "client.in_flight_flat_pct": 0.1}, {}, "client-bound", "client-conn-cap"),
        ({**SHORT, "client.cpu_share": 1.0}, {}, "client-bound", "client-bound"),
        ({"client.littles_law": 14.8, "server.running": 14.7}, {}, "unclear", None),
        ({"server.running": 15.19}, {}, "unclear", None),
        ({"server.running": 15.2}, {}, "healthy", None),
        # As far above what is ours as below is no health; nor is a cap below what was asked.
        ({"server.running": 17.7, "client.failed": 1, "client.errors": {"stalled": 1}}, {}, "unclear", None),
        ({"client.littles_law": 15.7, "server.running": 15.0}, {"cap": 15}, "unclear", None),
        ({"server.running": 15.0, "server.held_error": 0.11}, {}, "healthy", None),
        ({"server.running": 7.9, "server.waiting": 6.4}, {"cap": 8}, "cap-bound", "batch-cap"),
        # The first that matches, not the last: a foreign user explains the queue.
        ({**QUEUE, "server.idle_running_max": 1.0}, {}, "not ours", "foreign-traffic"),
        # A window that was fully occupied needs no number of requests.
        ({"metrics.requests_in_window": 20}, {}, "healthy", None),
    ],
)
def test_the_first_that_matches_in_a_closed_loop(
    changes: dict[str, Any], facts: dict[str, Any], name: str, code: str | None
) -> None:
    assert named(changes, **facts) == (name, code)


@pytest.mark.parametrize(
    ("changes", "name", "code"),
    [
        ({}, "healthy", None),
        ({"client.in_flight_trend_pct": 60.0}, "backlog", "no-steady-window"),
        ({"client.wait_for_slot_mean_ms": 500.0}, "backlog", "coordinated-omission"),
        ({"client.issued_in_window": 90}, "backlog", "coordinated-omission"),
        ({"client.issued_in_window": 90, "client.cpu_share": 1.0}, "backlog", "coordinated-omission"),
        ({"client.issued_in_window": 90, "client.cpu_share": 1.0, **FREE_SLOTS}, "client-bound", "client-bound"),
        ({"server.running": 4.0, **HUNG}, "hung", "hang"),
        (MOVED, "not to be believed", "no-steady-window"),
        ({"server.running": 4.0}, "lost on the way", "client-inflight-illusion"),
        ({"server.running": 9.9, "server.waiting": 5.9}, "healthy", None),
    ],
)
def test_the_first_that_matches_in_an_open_loop(changes: dict[str, Any], name: str, code: str | None) -> None:
    arrivals = {"client.arrivals": "poisson", "client.wait_for_slot_mean_ms": 1.0, "server.samples": 1000}
    assert named({**arrivals, **changes}) == (name, code)


def test_what_fell_is_told_with_the_worst_code_and_what_to_do_about_it() -> None:
    found = diagnose(trial_in_memory({"client.output_tokens": 4100}))
    assert found.text.startswith("the load was held, but the figures are no result: the client counted 4100 ")
    assert found.fix is not None and found.fix.startswith("compare one answer's count with ")
    moved = diagnose(trial_in_memory({"server.log_events": [{"kind": "compile", "text": "took 5 s"}]}))
    assert (moved.name, moved.code) == ("not to be believed", "cold-start-in-window")
    rare = diagnose(trial_in_memory(), Context(hard_bound_tok_s=1.0))
    assert (rare.name, rare.code) == ("not to be believed", "over-roofline")


def test_a_cap_that_the_lever_made_is_named_by_its_finding() -> None:
    changes = {"concurrency": 16, "client.littles_law": 16.0, "server.running": 8.0, "server.waiting": 8.0}
    found = diagnose(trial_in_memory(changes, facts={"cap": 8}), Context(control_cap=16))
    assert (found.name, found.code) == ("cap-bound", "capacity-limited")
    assert found.fix == "raise the cap, or state the batch as 8"
