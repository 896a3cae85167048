"""The bound of a checked server: of the deployment that it shows, and a reason wherever it shows too little."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lab.audit import FINDING
from lab.check_bound import CheckBound, bound_of
from lab.roofline import Layout, bound
from lab.roofline.hardware_catalogue import find
from lab.roofline.model_catalogue import find as find_model
from tests.builders import trial_in_memory

SERVER = find("rtx_pro_6000_server")
FACTS: dict[str, Any] = {
    **{"tp_size": 4, "pp_size": 1, "ep_size": 1, "ranks": 1, "gpus": 4, "speculative": False},
    **{"kv_dtype_k": None, "kv_dtype_v": None, "kv_dtype_asked": "auto", "model_path": "/models/DeepSeek-V4-Flash"},
}
RAN: dict[str, Any] = {
    **{"concurrency": 16, "server.running": 16.0, "server.delta": {}, "client.littles_law": 16.0},
    **{"metrics.mean_context_tokens": 1000.0, "metrics.output_tok_s": 28.7, "metrics.acceptance_length": None},
}


def found(
    changes: dict[str, Any] | None = None, facts: dict[str, Any] | None = None, served: str = "chat"
) -> CheckBound:
    trial = trial_in_memory(RAN | (changes or {}), FACTS | (facts or {}))
    return bound_of(trial, served, SERVER)


def test_the_bound_is_that_of_the_batch_and_the_cards_that_ran() -> None:
    checked = found()
    assert checked.bound_tok_s == pytest.approx(1520, rel=0.005)
    assert checked.fraction(28.7) == pytest.approx(0.0189, rel=0.005)
    assert checked.taken == (
        "DeepSeek-V4-Flash in MXFP4 on 4 x RTX PRO 6000 Blackwell Server Edition, tp 4, KV cache fp8 (not shown)"
    )
    halved = found({"server.running": 8.0})
    assert halved.bound_tok_s == pytest.approx(1227, rel=0.005)


def test_far_below_the_bound_is_a_finding() -> None:
    code = found().finding(trial_in_memory(RAN, FACTS))
    assert code is not None and (code.code, code.severity) == ("structural-gap", FINDING)
    assert "28.7 tok/s is 1.9 % of the 1,520 tok/s" in code.text
    healthy = RAN | {"metrics.output_tok_s": 600.0}
    assert found(healthy).finding(trial_in_memory(healthy, FACTS)) is None
    assert CheckBound(unknown="nobody knows").finding(trial_in_memory(RAN, FACTS)) is None


def test_a_cache_type_that_is_only_asked_for_is_not_taken_for_proven() -> None:
    dense = {"model_path": "Llama-3.1-8B", "tp_size": 1, "gpus": 1}
    auto, asked = found(facts=dense), found(facts=dense | {"kv_dtype_asked": "fp8_e4m3"})
    proven = found(facts=dense | {"kv_dtype_k": "fp8_e4m3", "kv_dtype_v": "fp8_e4m3"})
    assert auto.taken is not None and auto.taken.endswith("KV cache bfloat16 (not shown)")
    assert asked.taken is not None and asked.taken.endswith("KV cache fp8_e4m3 (asked, not proven)")
    assert proven.taken is not None and proven.taken.endswith("KV cache fp8_e4m3")
    assert auto.bound_tok_s and asked.bound_tok_s and auto.bound_tok_s < asked.bound_tok_s == proven.bound_tok_s
    assert auto.hard_tok_s == asked.hard_tok_s
    assert proven.hard_tok_s and asked.hard_tok_s and proven.hard_tok_s < asked.hard_tok_s


def test_accepted_drafts_count() -> None:
    counted = {"server.delta": {"output_tokens": 3000.0, "draft_accepted": 1000.0}}
    plain, drafting = found(), found(counted, {"speculative": True})
    assert plain.bound_tok_s and drafting.bound_tok_s == pytest.approx(1.5 * plain.bound_tok_s)
    verifying = found(counted, {"speculative": True, "speculative_tokens": 3})
    assert verifying.bound_tok_s and verifying.bound_tok_s < 0.8 * drafting.bound_tok_s
    assert verifying.hard_tok_s == drafting.hard_tok_s


def test_the_name_that_the_server_answers_to_counts_first() -> None:
    named = found(served="Qwen3.5-397B-A17B-NVFP4", facts={"tp_size": 8, "gpus": 8})
    model = find_model("Qwen3.5-397B-A17B", "NVFP4")
    assert named.bound_tok_s == pytest.approx(bound(model, SERVER, Layout(tp=8), 16, 1000).bound_tok_s)


@pytest.mark.parametrize(
    ("changes", "facts", "words"),
    [
        ({}, {"model_path": None}, "chat: neither a model of the catalogue"),
        ({}, {"tp_size": None}, "how the server is spread over its GPUs is not shown (log)"),
        ({}, {"ranks": 3}, "not shown, or not modelled"),
        ({}, {"tp_size": 3, "gpus": 3}, "64 attention heads do not divide into 3"),
        ({}, {"tp_size": 1, "gpus": 1}, "does not fit"),
        ({}, {"kv_dtype_asked": "fp9"}, "unknown KV cache type 'fp9'"),
        ({"server.running": None}, {}, "does not show how many requests ran"),
        ({"metrics.mean_context_tokens": None}, {}, "how long the contexts were is not known"),
        ({}, {"speculative": True}, "its counters do not tell how many drafts it kept"),
    ],
)
def test_what_is_not_known_leaves_no_bound_and_says_why(
    changes: dict[str, Any], facts: dict[str, Any], words: str
) -> None:
    checked = found(changes, facts)
    assert checked.unknown is not None and words in checked.unknown
    assert (checked.bound_tok_s, checked.hard_tok_s, checked.fraction(28.7)) == (None, None, None)


def test_hardware_whose_cache_is_not_known_has_no_hard_bound() -> None:
    card = replace(SERVER, cache_bytes=None)
    checked = bound_of(trial_in_memory(RAN, FACTS), "chat", card)
    assert checked.bound_tok_s and checked.hard_tok_s is None
