"""An ad-hoc lever is believed only where the server shows every change, or the file names other evidence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lab.levers.base import Proof
from lab.levers.custom import Custom
from lab.records import Launch
from tests.builders import StubEngine, control_arm

Make = Callable[..., Launch]
ENGINE = StubEngine()  # shows the flag `slots` and the variable WAIT, not `hidden`


def make(treatment: dict[str, Any], **options: Any) -> Custom:
    return Custom("mine", Custom.Options(title="Mine", treatment=treatment, **options))


def prove(lever: Custom, launch: Make, before: dict[str, Any], after: dict[str, Any], log: str = "") -> Proof:
    return lever.proof(launch(before), launch(after, log=log), ENGINE)


def test_the_treatment_is_the_control_with_the_changes_of_the_file() -> None:
    control = control_arm(flags={"slots": 4, "x": 1}, env={"A": "1", "B": "2"}, runtime={"python": "p"})
    change = {"flags": {"slots": 2, "x": None}, "env": {"A": None}, "checkpoint": "b", "runtime": {"release": "2"}}
    (arm,) = make(change).treatments(control, ENGINE)
    assert (arm.flags, arm.env, arm.checkpoint) == ({"slots": 2}, {"B": "2"}, "b")
    assert (arm.runtime, arm.name, arm.treatment) == ({"python": "p", "release": "2"}, "mine", "Mine")


def test_a_flag_that_differs_in_what_the_servers_report_is_proof(launch: Make) -> None:
    proof = prove(make({"flags": {"slots": 2}}), launch, {"n_slots": 4}, {"n_slots": 2})
    assert proof == Proof(True, "slots: n_slots 4 → 2")


def test_a_flag_that_the_server_ignored_is_refused(launch: Make) -> None:
    proof = prove(make({"flags": {"slots": 2}}), launch, {"n_slots": 4}, {"n_slots": 4})
    assert proof == Proof(False, "asked slots 2, the server uses n_slots 4; ask for what it can do")


def test_a_flag_that_the_engine_does_not_show_is_refused_and_says_what_to_do(launch: Make) -> None:
    proof = prove(make({"flags": {"hidden": 1}}), launch, {}, {})
    assert proof == Proof(False, "stub does not show hidden; give the lever a proof or proof_log")


def test_a_flag_that_this_server_does_not_report_is_refused(launch: Make) -> None:
    assert not prove(make({"flags": {"slots": 2}}), launch, {"n_slots": 4}, {}).applied


def test_every_changed_flag_must_be_shown(launch: Make) -> None:
    proof = prove(make({"flags": {"slots": 2, "hidden": 1}}), launch, {"n_slots": 4}, {"n_slots": 2})
    assert proof == Proof(False, "stub does not show hidden; give the lever a proof or proof_log")


def test_a_variable_that_the_engine_shows_is_proof(launch: Make) -> None:
    lever = make({"env": {"WAIT": "active"}})
    assert prove(lever, launch, {"wait_policy": None}, {"wait_policy": "active"}).applied
    assert not prove(lever, launch, {"wait_policy": "active"}, {"wait_policy": "active"}).applied


def test_a_variable_that_the_engine_does_not_show_is_refused(launch: Make) -> None:
    proof = prove(make({"env": {"SECRET_KNOB": "1"}}), launch, {}, {})
    assert proof == Proof(False, "stub does not show SECRET_KNOB; give the lever a proof or proof_log")


def test_a_declared_fact_proves_what_the_engine_does_not_show(launch: Make) -> None:
    lever = make({"flags": {"hidden": 1}, "env": {"KNOB": "1"}}, proof={"mode": "fast"})
    assert prove(lever, launch, {"mode": "slow"}, {"mode": "fast"}) == Proof(True, "mode is fast, expected fast")
    assert prove(lever, launch, {"mode": "slow"}, {"mode": "slow"}) == Proof(False, "mode is slow, expected fast")
    assert prove(lever, launch, {}, {}) == Proof(False, "mode is None, expected fast")


def test_a_line_of_the_log_proves_what_the_engine_does_not_show(launch: Make) -> None:
    lever = make({"flags": {"hidden": 1}}, proof_log="hidden path on")
    found = prove(lever, launch, {}, {}, log="start\nhidden path on\n")
    assert found == Proof(True, "the log holds 'hidden path on'")
    assert prove(lever, launch, {}, {}, log="start\n") == Proof(False, "the log does not hold 'hidden path on'")


def test_every_declared_evidence_must_be_there(launch: Make) -> None:
    lever = make({"flags": {"hidden": 1}}, proof={"mode": "fast"}, proof_log="hidden path on")
    assert not prove(lever, launch, {}, {"mode": "fast"}, log="start\n").applied
    assert prove(lever, launch, {}, {"mode": "fast"}, log="hidden path on\n").applied


def test_declared_evidence_does_not_excuse_a_flag_that_the_server_shows_unchanged(launch: Make) -> None:
    lever = make({"flags": {"slots": 2, "hidden": 1}}, proof={"mode": "fast"})
    assert prove(lever, launch, {"n_slots": 4}, {"n_slots": 4, "mode": "fast"}) == Proof(
        False, "asked slots 2, the server uses n_slots 4; ask for what it can do"
    )
    assert prove(lever, launch, {"n_slots": 4}, {"n_slots": 2, "mode": "fast"}).applied


def test_another_checkpoint_is_proven_by_its_format(launch: Make) -> None:
    lever = make({"checkpoint": "b.gguf"})
    assert prove(lever, launch, {"checkpoint_format": "Q4_1"}, {"checkpoint_format": "Q4_0"}).applied
    assert not prove(lever, launch, {"checkpoint_format": "Q4_1"}, {"checkpoint_format": "Q4_1"}).applied


def test_a_checkpoint_of_the_same_format_is_proven_by_what_the_file_names(launch: Make) -> None:
    lever = make({"checkpoint": "b.gguf"}, proof={"checkpoint_path": "b.gguf"})
    same = {"checkpoint_format": "Q4_1"}
    assert prove(lever, launch, same, {**same, "checkpoint_path": "b.gguf"}).applied
    assert not prove(lever, launch, same, {**same, "checkpoint_path": "a.gguf"}).applied


def test_another_build_is_proven_by_what_the_server_says_of_itself(launch: Make) -> None:
    lever = make({"runtime": {"release": "2"}})
    assert prove(lever, launch, {"build": "stub 1"}, {"build": "stub 2"}).applied
    assert not prove(lever, launch, {"build": "stub 1"}, {"build": "stub 1"}).applied


@pytest.mark.parametrize("proof", [{"proof": {}}, {}])
def test_a_lever_without_any_change_proves_nothing(launch: Make, proof: dict[str, Any]) -> None:
    assert not prove(make({}, **proof), launch, {}, {}).applied


def test_a_number_that_the_server_replaced_is_not_proven(launch: Make) -> None:
    proof = prove(make({"flags": {"slots": 3}}), launch, {"n_slots": 4}, {"n_slots": 8})
    assert proof == Proof(False, "asked slots 3, the server uses n_slots 8; ask for what it can do")
