"""Graphs, speculation, cache type and checkpoint format: the treatment, when it applies, and its proof."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lab.levers import LEVERS
from lab.levers.base import Lever
from lab.records import Launch
from tests.builders import MODEL, StubEngine, control_arm

Make = Callable[..., Launch]
ENGINE = StubEngine("llamacpp", graph_mechanism="compute-graph reuse", speculative_methods=("ngram_simple",))


def make(name: str, **options: Any) -> Lever:
    kind = LEVERS[name]
    return kind(name, kind.Options(**options))


@pytest.mark.parametrize(("name", "options"), [("cuda_graphs", {}), ("mtp", {}), ("kv_cache_dtype", {"dtype": "q8_0"})])
def test_a_lever_applies_to_the_engines_it_has_a_treatment_for(name: str, options: dict[str, Any]) -> None:
    lever = make(name, **options)
    assert lever.not_applicable(ENGINE, MODEL) is None
    assert lever.not_applicable(StubEngine("sglang"), MODEL) == "no treatment is defined for sglang"


@pytest.mark.parametrize("name", ["cuda_graphs", "mtp"])
def test_a_lever_asks_the_engine_what_it_can(name: str) -> None:
    bare = StubEngine("llamacpp")
    assert "llamacpp has no" in (make(name).not_applicable(bare, MODEL) or "")


def test_another_checkpoint_can_be_served_by_every_engine() -> None:
    lever = make("nvfp4_checkpoint", checkpoint="b.gguf")
    assert lever.not_applicable(ENGINE, MODEL) is None
    assert lever.not_applicable(StubEngine("sglang"), MODEL) is None


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("cuda_graphs", {}),
        ("mtp", {}),
        ("kv_cache_dtype", {"dtype": "q8_0"}),
        ("nvfp4_checkpoint", {"checkpoint": "b.gguf"}),
    ],
)
def test_a_treatment_changes_the_control_and_keeps_the_rest(name: str, options: dict[str, Any]) -> None:
    control = control_arm(flags={"n_parallel": 4}, env={"A": "1"})
    (arm,) = make(name, **options).treatments(control, ENGINE)
    assert arm.digest != control.digest
    assert (arm.name, arm.lever, arm.flags["n_parallel"], arm.env["A"]) == (name, name, 4, "1")
    assert arm.treatment


# graphs


def test_graphs_are_turned_to_the_other_state_than_the_controls() -> None:
    lever = make("cuda_graphs")
    (off,) = lever.treatments(control_arm(), ENGINE)
    assert (off.env, off.treatment) == ({"LLAMA_GRAPH_REUSE_DISABLE": "1"}, "graph reuse off")
    (on,) = lever.treatments(control_arm(env={"LLAMA_GRAPH_REUSE_DISABLE": "1"}), ENGINE)
    assert (on.env, on.treatment) == ({}, "graph reuse on")


def test_graphs_that_were_reused_by_one_server_only_are_proof(launch: Make) -> None:
    control, treatment = (
        launch({"graph_reuse": True, "graphs_reused": 316}),
        launch({"graph_reuse": False, "graphs_reused": 0}),
    )
    proof = make("cuda_graphs").proof(control, treatment, ENGINE)
    assert proof.applied
    assert proof.text == "graph reuse on → off (log), graphs reused 316 → 0"
    assert make("cuda_graphs").proof(treatment, control, ENGINE).applied


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"graph_reuse": True, "graphs_reused": 316}, {"graph_reuse": True, "graphs_reused": 300}),
        ({"graph_reuse": True, "graphs_reused": 316}, {"graph_reuse": False, "graphs_reused": 12}),
        ({"graph_reuse": True, "graphs_reused": 0}, {"graph_reuse": False, "graphs_reused": 0}),
        ({"graph_reuse": None, "graphs_reused": 316}, {"graph_reuse": False, "graphs_reused": 0}),
        ({}, {}),
    ],
)
def test_graphs_whose_state_or_counter_did_not_move_are_no_proof(
    launch: Make, before: dict[str, Any], after: dict[str, Any]
) -> None:
    assert not make("cuda_graphs").proof(launch(before), launch(after), ENGINE).applied


# speculation


def test_speculation_sets_the_method_and_its_sizes() -> None:
    (arm,) = make("mtp", match_tokens=3, draft_tokens=5).treatments(control_arm(), ENGINE)
    assert arm.flags == {
        "speculative": "ngram_simple",
        "speculative.ngram_simple.size_n": 3,
        "speculative.ngram_simple.size_m": 5,
    }


def test_speculation_that_drafted_is_proven_with_its_acceptance(launch: Make) -> None:
    after = launch({"speculative": True}, delta={"draft_tokens": 200.0, "draft_accepted": 50.0})
    proof = make("mtp").proof(launch({"speculative": False}), after, ENGINE)
    assert proof.applied
    assert proof.text == "speculation off → on (/slots); accepted 50 of 200 drafted tokens (25%)"


def test_acceptance_that_the_server_does_not_count_is_none(launch: Make) -> None:
    after = launch({"speculative": True}, delta={"draft_tokens": 200.0})
    proof = make("mtp").proof(launch({"speculative": False}), after, ENGINE)
    assert (proof.applied, proof.text) == (True, "speculation off → on (/slots); accepted 0 of 200 drafted tokens (0%)")


@pytest.mark.parametrize("delta", [{}, {"draft_tokens": 0.0, "draft_accepted": 0.0}])
def test_speculation_that_never_drafted_is_no_proof(launch: Make, delta: dict[str, float]) -> None:
    proof = make("mtp").proof(launch({"speculative": False}), launch({"speculative": True}, delta=delta), ENGINE)
    assert (proof.applied, "it never fired on these prompts" in proof.text) == (False, True)


@pytest.mark.parametrize(("before", "after"), [(True, True), (False, False), (False, None), (True, False)])
def test_speculation_must_be_off_before_and_on_after(launch: Make, before: bool, after: bool | None) -> None:
    drafted = {"draft_tokens": 200.0, "draft_accepted": 50.0}
    proof = make("mtp").proof(launch({"speculative": before}), launch({"speculative": after}, delta=drafted), ENGINE)
    assert not proof.applied
    assert proof.text == f"speculation active: control {before}, treatment {after} (/slots)"


# the type of the cache


def kv(dtype: str | None, kv_bytes: int | None) -> dict[str, Any]:
    return {"kv_dtype_k": dtype, "kv_dtype_v": dtype, "kv_bytes": kv_bytes}


def test_a_cache_type_sets_keys_and_values() -> None:
    (arm,) = make("kv_cache_dtype", dtype="q4_0").treatments(control_arm(), ENGINE)
    assert arm.flags == {"cache_type_k": "q4_0", "cache_type_v": "q4_0"}


def test_another_type_and_size_of_the_cache_are_proof(launch: Make) -> None:
    lever = make("kv_cache_dtype", dtype="q8_0")
    proof = lever.proof(launch(kv("f16", 100)), launch(kv("q8_0", 53)), ENGINE)
    assert proof.applied
    assert proof.text == "KV type f16 → q8_0 (log); KV bytes 100 → 53 (log)"


def test_a_type_of_the_same_size_needs_no_other_bytes(launch: Make) -> None:
    lever = make("kv_cache_dtype", dtype="bf16")
    assert lever.proof(launch(kv("f16", 100)), launch(kv("bf16", 100)), ENGINE).applied


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (kv("f16", 100), "asked for KV q8_0, the server reports kv_dtype_k f16, kv_dtype_v f16"),
        (kv("q4_0", 30), "asked for KV q8_0, the server reports kv_dtype_k q4_0, kv_dtype_v q4_0"),
        ({**kv("q8_0", 80), "kv_dtype_v": "f16"}, "asked for KV q8_0, the server reports kv_dtype_v f16"),
        (kv(None, None), "asked for KV q8_0, the server reports kv_dtype_k None, kv_dtype_v None"),
        (kv("q8_0", 100), "both servers report KV bytes 100: the lever changed nothing"),
        (kv("q8_0", None), "the server does not report its KV bytes"),
    ],
)
def test_a_cache_that_is_not_as_asked_is_no_proof(launch: Make, after: dict[str, Any], said: str) -> None:
    proof = make("kv_cache_dtype", dtype="q8_0").proof(launch(kv("f16", 100)), launch(after), ENGINE)
    assert not proof.applied
    assert said in proof.text


def test_a_control_of_that_type_is_no_comparison(launch: Make) -> None:
    proof = make("kv_cache_dtype", dtype="q8_0").proof(launch(kv("q8_0", 53)), launch(kv("q8_0", 53)), ENGINE)
    assert not proof.applied


# the format of the checkpoint


def test_a_checkpoint_replaces_the_controls() -> None:
    (arm,) = make("nvfp4_checkpoint", checkpoint="b.gguf").treatments(control_arm(), ENGINE)
    assert (arm.checkpoint, arm.treatment) == ("b.gguf", "b.gguf")


def test_another_format_is_proof(launch: Make) -> None:
    lever = make("nvfp4_checkpoint", checkpoint="b.gguf")
    proof = lever.proof(launch({"checkpoint_format": "Q4_1"}), launch({"checkpoint_format": "Q4_0"}), ENGINE)
    assert (proof.applied, proof.text) == (True, "checkpoint format Q4_1 → Q4_0 (log)")


@pytest.mark.parametrize(
    ("after", "said"),
    [("Q4_1", "both servers report checkpoint format Q4_1"), (None, "does not report its checkpoint")],
)
def test_the_same_or_no_format_is_no_proof(launch: Make, after: str | None, said: str) -> None:
    lever = make("nvfp4_checkpoint", checkpoint="b.gguf")
    proof = lever.proof(launch({"checkpoint_format": "Q4_1"}), launch({"checkpoint_format": after}), ENGINE)
    assert not proof.applied
    assert said in proof.text
