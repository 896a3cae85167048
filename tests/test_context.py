"""Each trial is audited beside the right control: valid, near, of its own pass and load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab import context
from lab.audit import Context
from lab.campaign import CONTROL
from lab.records import CLOSING, MATCHED, OPENING, RESUMED, SEARCH, SWEEP, TREATMENT, Trial
from tests.builders import TRIAL, RunBuilder, changed, lever_plan


class Seen:
    """Contexts by trial, as the audit was given them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.contexts: dict[str, Context] = {}
        real = context.audit

        def audit(trial: Trial, given: Context) -> Any:
            self.contexts[trial.id] = given
            return real(trial, given)

        monkeypatch.setattr(context, "audit", audit)

    def run(self, build: RunBuilder) -> None:
        context.audit_run(build.run.launches(), None, 5.0)

    def control(self, name: str) -> str | None:
        found = self.contexts[f"{name}/chat-c4"].control
        return found.launch.id if found else None


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    return Seen(monkeypatch)


@pytest.fixture
def build(tmp_path: Path) -> RunBuilder:
    return RunBuilder(tmp_path, [lever_plan(name) for name in ("mtp", "graphs")])


def test_the_control_is_the_nearest_of_the_same_pass(build: RunBuilder, seen: Seen) -> None:
    build.passes(2, {"mtp": 120, "graphs": 100})
    seen.run(build)
    assert [seen.control(name) for name in ("001-mtp", "002-graphs")] == ["003-control"] * 2
    assert [seen.control(name) for name in ("004-mtp", "005-graphs")] == ["006-control"] * 2


def test_within_a_pass_the_nearer_of_two_controls_counts(build: RunBuilder, seen: Seen) -> None:
    build.launch(CONTROL, 0, OPENING)
    for name, role in ((CONTROL, RESUMED), ("mtp", TREATMENT), ("graphs", TREATMENT), (CONTROL, CLOSING)):
        build.launch(name, 1, role)
    seen.run(build)
    assert (seen.control("002-mtp"), seen.control("003-graphs")) == ("001-control", "004-control")


def test_before_its_pass_is_closed_a_treatment_has_the_control_before_it(build: RunBuilder, seen: Seen) -> None:
    build.launch(CONTROL, 0, OPENING)
    build.launch("mtp", 1, TREATMENT)
    seen.run(build)
    assert seen.control("001-mtp") == "000-control"


def test_a_control_is_set_against_those_before_it(build: RunBuilder, seen: Seen) -> None:
    build.passes(2, {"mtp": 120})
    seen.run(build)
    found = [seen.control(name) for name in ("000-control", "002-control", "004-control")]
    assert found == [None, "000-control", "002-control"]


def test_a_control_that_is_invalid_or_died_is_nobodys_control(build: RunBuilder, seen: Seen) -> None:
    build.launch(CONTROL, 0, OPENING)
    build.launch("mtp", 1, TREATMENT)
    build.launch(CONTROL, 1, CLOSING, changes={"server.idle_running_max": 1.0})
    failure = {"kind": "crashed", "reason": "why", "detail": ""}
    build.launch(CONTROL, 1, CLOSING, state="died", failure=failure)
    seen.run(build)
    assert seen.control("001-mtp") == "000-control"
    assert seen.contexts["001-mtp/chat-c4"].controls == 1


def test_only_trials_of_the_same_load_and_purpose_are_compared(build: RunBuilder, seen: Seen) -> None:
    sweep = changed(TRIAL, {"concurrency": 1, "purpose": SWEEP, "window.opened_s": 5000.0})
    matched = changed(TRIAL, {"concurrency": 2, "purpose": MATCHED, "window.opened_s": 6000.0})
    build.launch(CONTROL, 0, OPENING, more=[sweep])
    build.launch("mtp", 1, TREATMENT, more=[changed(sweep, {"window.opened_s": 7000.0})])
    build.launch(CONTROL, 1, CLOSING, more=[matched])
    seen.run(build)
    lone = seen.contexts["001-mtp/chat-c1"].control
    assert lone is not None and lone.id == "000-control/chat-c1"
    assert seen.contexts["002-control/chat-c2-matched"].control is None


def test_repeats_are_the_valid_ones_before(build: RunBuilder, seen: Seen) -> None:
    for number in (1, 2, 3):
        changes = {"server.idle_running_max": 1.0} if number == 2 else {}
        build.launch("mtp", number, TREATMENT, changes=changes)
    seen.run(build)
    assert [trial.launch.id for trial in seen.contexts["002-mtp/chat-c4"].repeats] == ["000-mtp"]


def test_a_search_is_compared_with_nothing_and_counted(build: RunBuilder, seen: Seen) -> None:
    build.launch(CONTROL, 0, OPENING)
    for _ in range(2):
        build.launch("mtp", 1, SEARCH)
    build.launch("mtp", 1, TREATMENT)
    build.launch("graphs", 1, TREATMENT)
    seen.run(build)
    assert seen.control("001-mtp") is None
    winner, other = (seen.contexts[f"{name}/chat-c4"] for name in ("003-mtp", "004-graphs"))
    assert (winner.candidates, winner.fresh, other.candidates) == (2, 1, 0)


@pytest.mark.parametrize(
    ("before", "after", "changes"), [(False, True, True), (None, False, False), (True, True, False)]
)
def test_speculation_is_the_lever_when_the_servers_say_so(
    build: RunBuilder, seen: Seen, before: bool | None, after: bool, changes: bool
) -> None:
    build.launch(CONTROL, 0, OPENING, facts={"speculative": before})
    build.launch("mtp", 1, TREATMENT, facts={"speculative": after})
    seen.run(build)
    assert seen.contexts["001-mtp/chat-c4"].lever_changes_speculation == changes
