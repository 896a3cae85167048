"""Trials against their bound: the batch, context and speculation that ran, and none where one of them is unknown."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from lab.health import drafted_per_step, hard_bound_tok_s, health, plain_bound, trial_bound, verified_bound
from lab.roofline import Layout, bound
from lab.roofline.hardware_catalogue import find as find_hardware
from lab.roofline.model_catalogue import find as find_model
from tests.builders import HARDWARE, MODEL, trial_in_memory

KV = 2 * 2 * 2 * 16 * 2
CACHED = replace(HARDWARE, cache_bytes=200_000)


def bound_of(changes: dict[str, Any] | None = None, facts: dict[str, Any] | None = None) -> float | None:
    found = trial_bound(trial_in_memory(changes, facts), HARDWARE)
    return found.bound_tok_s if found else None


def test_the_bound_counts_the_tokens_of_a_step_that_speculates() -> None:
    plain = bound_of()
    counted = {"server.delta": {"output_tokens": 3000.0, "draft_accepted": 1000.0}}
    assert plain is not None
    assert bound_of(counted, {"speculative": True}) == pytest.approx(1.5 * plain)
    assert bound_of({"server.delta": {}, "metrics.acceptance_length": 2.5}, {"speculative": True}) == pytest.approx(
        2.5 * plain
    )
    assert bound_of({"server.delta": {"output_tokens": 3000.0, "draft_accepted": 0.0}}) == pytest.approx(plain)


def test_speculation_of_unknown_success_has_no_bound() -> None:
    assert bound_of({"server.delta": {}}, {"speculative": True}) is None
    assert bound_of({"server.delta": {}}, {"speculative": False}) is not None


DRAFTING = {"server.delta": {"output_tokens": 3000.0, "draft_accepted": 1000.0}}


def test_the_nominal_bound_holds_the_verification_of_the_drafts() -> None:
    card, model = find_hardware("rtx_pro_6000_server"), find_model("DeepSeek-V4-Flash")
    facts = {"tp_size": 4, "gpus": 4, "speculative": True, "speculative_tokens": 3}
    trial = trial_in_memory(DRAFTING, facts, model=asdict(model))
    running, context = trial.server["running"], trial.metrics["mean_context_tokens"]
    inputs = {"kv_dtype_k": "f16", "kv_dtype_v": "f16", "shared_prefix": 0.0, "tokens_per_step": 1.5}
    plain = bound(model, card, Layout(tp=4), running, context, **inputs)
    verified = bound(model, card, Layout(tp=4), running, context, draft_tokens=3, **inputs)
    found = trial_bound(trial, card)
    assert found is not None and found.bound_tok_s == pytest.approx(verified.bound_tok_s)
    assert found.bound_tok_s < 0.8 * plain.bound_tok_s
    alone = plain_bound(trial, card)
    assert alone is not None and alone.bound_tok_s == pytest.approx(plain.bound_tok_s)
    seen = health([trial], card)
    assert seen.bound_fraction == pytest.approx(trial.metrics["output_tok_s"] / verified.bound_tok_s)
    assert hard_bound_tok_s(trial, card) == pytest.approx(
        bound(model, card, Layout(tp=4), running, context, **inputs).bound_hard_tok_s
    )


def test_drafts_are_counted_where_the_server_counts_them_else_as_configured() -> None:
    counted = {"server.delta": {"output_tokens": 3000.0, "draft_accepted": 1000.0, "draft_tokens": 5000.0}}
    facts = {"speculative": True, "speculative_tokens": 8}
    assert drafted_per_step(trial_in_memory(counted, facts)) == 2.5
    assert drafted_per_step(trial_in_memory(DRAFTING, facts)) == 8
    assert drafted_per_step(trial_in_memory(DRAFTING, {"speculative": True})) is None
    assert drafted_per_step(trial_in_memory(counted, {"speculative": False, "speculative_tokens": 8})) is None


def test_drafts_of_unknown_number_leave_the_plain_bound() -> None:
    trial = trial_in_memory(DRAFTING, {"speculative": True})
    plain, found = plain_bound(trial, HARDWARE), trial_bound(trial, HARDWARE)
    assert verified_bound(trial, HARDWARE) is None
    assert plain is not None and found is not None and found.bound_tok_s == plain.bound_tok_s


UNPROVEN = {"kv_dtype_k": None, "kv_dtype_v": None}


def test_a_cache_type_that_is_only_asked_for_counts_in_the_nominal_bound_and_not_in_the_hard_one() -> None:
    asked, proven = ({**UNPROVEN, "kv_dtype_asked": "fp8"}, {"kv_dtype_k": "fp8", "kv_dtype_v": "fp8"})
    assert bound_of(facts=asked) == pytest.approx(bound_of(facts=proven))
    assert bound_of(facts={**UNPROVEN, "kv_dtype_asked": "auto"}) == bound_of(facts=UNPROVEN) == bound_of()
    hard = [hard_bound_tok_s(trial_in_memory(facts=facts), CACHED) for facts in (asked, proven)]
    smallest = 1_000_000 + 3.98 * 80 * KV / 4 * 9 / 8
    assert hard[0] is not None and hard[1] is not None and hard[0] > hard[1]
    assert hard[0] == pytest.approx(3.98 * 1e9 / (smallest - 200_000), rel=0.01)


def test_the_hard_bound_spares_what_the_last_cache_holds() -> None:
    total = 1_000_000 + 3.98 * 80 * KV
    assert hard_bound_tok_s(trial_in_memory(), CACHED) == pytest.approx(3.98 * 1e9 / (total - 200_000))


def test_shared_prefixes_may_be_read_once_so_the_hard_bound_counts_no_context() -> None:
    shared = trial_in_memory({"prompts.reuse": True})
    assert hard_bound_tok_s(shared, CACHED) == pytest.approx(3.98 * 1e9 / 800_000)


@pytest.mark.parametrize("cache_bytes", [None, 10_000_000])
def test_a_cache_that_is_unknown_or_holds_everything_sets_no_hard_bound(cache_bytes: int | None) -> None:
    assert hard_bound_tok_s(trial_in_memory(), replace(HARDWARE, cache_bytes=cache_bytes)) is None


@pytest.mark.parametrize(
    "changes", [{"server.running": None}, {"server.running": 0.0}, {"metrics.mean_context_tokens": None}]
)
def test_without_batch_or_context_there_is_no_bound(changes: dict[str, Any]) -> None:
    trial = trial_in_memory(changes)
    assert trial_bound(trial, CACHED) is None and hard_bound_tok_s(trial, CACHED) is None
    assert health([trial], HARDWARE).bound_tok_s is None


def test_without_hardware_there_is_no_bound() -> None:
    assert trial_bound(trial_in_memory(), None) is None and hard_bound_tok_s(trial_in_memory(), None) is None


def test_the_bound_is_that_of_all_devices() -> None:
    card = replace(HARDWARE, link="pcie", link_bytes_s=64e9, joined=8, generation="blackwell")
    model = asdict(replace(MODEL, hidden=64))
    on_two = {"tp_size": 2, "pp_size": 1, "ep_size": 1, "ranks": 1, "gpus": 2}
    alone, both = (trial_bound(trial_in_memory(facts=facts, model=model), card) for facts in ({}, on_two))
    assert alone is not None and both is not None
    assert both.devices == 2
    assert both.bound_memory_tok_s == pytest.approx(2 * alone.bound_memory_tok_s)
    assert both.components_ms["all_reduce"] > 0


@pytest.mark.parametrize("facts", [{"tp_size": None}, {"tp_size": 3}, {"kv_dtype_k": "of no name"}])
def test_a_deployment_that_is_unknown_or_cannot_be_has_no_bound(facts: dict[str, Any]) -> None:
    assert trial_bound(trial_in_memory(facts=facts), HARDWARE) is None
