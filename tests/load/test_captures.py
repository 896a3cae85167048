"""Streams of real servers: llama.cpp b11549 and vLLM 0.32.0."""

from __future__ import annotations

from pathlib import Path

import pytest
from reading import chunks, read

from lab.load.events import BrokenStream

COUNT = ("timings", "predicted_n")
STREAMS = Path(__file__).parent / "streams"


def capture(name: str) -> list[bytes]:
    """The events of a stream captured from a real server (llama.cpp b11549, vLLM 0.32.0), one piece each."""
    stream = (STREAMS / f"{name}.txt").read_bytes()
    return [block + b"\n\n" for block in stream[stream.index(b"data: ") :].split(b"\n\n") if block.strip()]


def test_captured_llamacpp_chat():
    answer, fault = read(*capture("llamacpp_chat"), path=COUNT)
    assert fault is None
    assert (answer.tokens_source, answer.output_tokens, answer.first_token_s) == ("timings.predicted_n", 4, 2.0)
    assert chunks(answer) == [(2.0, 1), (3.0, 1), (4.0, 1), (6.0, 1)]
    totals = answer.totals
    assert (totals.prompt_tokens, totals.cached_tokens) == (36, 24)
    assert (totals.server_prefill_s, totals.server_decode_s) == pytest.approx((0.106661, 0.042558))


def test_captured_llamacpp_completions_without_running_count():
    answer, fault = read(*capture("llamacpp_completions"), path=COUNT, api="completions")
    assert fault is None
    assert (answer.tokens_source, answer.output_tokens, answer.finish_reason) == ("usage", 6, "length")
    assert list(answer.chunk_tokens) == [1] * 6


def test_captured_llamacpp_native():
    answer, fault = read(*capture("llamacpp_completion_native"), path=COUNT, api="llamacpp")
    assert fault is None
    assert (answer.tokens_source, answer.output_tokens, answer.finish_reason) == ("tokens_predicted", 6, "limit")
    assert list(answer.chunk_tokens) == [1] * 6
    assert (answer.totals.prompt_tokens, answer.totals.cached_tokens) == (4, 3)


def test_captured_vllm_chat():
    answer, fault = read(*capture("vllm_chat"))
    assert fault is None
    assert (answer.first_event_s, answer.first_token_s, answer.tokens_source) == (1.0, 2.0, "usage")
    assert (answer.output_tokens, answer.totals.prompt_tokens, answer.totals.cached_tokens) == (8, 32, None)


def test_captured_vllm_speculation():
    answer, fault = read(*capture("vllm_ngram"), api="completions")
    assert fault is None
    assert (answer.output_tokens, len(answer.chunk_s)) == (32, 23)
    assert answer.tokens_source == "usage.completion_tokens"
    assert (answer.totals.draft_tokens, answer.totals.draft_accepted) == (13, 11)
    assert answer.repeats is True


def test_captured_vllm_continuous_usage():
    answer, fault = read(*capture("vllm_continuous_usage"), api="completions")
    assert fault is None
    assert list(answer.chunk_tokens) == [1] * 6
    assert (answer.tokens_source, answer.totals.prompt_tokens) == ("usage.completion_tokens", 5)


def test_captured_death_of_an_engine():
    with pytest.raises(BrokenStream, match="EngineCore encountered an issue") as broken:
        read(*capture("vllm_engine_dies"))
    assert broken.value.fault.kind == "server-error"
