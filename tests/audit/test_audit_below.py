"""A server that ran less than was asked never stays valid without a code."""

from __future__ import annotations

from typing import Any

import pytest

from lab.audit import audit
from lab.audit.base import INVALID, Context
from lab.audit.below import below_load
from lab.audit.diagnosis import diagnose
from lab.audit.thresholds import BELOW_SHARE, SEEN_ERRORS
from tests.builders import trial_in_memory

# Sixteen clients, a queue of less than a request, and in flight too few to say that something held them back.
SIXTEEN = {
    "concurrency": 16,
    "client.littles_law": 15.0,
    "client.in_flight_bins": [15.0] * 12,
    "client.in_flight_flat_pct": 5.0,
    "server.running": 13.0,
    "server.held_error": 0.05,
}


def named(changes: dict[str, Any], **facts: Any) -> set[str]:
    trial = trial_in_memory({**SIXTEEN, **changes}, facts={"cap": 32, **facts})
    return {code.code for code in audit(trial) if code.severity == INVALID}


@pytest.mark.parametrize(
    ("changes", "fires"),
    [
        ({}, True),
        ({"server.running": BELOW_SHARE * 16 - SEEN_ERRORS * 0.05}, False),
        ({"server.held_error": 0.2}, False),
        # What the client saw of the batch makes the mean of the samples surer, or takes it back.
        ({"server.held_error": 0.2, "server.running_fitted": 13.0, "server.running_fitted_error": 0.1}, True),
        ({"server.running_fitted": 14.0, "server.running_fitted_error": 0.01}, False),
        ({"server.running_fitted": 14.0, "server.running_fitted_error": 0.3}, True),
        ({"server.running_error": 0.01, "server.held_error": 0.5}, True),
        ({"server.answering": 14.9}, False),  # a gauge that stands still while the tokens of all come in
        ({"server.answering": 12.0}, True),
        ({"client.sent": 15}, False),
        ({"client.arrivals": "poisson"}, False),
        ({"server.running": None}, False),
    ],
)
def test_a_batch_below_the_label_is_invalid_beyond_the_error_of_its_samples(
    changes: dict[str, Any], fires: bool
) -> None:
    code = below_load(trial_in_memory({**SIXTEEN, **changes}, facts={"cap": 32}), Context())
    assert (code is not None) == fires
    if code is not None:
        assert (code.code, code.severity) == ("below-load", INVALID)
        assert "asked 16, ran 13.0 (15.0 in flight, 0.0 waiting, cap 32)" in code.text


@pytest.mark.parametrize(
    ("changes", "facts", "code"),
    [
        ({"server.running": 8.0, "server.waiting": 7.0}, {"cap": 8}, "batch-cap"),
        ({"server.waiting": 2.0, "server.kv_usage_max": 0.99}, {}, "kv-bound"),
        ({"client.littles_law": 16.0}, {}, "client-inflight-illusion"),
        ({"client.littles_law": 13.0, "client.in_flight_flat_pct": 0.1}, {}, "client-conn-cap"),
        ({"client.littles_law": 13.0, "client.cpu_share": 1.0}, {}, "client-bound"),
        ({"client.hung_streams": 3, "client.hung_mean": 3.0, "client.hung_since_s": 0.0}, {}, "hang"),
        ({"client.failed": 15, "client.errors": {"http-5xx": 15}}, {}, "failed-requests"),
        ({"server.samples": 3}, {}, "gate-misaligned"),
    ],
)
def test_a_known_cause_says_it_alone(changes: dict[str, Any], facts: dict[str, Any], code: str) -> None:
    found = named(changes, **facts)
    assert code in found and "below-load" not in found


def test_the_diagnosis_is_unclear_and_invalid() -> None:
    found = diagnose(trial_in_memory(SIXTEEN, facts={"cap": 32}))
    assert (found.name, found.code) == ("unclear", "below-load")
    short = diagnose(trial_in_memory({**SIXTEEN, "client.littles_law": 13.5}, facts={"cap": 32}))
    assert (short.name, short.code) == ("client-bound", "below-load")


@pytest.mark.parametrize(("apart", "fires"), [(True, False), (False, True), (None, True)])
def test_a_gauge_that_leaves_out_prompts_being_read_proves_no_short_batch(apart: bool | None, fires: bool) -> None:
    trial = trial_in_memory({**SIXTEEN, "server.answering": 12.5}, facts={"cap": 32, "running_without_prompts": apart})
    assert (below_load(trial, Context()) is not None) == fires
