"""Requests that failed, and trials in which nothing was completed."""

from __future__ import annotations

import pytest

from lab.audit.base import INVALID, WARNING, Code, Context
from lab.audit.client import failed_requests, nothing_completed
from tests.builders import trial_in_memory


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
