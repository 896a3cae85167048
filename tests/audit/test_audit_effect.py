"""A treatment whose effect on the server is not proven is invalid; decoding off the captured graphs is told."""

from __future__ import annotations

from typing import Any

import pytest

from lab.audit.base import INVALID, WARNING, Code, Context
from lab.audit.effect import graph_miss, lever_not_applied
from lab.audit.thresholds import EAGER_SHARE
from lab.records import CLOSING, OPENING, RESUMED, SEARCH, TREATMENT
from tests.builders import control_arm, trial_in_memory


def proven(proof: dict[str, Any] | None, role: str = TREATMENT) -> Code | None:
    return lever_not_applied(trial_in_memory(proof=proof, role=role), Context())


@pytest.mark.parametrize("role", [OPENING, CLOSING, RESUMED, SEARCH])
def test_a_control_and_a_search_need_no_proof(role: str) -> None:
    assert proven(None, role) is None


def test_a_treatment_without_any_proof_is_invalid() -> None:
    code = proven(None)
    assert code is not None and code.severity == INVALID and "no control to compare" in code.text


def test_a_proven_lever_is_silent() -> None:
    assert proven({"applied": True, "text": "n_slots 4 → 2"}) is None


@pytest.mark.parametrize("applied", [False, None])
def test_a_lever_that_is_not_proven_is_invalid_with_the_reason_of_its_proof(applied: bool | None) -> None:
    code = proven({"applied": applied, "text": "both servers report n_slots 4"})
    assert code == Code("lever-not-applied", INVALID, "both servers report n_slots 4")


@pytest.mark.parametrize(
    ("facts", "changes", "fires"),
    [
        ({"graphs": True, "graph_max_batch": 32}, {"server.running_p95": 32.0}, False),
        ({"graphs": True, "graph_max_batch": 32}, {"server.running_p95": 33.0}, True),
        ({"graph_max_batch": 32}, {"server.running_p95": 64.0}, True),
        ({"graphs": False, "graph_max_batch": 32}, {"server.running_p95": 64.0}, False),
        ({"graphs": True}, {"server.running_p95": 64.0}, False),
        ({"graphs": True, "graph_max_batch": 32}, {"server.running_p95": None}, False),
        ({"graph_max_batch": 4, "ranks": 2}, {"server.running_p95": 8.0, "server.rank_running_p95": 4.0}, False),
        ({"graph_max_batch": 4, "ranks": 2}, {"server.running_p95": 8.0, "server.rank_running_p95": 5.0}, True),
        ({"graph_max_batch": 4, "ranks": 2}, {"server.running_p95": 8.0}, False),
        ({"graph_max_batch": 4, "ranks": 2}, {"server.running_p95": 9.0}, True),
        ({"graphs": True}, {"server.delta": {"eager_steps": 1000 * EAGER_SHARE, "graph_steps": 950.0}}, False),
        ({"graphs": True}, {"server.delta": {"eager_steps": 1000 * EAGER_SHARE + 1, "graph_steps": 949.0}}, True),
        ({"graphs": False}, {"server.delta": {"eager_steps": 1000.0, "graph_steps": 0.0}}, False),
    ],
)
def test_decoding_off_the_captured_graphs(facts: dict[str, Any], changes: dict[str, Any], fires: bool) -> None:
    code = graph_miss(trial_in_memory(changes, facts), Context())
    assert (code is not None) == fires
    assert code is None or (code.code, code.severity) == ("graph-miss", WARNING)


@pytest.mark.parametrize(("lever", "fires"), [("mtp", True), ("cuda_graphs", False)])
def test_an_arm_that_lost_its_graphs_to_another_lever(lever: str, fires: bool) -> None:
    arm = control_arm(name=lever, lever=lever, treatment=f"{lever} on")
    trial, control = trial_in_memory(facts={"graphs": False}, arm=arm), trial_in_memory(facts={"graphs": True})
    assert (graph_miss(trial, Context(control=control)) is not None) == fires
    assert graph_miss(trial, Context()) is None
