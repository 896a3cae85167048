"""The concurrency account: a queue before a full server is told from everything that only looks like one."""

from __future__ import annotations

from typing import Any

import pytest

from lab.audit.base import FINDING, INVALID, Code, Context
from lab.audit.concurrency import batch_cap, gate_misaligned, metric_absent
from lab.audit.thresholds import CAP_FILLED_SHARE, SAMPLES_MIN, WAITING_MIN, WAITING_SHARE
from tests.builders import trial_in_memory


def capped(
    offered: int, cap: float | None, running: float | None, waiting: float | None, control_cap: float | None = None
) -> Code | None:
    changes: dict[str, Any] = {
        "concurrency": offered,
        "client.littles_law": (running or 0) + (waiting or 0),
        "server.running": running,
        "server.waiting": waiting,
    }
    return batch_cap(trial_in_memory(changes, facts={"cap": cap}), Context(control_cap))


def test_a_server_that_runs_all_that_was_offered_is_silent() -> None:
    assert capped(4, 4, 3.98, 0.0) is None
    assert capped(4, 16, 3.98, 0.0) is None


def test_a_full_server_with_a_queue_is_capped() -> None:
    code = capped(16, 8, 8.0, 8.0)
    assert code is not None
    assert (code.code, code.severity) == ("batch-cap", INVALID)
    assert (
        code.text
        == "asked 16, ran 8.0, 8.0 waited: the server runs at most 8 (/slots); raise the cap or measure at C=8"
    )
    assert code.figures == {"offered": 16, "littles_law": 16.0, "running": 8.0, "waiting": 8.0, "cap": 8}


def test_a_cap_that_the_control_does_not_have_is_a_finding() -> None:
    code = capped(16, 8, 8.0, 8.0, control_cap=16)
    assert code is not None
    assert (code.code, code.severity) == ("capacity-limited", FINDING)
    assert "the control runs up to 16" in code.text
    assert code.figures["control_cap"] == 16


@pytest.mark.parametrize("control_cap", [8, 4])
def test_a_cap_that_the_control_has_too_is_invalid(control_cap: float) -> None:
    code = capped(16, 8, 8.0, 8.0, control_cap)
    assert code is not None and code.code == "batch-cap"


def test_waiting_counts_although_the_queue_gauge_shows_none() -> None:
    trial = trial_in_memory(
        {"concurrency": 4, "client.littles_law": 4.0, "server.running": 2.0, "server.waiting": 0.0}, {"cap": 2}
    )
    code = batch_cap(trial, Context())
    assert code is not None and "2.0 waited" in code.text


def test_a_server_that_is_not_full_is_not_capped() -> None:
    assert capped(16, 8, CAP_FILLED_SHARE * 8, 8.0) is not None
    assert capped(16, 8, CAP_FILLED_SHARE * 8 - 0.01, 8.0) is None


def test_a_short_queue_is_not_a_cap() -> None:
    assert capped(9, 8, 8.0, WAITING_MIN) is not None
    assert capped(9, 8, 8.0, WAITING_MIN - 0.01) is None


def test_the_queue_that_counts_grows_with_the_load() -> None:
    assert capped(100, 96, 96.0, WAITING_SHARE * 100) is not None
    assert capped(100, 96, 96.0, WAITING_SHARE * 100 - 0.01) is None


@pytest.mark.parametrize(("cap", "running"), [(None, 8.0), (8, None)])
def test_without_a_cap_or_a_gauge_nothing_is_claimed(cap: float | None, running: float | None) -> None:
    assert capped(16, cap, running, 8.0) is None


def test_a_load_of_just_the_cap_is_silent() -> None:
    assert capped(8, 8, 8.0, 2.0) is None


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"server.running": None}, "running"),
        ({"server.waiting": None}, "waiting"),
        ({"server.running": None, "server.waiting": None}, "running and waiting"),
    ],
)
def test_a_gauge_that_is_absent_is_named(changes: dict[str, None], named: str) -> None:
    code = metric_absent(trial_in_memory(changes), Context())
    assert code is not None
    assert (code.code, code.severity) == ("metric-absent", INVALID)
    assert f"no value for {named};" in code.text


def test_gauges_at_zero_are_present() -> None:
    assert metric_absent(trial_in_memory({"server.running": 0.0, "server.waiting": 0.0}), Context()) is None


def test_too_few_samples_are_not_believed() -> None:
    assert gate_misaligned(trial_in_memory({"server.samples": SAMPLES_MIN}), Context()) is None
    code = gate_misaligned(trial_in_memory({"server.samples": SAMPLES_MIN - 1}), Context())
    assert code is not None
    assert (code.code, code.severity) == ("gate-misaligned", INVALID)
    assert f"only {SAMPLES_MIN - 1} samples" in code.text


def test_an_absent_gauge_is_told_once() -> None:
    assert gate_misaligned(trial_in_memory({"server.samples": 0, "server.running": None}), Context()) is None
