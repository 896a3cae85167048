"""A treatment whose effect on the server is not proven is invalid, whatever its throughput."""

from __future__ import annotations

from typing import Any

import pytest

from lab.audit.base import INVALID, Code, Context
from lab.audit.effect import lever_not_applied
from lab.records import CLOSING, OPENING, RESUMED, SEARCH, TREATMENT
from tests.builders import trial_in_memory


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
