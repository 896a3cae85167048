"""Every check is found by registration, fires on its own fault, and is silent over a clean trial."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import audit
from lab.audit import base, thresholds
from lab.audit.base import CHECKS, FINDING, INVALID, WARNING
from tests.builders import trial_in_memory

KNOWN = {
    "batch-cap",
    "count-mismatch",
    "failed-requests",
    "foreign-traffic",
    "gate-misaligned",
    "lever-not-applied",
    "metric-absent",
    "nothing-completed",
}


def test_the_checks_of_every_module_are_known() -> None:
    assert set(CHECKS) >= KNOWN


def test_a_clean_trial_raises_nothing() -> None:
    assert audit.audit(trial_in_memory()) == []


def test_a_bad_trial_raises_every_code_that_applies() -> None:
    trial = trial_in_memory({"client.failed": 100, "client.errors": {"timeout": 100}, "server.running": None})
    assert {code.code for code in audit.audit(trial)} == {"failed-requests", "metric-absent", "count-mismatch"}


def test_a_code_defined_twice_is_an_error_of_the_program() -> None:
    with pytest.raises(ValueError, match="two checks are called batch-cap"):
        base.check("batch-cap")(lambda trial, context: None)


@pytest.mark.parametrize(
    "changes",
    [
        {"server.idle_running_max": 2.0},
        {"client.failed": 100, "client.errors": {"timeout": 100}},
        {"client.window_tokens": 0},
        {"server.samples": 3},
        {"server.waiting": None},
        {"server.delta": {}},
        {"server.running": 2.0},
    ],
)
def test_codes_are_a_severity_and_one_sentence_with_figures_of_json(changes: dict[str, object]) -> None:
    codes = audit.audit(trial_in_memory(changes, facts={"cap": 2}))
    assert codes
    for code in codes:
        assert code.severity in (INVALID, WARNING, FINDING)
        assert code.text and "\n" not in code.text
        assert all(value is None or isinstance(value, int | float | str) for value in code.figures.values())


def test_every_limit_stands_in_one_file() -> None:
    names = [name for name in vars(thresholds) if name.isupper()]
    for path in Path(thresholds.__file__).parent.glob("*.py"):
        if path.name != "thresholds.py":
            assert not [name for name in names if f"\n{name} =" in path.read_text()]
