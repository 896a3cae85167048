"""Who launches next: an order that favours nobody, and no launch too many or too few."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab import plan
from lab.campaign import CONTROL, Campaign
from lab.plan import JUDGED, MATCHED, SWEEP, LeverPlan, Owed, Step
from lab.records import CLOSING, OPENING, RESUMED, TREATMENT, Launch
from tests.builders import (
    TRIAL,
    RunBuilder,
    changed,
    control_arm,
    launch_record,
    lever_plan,
    write_campaign,
    write_launch,
)

NAMES = st.lists(st.text("abcdefgh_", min_size=1, max_size=6), unique=True, max_size=9)
BASELINE = "00_baseline"


def launched(name: str, pass_number: int, role: str, **values: Any) -> Launch:
    record = launch_record(control_arm(name=name), **{"pass": pass_number}, role=role, **values)
    return Launch(Path(f"000-{name}"), record)


def levers(*names: str) -> list[LeverPlan]:
    return [lever_plan(name) for name in names]


def short(steps: Sequence[Step]) -> list[tuple[str, int, str]]:
    return [(step.lever, step.pass_number, step.role) for step in steps]


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return Campaign.load(write_campaign(tmp_path))


@given(NAMES, st.integers(1, 20))
def test_every_pass_holds_every_lever_once(names: list[str], pass_number: int) -> None:
    assert sorted(plan.lever_order(names, pass_number)) == sorted(names)


@given(NAMES.filter(bool), st.integers(1, 8).map(lambda half: 2 * half))
def test_over_an_even_number_of_passes_every_lever_stands_in_the_middle_on_average(
    names: list[str], passes: int
) -> None:
    orders = [plan.lever_order(names, number) for number in range(1, passes + 1)]
    for name in names:
        assert fmean(order.index(name) for order in orders) == pytest.approx((len(names) - 1) / 2)


@given(NAMES.filter(bool))
def test_over_twice_as_many_passes_as_levers_every_lever_stands_everywhere_equally_often(names: list[str]) -> None:
    orders = [plan.lever_order(names, number) for number in range(1, 2 * len(names) + 1)]
    for name in names:
        assert sorted(order.index(name) for order in orders) == sorted(2 * list(range(len(names))))


def test_the_first_pass_keeps_the_order_of_the_file_and_the_second_reverses_it() -> None:
    assert plan.lever_order(["a", "b", "c"], 1) == ["a", "b", "c"]
    assert plan.lever_order(["a", "b", "c"], 2) == ["c", "b", "a"]
    assert plan.lever_order(["a", "b", "c"], 3) == ["b", "c", "a"]


def test_the_first_pass_opens_and_closes_with_a_control() -> None:
    assert plan.next_pass(levers("a", "b"), 1, []) == [
        Step("baseline", BASELINE, 0, OPENING),
        Step("a", "09_custom", 1, TREATMENT),
        Step("b", "09_custom", 1, TREATMENT),
        Step("baseline", BASELINE, 1, CLOSING),
    ]


def test_the_closing_control_of_one_pass_opens_the_next() -> None:
    done = [
        launched(CONTROL, 0, OPENING),
        launched("a", 1, TREATMENT),
        launched("b", 1, TREATMENT),
        launched(CONTROL, 1, CLOSING),
    ]
    assert short(plan.next_pass(levers("a", "b"), 2, done)) == [
        ("b", 2, TREATMENT),
        ("a", 2, TREATMENT),
        ("baseline", 2, CLOSING),
    ]


def test_nothing_is_owed_after_the_closing_control() -> None:
    done = [launched(CONTROL, 0, OPENING), launched("a", 1, TREATMENT), launched(CONTROL, 1, CLOSING)]
    assert plan.next_pass(levers("a"), 1, done) == []
    assert plan.next_pass(levers("a", "never launched"), 1, done) == []


def test_an_interrupted_pass_goes_on_after_a_fresh_control() -> None:
    done = [launched(CONTROL, 0, OPENING), launched("a", 1, TREATMENT)]
    assert short(plan.next_pass(levers("a", "b", "c"), 1, done)) == [
        ("baseline", 1, RESUMED),
        ("b", 1, TREATMENT),
        ("c", 1, TREATMENT),
        ("baseline", 1, CLOSING),
    ]


def test_a_pass_that_lacks_only_its_closing_control_gets_no_second_one() -> None:
    done = [launched(CONTROL, 0, OPENING), launched("a", 1, TREATMENT)]
    assert short(plan.next_pass(levers("a"), 1, done)) == [("baseline", 1, CLOSING)]


def test_an_opening_control_that_failed_opens_nothing() -> None:
    done = [launched(CONTROL, 0, OPENING, state="failed")]
    assert short(plan.next_pass(levers("a"), 1, done))[0] == ("baseline", 0, OPENING)


def test_a_closing_control_that_failed_closes_nothing() -> None:
    done = [
        launched(CONTROL, 0, OPENING),
        launched("a", 1, TREATMENT),
        launched(CONTROL, 1, CLOSING, state="failed"),
    ]
    assert short(plan.next_pass(levers("a"), 1, done)) == [("baseline", 1, CLOSING)]


def test_a_lever_with_two_treatments_is_done_when_both_were_launched() -> None:
    arms = tuple(control_arm(name=name).model_dump() for name in ("a-x", "a-y"))
    both = [lever_plan("a", arms=arms)]
    half = [launched(CONTROL, 0, OPENING), launched("a-x", 1, TREATMENT)]
    assert ("a", 1, TREATMENT) in short(plan.next_pass(both, 1, half))
    assert ("a", 1, TREATMENT) not in short(plan.next_pass(both, 1, [*half, launched("a-y", 1, TREATMENT)]))


def test_a_search_launch_is_no_treatment_of_the_pass() -> None:
    done = [launched(CONTROL, 0, OPENING), launched("a", 1, "search")]
    assert short(plan.next_pass(levers("a"), 1, done)) == [("a", 1, TREATMENT), ("baseline", 1, CLOSING)]


def test_the_first_launch_of_an_arm_owes_the_judged_level_and_every_other_one(campaign: Campaign) -> None:
    assert plan.owed_trials(campaign, "fewer_slots", []) == [Owed("chat", 4, JUDGED), Owed("chat", 1, SWEEP)]


def test_later_launches_owe_the_judged_level_only(campaign: Campaign, tmp_path: Path) -> None:
    sweep = changed(TRIAL, {"concurrency": 1, "purpose": SWEEP})
    first = write_launch(tmp_path / "000-control", trials=(TRIAL, sweep))
    assert plan.owed_trials(campaign, CONTROL, [first]) == [Owed("chat", 4, JUDGED)]
    assert Owed("chat", 1, SWEEP) in plan.owed_trials(campaign, "fewer_slots", [first])


def test_a_sweep_of_a_launch_that_died_is_owed_again(campaign: Campaign, tmp_path: Path) -> None:
    sweep = changed(TRIAL, {"concurrency": 1, "purpose": SWEEP})
    died = write_launch(tmp_path / "000-control", trials=(TRIAL, sweep), state="died")
    assert Owed("chat", 1, SWEEP) in plan.owed_trials(campaign, CONTROL, [died])


def test_matched_batches_are_owed_by_controls_only(campaign: Campaign) -> None:
    owed = plan.owed_trials(campaign, CONTROL, [], matched_batches=[2, 2, 3])
    assert [trial for trial in owed if trial.purpose == MATCHED] == [Owed("chat", 2, MATCHED), Owed("chat", 3, MATCHED)]
    assert all(trial.purpose != MATCHED for trial in plan.owed_trials(campaign, "fewer_slots", [], [2]))


def test_a_matched_window_has_a_folder_of_its_own(campaign: Campaign) -> None:
    owed = plan.owed_trials(campaign, CONTROL, [], matched_batches=[1])
    assert [trial.name for trial in owed] == ["chat-c4", "chat-c1", "chat-c1-matched"]


@given(st.integers(0, 6), st.integers(1, 8))
def test_estimates_grow_with_passes_and_levers(count: int, passes: int) -> None:
    file = _FILE
    some = levers(*(f"lever{n}" for n in range(count)))
    less, more = plan.estimate(file, some, passes), plan.estimate(file, some, passes + 1)
    larger = plan.estimate(file, [*some, lever_plan("another")], passes)
    for other in (more, larger):
        assert other.launches > less.launches
        assert other.seconds > less.seconds
        assert other.disk_bytes > less.disk_bytes


def test_levers_share_their_controls() -> None:
    assert plan.estimate(_FILE, levers("a", "b", "c"), 2).launches == 2 * 4 + 1


def test_searches_are_counted_and_levers_that_do_not_apply_are_not() -> None:
    searching = [lever_plan("a", searches=3)]
    absent = [lever_plan("a"), lever_plan("b", arms=(), not_applicable="one device")]
    one = plan.estimate(_FILE, levers("a"), 2).launches
    assert plan.estimate(_FILE, searching, 2).launches == one + 3
    assert plan.estimate(_FILE, absent, 2).launches == one


def test_a_plan_reads_back_as_it_was_written() -> None:
    some = [*levers("a", "b"), lever_plan("c", arms=(), not_applicable="one device")]
    written = plan.dump(some, 2, "campaign", plan.estimate(_FILE, some, 2))
    assert plan.load_levers(written) == some
    assert written["order"] == {"1": ["a", "b"], "2": ["b", "a"]}


def test_past_launches_and_limits_change_the_estimate(tmp_path: Path) -> None:
    lever = LeverPlan("a", "09_custom", "A", ({"name": "a"},))
    build = RunBuilder(tmp_path, [lever_plan("mtp")])
    build.launch("control", 0, "opening", timings={"seconds": 3.0 + 6.0 + 50.0})
    assumed = plan.estimate(_FILE, [lever], 2)
    known = plan.estimate(_FILE, [lever], 2, past=build.run.launches())
    longest = plan.estimate(_FILE, [lever], 2, longest=True)
    assert known.launches == assumed.launches == longest.launches == 5
    assert known.seconds > assumed.seconds + 5 * 40
    assert longest.seconds >= 5 * (60 + 20)


class _Stand:
    """A campaign's figures, without a file for every example that hypothesis makes."""

    def __init__(self) -> None:
        from lab.campaign import Limits, Window, Workload

        self.window = Window(warmup_seconds=1, seconds=2, min_steady_seconds=1)
        self.limits = Limits(start_seconds=60, stall_seconds=30, drain_seconds=20)
        self.workloads = {"chat": Workload(kind="chat", output_tokens=16, concurrency=[1, 4])}


_FILE: Any = _Stand()
