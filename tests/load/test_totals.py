"""What servers say of a whole request, in each of their dialects."""

from __future__ import annotations

import pytest

from lab.load.totals import Totals


def told(*chunks: dict) -> dict:
    """What is known after those chunks."""
    totals = Totals()
    for chunk in chunks:
        totals.read(chunk)
    return {name: getattr(totals, name) for name in Totals.__slots__ if getattr(totals, name) is not None}


def test_openai_usage():
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    assert told({"usage": usage}) == {
        "prompt_tokens": 9, "output_tokens": 5, "cached_tokens": 4, "reasoning_tokens": 3,
    }  # fmt: skip


def test_sglang_usage_has_reasoning_and_predictions():
    details = {"accepted_prediction_tokens": 6, "rejected_prediction_tokens": 4}
    usage = {"completion_tokens": 5, "reasoning_tokens": 2, "completion_tokens_details": details}
    known = told({"usage": usage})
    assert (known["reasoning_tokens"], known["draft_tokens"], known["draft_accepted"]) == (2, 10, 6)


def test_llamacpp_timings_count_cached_prompt_tokens_apart():
    timings = {"cache_n": 24, "prompt_n": 12, "prompt_ms": 100.0, "predicted_n": 4, "predicted_ms": 40.0}
    assert told({"timings": timings | {"draft_n": 8, "draft_n_accepted": 5}}) == {
        "prompt_tokens": 36, "cached_tokens": 24, "output_tokens": 4, "draft_tokens": 8, "draft_accepted": 5,
        "server_prefill_s": pytest.approx(0.1), "server_decode_s": pytest.approx(0.04),
    }  # fmt: skip


def test_sglang_meta_info():
    meta = {
        "prompt_tokens": 30, "completion_tokens": 12, "cached_tokens": 0, "reasoning_tokens": 0, "queue_time": 0.25,
        "forward_entry_time": 1000.0, "prefill_finished_time": 1000.5, "request_finished_ts": 1003.0,
        "first_token_latency": 1.0, "e2e_latency": 3.5, "spec_num_proposed_drafts": 24, "spec_num_correct_drafts": 9,
    }  # fmt: skip
    assert told({"meta_info": meta}) == {
        "prompt_tokens": 30, "output_tokens": 12, "cached_tokens": 0, "reasoning_tokens": 0, "draft_tokens": 24,
        "draft_accepted": 9, "server_queue_s": 0.25, "server_prefill_s": 0.5, "server_decode_s": 2.5,
        "server_e2e_s": 3.5, "server_started_s": 1000.0, "server_finished_s": 1003.0,
    }  # fmt: skip


def test_vllm_metrics():
    metrics = {"speculative_decoding": {"num_draft_tokens": 13, "num_accepted_draft_tokens": 11}}
    assert told({"metrics": metrics}) == {"draft_tokens": 13, "draft_accepted": 11}


def test_what_is_not_said_stays_unknown():
    assert (
        told({}, {"usage": None}, {"usage": {"prompt_tokens": None, "completion_tokens": "five"}}, {"timings": []})
        == {}
    )


@pytest.mark.parametrize("count", [2**31, 10**18, 10**19, -1])
def test_absurd_counts_are_not_said(count: int):
    details = {"accepted_prediction_tokens": count, "rejected_prediction_tokens": 1}
    usage = {"prompt_tokens": count, "completion_tokens": count, "prompt_tokens_details": {"cached_tokens": count}}
    assert told({"usage": usage | {"completion_tokens_details": details}}) == {}
    assert told({"timings": {"prompt_n": 2**31 - 1, "cache_n": 1, "predicted_n": count}}) == {"cached_tokens": 1}


def test_later_chunks_overrule_and_do_not_erase():
    assert told({"usage": {"prompt_tokens": 5, "completion_tokens": 1}}, {"usage": {"completion_tokens": 2}}) == {
        "prompt_tokens": 5, "output_tokens": 2,
    }  # fmt: skip
