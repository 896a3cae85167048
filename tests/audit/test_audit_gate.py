"""Whether the server's own account may be believed: absent, constant and misaligned gauges."""

from __future__ import annotations

from typing import Any

import pytest

from lab.audit.base import INVALID, Context
from lab.audit.gate import gate_misaligned, metric_absent
from lab.audit.thresholds import BUSY_SAMPLES_MIN, SAMPLES_MIN
from tests.builders import trial_in_memory


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


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"server.zero_gauges": ["kv_usage", "waiting"]}, "kv_usage"),
        ({"server.zero_gauges": ["running"]}, "running"),
        ({"server.zero_counters": ["output_tokens"], "server.delta": {"output_tokens": 0.0}}, "output_tokens"),
        ({"server.zero_counters": ["requests_finished"], "server.delta": {"requests_finished": 0.0}}, "finished"),
    ],
)
def test_a_figure_that_is_zero_while_requests_complete_is_not_measured(changes: dict[str, Any], named: str) -> None:
    code = metric_absent(trial_in_memory(changes), Context())
    assert code is not None and (code.code, code.severity) == ("metric-absent", INVALID)
    assert named in code.text and "waiting" not in code.text and "200 requests completed" in code.text
    assert metric_absent(trial_in_memory({**changes, "client.completed": 0}), Context()) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"server.waiting": 0.0, "server.zero_gauges": ["waiting"]},
        {"server.zero_counters": ["preemptions"], "server.delta": {"preemptions": 0.0}},
        # The last samples came before the only request ended; the counter after the drain shows it.
        {"server.zero_counters": ["output_tokens"], "server.delta": {"output_tokens": 32.0}},
        # Everything was cached: no prompt token was computed.
        {"server.zero_counters": ["prompt_tokens"], "server.delta": {"prompt_tokens": 0.0, "cached_tokens": 900.0}},
    ],
)
def test_zeros_that_can_be_are_present(changes: dict[str, Any]) -> None:
    assert metric_absent(trial_in_memory(changes), Context()) is None


def test_idle_samples_of_a_quiet_load_are_no_absent_gauge() -> None:
    changes = {"server.zero_gauges": ["running"], "server.samples": 100}
    busy, quiet = BUSY_SAMPLES_MIN / 100, BUSY_SAMPLES_MIN / 100 - 0.01
    assert metric_absent(trial_in_memory({**changes, "client.littles_law": busy}), Context()) is not None
    assert metric_absent(trial_in_memory({**changes, "client.littles_law": quiet}), Context()) is None


def test_too_few_samples_are_not_believed() -> None:
    assert gate_misaligned(trial_in_memory({"server.samples": SAMPLES_MIN}), Context()) is None
    code = gate_misaligned(trial_in_memory({"server.samples": SAMPLES_MIN - 1}), Context())
    assert code is not None
    assert (code.code, code.severity) == ("gate-misaligned", INVALID)
    assert f"only {SAMPLES_MIN - 1} samples" in code.text


@pytest.mark.parametrize(
    ("first_s", "last_s", "fires"),
    [(-30.0, 45.0, False), (0.5, 5.5, False), (0.51, 6.9, True), (-3.8, 5.49, True), (None, None, False)],
)
def test_samples_must_reach_over_the_window_to_within_one_of_them(
    first_s: float | None, last_s: float | None, fires: bool
) -> None:
    changes = {"server.sampled_from_s": first_s, "server.sampled_to_s": last_s, "server.samples": 12}
    assert (gate_misaligned(trial_in_memory(changes), Context()) is not None) == fires


def test_an_absent_gauge_is_told_once() -> None:
    assert gate_misaligned(trial_in_memory({"server.samples": 0, "server.running": None}), Context()) is None
