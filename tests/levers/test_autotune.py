"""A short search whose winner is measured afresh."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from lab.campaign import Arm
from lab.levers.autotune import Autotune
from lab.records import Launch
from tests.builders import MODEL, StubEngine, control_arm

Make = Callable[..., Launch]
ENGINE = StubEngine("llamacpp")
CONTROL = control_arm(flags={"n_threads": 1, "n_parallel": 4})


@pytest.fixture
def lever() -> Autotune:
    return Autotune("autotune", Autotune.Options())


def search(lever: Autotune, score: Callable[[Arm], float]) -> list[Arm]:
    """Every candidate that the search tries until it ends."""
    scores: list[tuple[Arm, float]] = []
    while (candidate := lever.propose(CONTROL, ENGINE, scores)) is not None:
        scores.append((candidate, score(candidate)))
        assert len(scores) <= lever.searches
    return [arm for arm, _ in scores]


@pytest.mark.parametrize(("best", "loser"), [("active", "passive"), ("passive", "active")])
def test_the_search_tries_both_wait_policies_and_refines_the_better(
    lever: Autotune, monkeypatch: pytest.MonkeyPatch, best: str, loser: str
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    tried = search(lever, lambda arm: 2.0 if arm.env["OMP_WAIT_POLICY"] == best else 1.0)
    assert [arm.env["OMP_WAIT_POLICY"] for arm in tried] == ["active", "passive", best]
    assert [arm.flags["n_threads"] for arm in tried] == [8, 8, 8]
    assert ["n_ubatch" in arm.flags for arm in tried] == [False, False, True]
    assert len(tried) == lever.searches


def test_on_one_core_there_is_only_one_candidate(lever: Autotune, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    tried = search(lever, lambda arm: 1.0)
    assert [(arm.flags["n_threads"], arm.flags["n_ubatch"]) for arm in tried] == [(1, 64)]


def test_candidates_differ_from_the_control_and_from_each_other(
    lever: Autotune, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    tried = search(lever, lambda arm: 1.0)
    assert len({arm.digest for arm in tried} | {CONTROL.digest}) == len(tried) + 1
    assert all(arm.flags["n_parallel"] == 4 for arm in tried)


def test_a_search_goes_on_where_its_records_end(lever: Autotune, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    tried = search(lever, lambda arm: 1.0)
    assert lever.propose(CONTROL, ENGINE, [(tried[0], 1.0)]) == tried[1]


def test_it_applies_where_a_search_is_defined(lever: Autotune) -> None:
    assert lever.not_applicable(ENGINE, MODEL) is None
    assert lever.not_applicable(StubEngine("sglang"), MODEL) == "no search is defined for sglang"


def test_the_plan_holds_one_arm_before_the_search(lever: Autotune) -> None:
    arms = lever.treatments(CONTROL, ENGINE)
    assert [(arm.name, arm.treatment) for arm in arms] == [("autotune", "best found")]


ASKED: dict[str, Any] = {"flags": {"n_threads": 2, "n_ubatch": 64}, "env": {"OMP_WAIT_POLICY": "passive"}}
BEFORE = {"n_threads": 1, "n_ubatch": 512, "omp_wait_policy": None}


def test_settings_that_the_server_reports_are_proof(lever: Autotune, launch: Make) -> None:
    after = launch({"n_threads": 2, "n_ubatch": 64, "omp_wait_policy": "passive"}, **ASKED)
    proof = lever.proof(launch(BEFORE), after, ENGINE)
    assert proof.applied
    assert proof.text == "n_threads 1 → 2; n_ubatch 512 → 64; OMP_WAIT_POLICY None → passive"


@pytest.mark.parametrize("ignored", ["n_threads", "n_ubatch", "omp_wait_policy"])
def test_a_setting_that_the_server_ignored_is_no_proof(lever: Autotune, launch: Make, ignored: str) -> None:
    facts = {"n_threads": 2, "n_ubatch": 64, "omp_wait_policy": "passive", ignored: BEFORE[ignored]}
    proof = lever.proof(launch(BEFORE), launch(facts, **ASKED), ENGINE)
    assert not proof.applied
    assert proof.text.startswith("asked ") and proof.text.endswith(f"the server reports {BEFORE[ignored]}")
