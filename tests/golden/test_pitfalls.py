"""Every code fires in its scenario and only there; the table: `python -m tests.golden.pitfalls`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from lab.audit.base import CHECKS, LAUNCH_CHECKS
from tests.golden.scenario import Scenario
from tests.golden.scenarios import SCENARIOS
from tests.golden.stage import Played
from tests.golden.theatre import FIRES, SILENT, play_all

Outcomes = Mapping[tuple[str, str], Played | Exception]
ELSEWHERE = {"machine-shared"}
"""Codes about the machine of the tests itself, which no simulated server can stage: see tests/live."""


CORE = ("batch-cap", "foreign-traffic", "lever-not-applied", "prefix-contamination", "count-mismatch")
"""What everybody runs: the promises of the first page. The mark `golden` plays them all."""
SLOW = [pytest.mark.timeout(1500), pytest.mark.golden]


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> Outcomes:
    """The scenes that were asked for, played once."""
    wanted = {
        item.callspec.params["scenario"].name for item in request.session.items if "outcomes" in item.fixturenames
    }
    scenarios = [scenario for scenario in SCENARIOS if scenario.name in wanted]
    return {(scenario.name, scene): outcome for scenario, scene, outcome in play_all(scenarios)}


def test_every_code_has_a_scenario():
    registered = {*CHECKS, *LAUNCH_CHECKS}
    staged = [scenario.code for scenario in SCENARIOS]
    assert registered - ELSEWHERE - set(staged) == set()
    names = [scenario.name for scenario in SCENARIOS]
    assert len(set(names)) == len(names)


def cases() -> list[Any]:
    """One scenario of each core code by default, all the others under the mark."""
    first = {scenario.code: scenario.name for scenario in reversed(SCENARIOS) if scenario.code in CORE}
    return [
        pytest.param(scenario, id=scenario.name, marks=[] if scenario.name in first.values() else SLOW)
        for scenario in SCENARIOS
    ]


@pytest.mark.parametrize("scenario", cases())
def test_fires_in_its_scenario(scenario: Scenario, outcomes: Outcomes):
    outcome = outcomes[scenario.name, FIRES]
    assert not isinstance(outcome, Exception), outcome
    assert scenario.problem_firing(outcome) is None


@pytest.mark.parametrize("scenario", cases())
def test_is_silent_close_by(scenario: Scenario, outcomes: Outcomes):
    outcome = outcomes[scenario.name, SILENT]
    assert not isinstance(outcome, Exception), outcome
    assert scenario.problem_silent(outcome) is None
