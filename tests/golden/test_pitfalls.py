"""Every code fires in its scenario and only there; the table: `python -m tests.golden.pitfalls`."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from lab.audit.base import CHECKS, LAUNCH_CHECKS
from tests.golden.scenarios import SCENARIOS
from tests.golden.stage import Played
from tests.golden.theatre import FIRES, SILENT, play_all

Outcomes = Mapping[tuple[str, str], Played | Exception]
ELSEWHERE = {"machine-shared"}
"""Codes about the machine of the tests itself, which no simulated server can stage: see tests/live."""


@pytest.fixture(scope="module")
def outcomes() -> Outcomes:
    """All scenes, played once."""
    return {(scenario.name, scene): outcome for scenario, scene, outcome in play_all(SCENARIOS)}


def test_every_code_has_a_scenario():
    registered = {*CHECKS, *LAUNCH_CHECKS}
    staged = [scenario.code for scenario in SCENARIOS]
    assert registered - ELSEWHERE - set(staged) == set()
    names = [scenario.name for scenario in SCENARIOS]
    assert len(set(names)) == len(names)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_fires_in_its_scenario(scenario, outcomes: Outcomes):
    outcome = outcomes[scenario.name, FIRES]
    assert not isinstance(outcome, Exception), outcome
    assert scenario.problem_firing(outcome) is None


@pytest.mark.timeout(900)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_is_silent_close_by(scenario, outcomes: Outcomes):
    outcome = outcomes[scenario.name, SILENT]
    assert not isinstance(outcome, Exception), outcome
    assert scenario.problem_silent(outcome) is None
