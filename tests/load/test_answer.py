"""Streams counted and timed, without a network."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import chunks, native, read, running
from sse_server import DONE, ROLE, delta, event, usage

from lab.load.answer import Answer
from lab.load.events import BrokenStream

COUNT = ("timings", "predicted_n")


def test_role_null_and_empty_chunks_are_not_the_first_token():
    answer, fault = read(ROLE, delta(content=""), delta(content="a"), delta("stop"), usage(1), DONE)
    assert fault is None
    assert (answer.first_event_s, answer.first_token_s, answer.last_event_s) == (1.0, 3.0, 6.0)
    assert chunks(answer) == [(3.0, 1)]


@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning_content": "hm"},
        {"reasoning": "hm"},
        {"content": None, "reasoning_content": "hm", "tool_calls": None},
        {"tool_calls": [{"index": 0, "function": {"name": "look", "arguments": ""}}]},
        {"content": [{"type": "text", "text": "parts"}]},
    ],
)
def test_thinking_and_calling_are_tokens(fields: dict):
    answer, fault = read(ROLE, delta(**fields), delta(content="a"), usage(2), DONE)
    assert fault is None
    assert answer.first_token_s == 2.0
    assert answer.output_tokens == 2


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_thinking_is_told_from_speaking(name: str):
    assert read(delta(**{name: "hm"}), DONE)[0].reasoning_seen
    assert read(delta(content="a"), delta(**{name: "hm", "content": "so"}), DONE)[0].reasoning_seen
    assert not read(delta(content="a", **{name: None}), DONE)[0].reasoning_seen


def test_comment_is_no_event():
    answer, _ = read(b": ping\n\n", ROLE, delta(content="a"), DONE)
    assert answer.first_event_s == 2.0


def test_running_count_gives_several_tokens_to_one_chunk():
    answer, _ = read(delta(content="a", count=1), delta(content="b c d", count=4), usage(4), DONE, path=COUNT)
    assert list(answer.chunk_tokens) == [1, 3]
    assert answer.tokens_source == "timings.predicted_n"


@pytest.mark.parametrize("path", [None, ("usage", "completion_tokens"), COUNT])
def test_running_count_is_found_where_the_api_has_it(path: tuple[str, ...] | None):
    answer, _ = read(running(0, role="assistant"), running(2, content="a b"), running(5, content="c"), DONE, path=path)
    assert chunks(answer) == [(2.0, 2), (3.0, 3)]
    assert answer.tokens_source == "usage.completion_tokens"
    assert (answer.first_chunk_tokens, answer.totals.prompt_tokens) == (2, 7)


def test_the_engines_own_count_comes_first():
    both = event(
        {"choices": [{"delta": {"content": "a"}}], "timings": {"predicted_n": 3}, "usage": {"completion_tokens": 2}}
    )
    assert read(both, DONE, path=COUNT)[0].tokens_source == "timings.predicted_n"
    assert read(both, DONE)[0].tokens_source == "usage.completion_tokens"


def test_cut_answer_keeps_what_was_known_of_its_prompt_and_nothing_stale_of_its_output():
    timings = {"predicted_n": 1, "prompt_n": 6, "cache_n": 2, "draft_n": 0, "draft_n_accepted": 0, "prompt_ms": 10.0}
    first = event({"choices": [{"delta": {"content": "a"}}], "timings": timings})
    answer, fault = read(first, delta(content="b", count=4), delta(content="c", count=9), path=COUNT)
    totals = answer.totals
    assert (fault.kind, answer.output_tokens) == ("disconnected", 9)
    assert (totals.prompt_tokens, totals.cached_tokens, totals.server_prefill_s) == (8, 2, 0.01)
    assert (totals.output_tokens, totals.draft_tokens, totals.draft_accepted) == (None, None, None)


def test_tokens_without_text_count_where_they_arrived_and_belong_to_the_first_text():
    answer, _ = read(running(0, role="assistant"), running(3), running(4, content="a"), running(6, content="b"), DONE)
    assert chunks(answer) == [(2.0, 3), (3.0, 1), (4.0, 2)]
    assert (answer.first_token_s, answer.first_chunk_tokens) == (3.0, 4)


def test_chunk_without_its_count_waits_for_the_next():
    answer, _ = read(running(1, content="a"), delta(content="b"), running(4, content="c"), DONE)
    assert chunks(answer) == [(1.0, 1), (3.0, 3)]


def test_end_token_without_text_counts_where_the_server_counted_it():
    last = usage(3, timings={"predicted_n": 3, "draft_n": 8, "draft_n_accepted": 5})
    answer, _ = read(delta(content="a", count=1), delta(content="b", count=2), delta("stop"), last, DONE, path=COUNT)
    assert chunks(answer) == [(1.0, 1), (2.0, 1), (4.0, 1)]
    assert (answer.totals.draft_tokens, answer.totals.draft_accepted) == (8, 5)


def test_count_that_only_the_last_chunk_has_is_no_running_count():
    last = event({"choices": [], "timings": {"predicted_n": 4, "prompt_n": 3, "cache_n": 2}})
    answer, _ = read(*[delta(content="abc")] * 4, delta("stop"), last, DONE, path=COUNT)
    assert (answer.tokens_source, list(answer.chunk_tokens)) == ("usage", [1, 1, 1, 1])
    assert (answer.totals.prompt_tokens, answer.totals.cached_tokens) == (5, 2)


def test_count_in_the_final_usage_alone_is_no_running_count_even_without_text():
    answer, fault = read(ROLE, delta("stop"), usage(3), DONE)
    assert fault is None
    assert (answer.output_tokens, chunks(answer), answer.first_token_s) == (3, [(4.0, 3)], None)
    assert answer.tokens_source == "usage"


def test_few_tokens_more_than_chunks_go_to_the_last():
    answer, _ = read(*[delta(content="a")] * 20, usage(21), DONE)
    assert list(answer.chunk_tokens) == [1] * 19 + [2]
    assert (answer.output_tokens, answer.tokens_source, answer.first_chunk_tokens) == (21, "usage", 1)


def test_many_tokens_more_than_chunks_are_shared_by_length():
    answer, _ = read(delta(content="abcdef"), delta(content="gh"), usage(10), DONE)
    assert list(answer.chunk_tokens) == [7, 3]
    assert answer.first_chunk_tokens == 7


def test_fewer_tokens_than_chunks_are_believed():
    answer, _ = read(*[delta(content="a")] * 4, usage(2), DONE)
    assert list(answer.chunk_tokens) == [1, 0, 1, 0]
    assert answer.output_tokens == 2


def test_running_count_that_ran_ahead_is_taken_back_at_the_end():
    answer, _ = read(running(2, content="a"), running(9, content="b"), usage(4), DONE)
    assert list(answer.chunk_tokens) == [2, 2]


def test_whole_answer_in_one_chunk_has_no_other_chunk():
    answer, fault = read(ROLE, delta("stop", content="all of it"), usage(50), DONE)
    assert fault is None
    assert (chunks(answer), answer.first_chunk_tokens) == ([(2.0, 50)], 50)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=20), st.one_of(st.none(), st.integers(1, 60)))
@settings(deadline=None)
def test_chunks_always_add_up_to_the_output(sizes: list[int], total: int | None):
    stream = [delta(content="x" * size) for size in sizes]
    answer, _ = read(*stream, *([] if total is None else [usage(total)]), DONE)
    assert sum(answer.chunk_tokens) == answer.output_tokens
    assert answer.output_tokens == (len(sizes) if total is None else total)
    assert len(answer.chunk_s) == len(answer.chunk_tokens)
    assert 1 <= answer.first_chunk_tokens <= answer.output_tokens


def test_without_usage_the_chunks_are_counted_and_nothing_is_invented():
    answer, fault = read(ROLE, delta(reasoning="hm "), delta(content="a"), delta("stop"), DONE)
    assert fault is None
    assert (answer.output_tokens, answer.tokens_source, answer.text) == (2, "chunks", "hm a")
    totals = answer.totals
    assert (totals.prompt_tokens, totals.cached_tokens, totals.draft_tokens, totals.reasoning_tokens) == (None,) * 4


def test_tokenizer_count_is_spread_over_the_chunks():
    answer, _ = read(delta(content="abcdefgh"), delta(content="ij"), delta("stop"), DONE)
    answer.recount(12)
    assert (answer.output_tokens, answer.tokens_source, answer.text) == (12, "tokenizer", None)
    assert list(answer.chunk_tokens) == [9, 3]
    assert answer.first_chunk_tokens == 9


def test_counted_answer_keeps_no_text_and_is_not_recounted():
    answer, _ = read(delta(content="a"), usage(1), DONE)
    assert answer.text is None
    with pytest.raises(ValueError, match="nobody counted"):
        answer.recount(3)


def test_broken_off_answer_keeps_its_text_for_a_count():
    answer, fault = read(delta(content="a b"), delta(content=" c"))
    assert fault.kind == "disconnected"
    assert answer.text == "a b c"


def test_cumulative_text_is_counted_once():
    stream = [
        native(1, "a"),
        native(3, "a b c"),
        native(4, "a b c d", {"type": "length", "length": 4}, e2e_latency=0.5),
    ]
    answer, fault = read(*stream, DONE, api="generate")
    assert fault is None
    assert chunks(answer) == [(1.0, 1), (2.0, 2), (3.0, 1)]
    assert (answer.tokens_source, answer.finish_reason) == ("meta_info.completion_tokens", "length")
    totals = answer.totals
    assert (totals.prompt_tokens, totals.cached_tokens, totals.server_e2e_s) == (5, 2, 0.5)


def test_loop_is_seen_in_cumulative_and_incremental_text():
    words = [" blue"] * 40
    cumulative = [native(n, "".join(words[:n])) for n in range(1, 41)]
    incremental = [native(n, word, ids=1) for n, word in enumerate(words, 1)]
    assert read(*cumulative, DONE, api="generate")[0].repeats is True
    assert read(*incremental, DONE, api="generate")[0].repeats is True


def test_native_request_that_the_server_gave_up_is_a_server_error():
    answer, fault = read(native(1, "a"), native(1, "a", {"type": "abort", "message": "x"}), DONE, api="generate")
    assert (fault.kind, answer.finish_reason) == ("server-error", "abort")


HUGE = [2**31, 10**18, 10**30]


@pytest.mark.parametrize("count", HUGE)
def test_absurd_final_count_is_not_said(count: int):
    answer, fault = read(delta(content="a"), delta(content="b"), delta("stop"), usage(count, prompt_tokens=count), DONE)
    assert fault is None
    assert (answer.output_tokens, answer.tokens_source) == (2, "chunks")
    assert (answer.totals.output_tokens, answer.totals.prompt_tokens) == (None, None)


def test_final_count_far_beyond_what_was_asked_for_is_not_said():
    def counted(total: int, chunks: int = 2) -> tuple[int, str]:
        answer = Answer(max_tokens=4)
        answer.feed(delta(content="a") * chunks + delta("length") + usage(total) + DONE, 1.0)
        answer.close(2.0)
        assert len(answer.chunk_s) == len(answer.chunk_tokens) == chunks
        return answer.output_tokens, answer.tokens_source

    assert counted(64) == (64, "usage")
    assert counted(65) == (2, "chunks")
    assert counted(650, chunks=500) == (650, "usage")


@pytest.mark.parametrize("count", HUGE)
def test_absurd_count_of_the_first_chunk_is_no_running_count(count: int):
    answer, fault = read(running(count, content="a"), running(count + 1, content="b"), usage(2), DONE)
    assert fault is None
    assert (answer.output_tokens, answer.tokens_source, answer.first_chunk_tokens) == (2, "usage", 1)


@pytest.mark.parametrize("count", HUGE)
def test_running_count_that_jumps_beyond_every_answer_breaks_the_stream(count: int):
    answer = Answer()
    answer.feed(running(1, role="assistant"), 1.0)
    with pytest.raises(BrokenStream) as broken:
        answer.feed(running(count + 2, content="a"), 2.0)
    answer.settle()
    assert broken.value.fault.kind == "bad-sse"
    assert (chunks(answer), answer.output_tokens, answer.first_chunk_tokens) == ([(1.0, 1)], 1, 1)


def test_absurd_running_count_is_disbelieved_even_of_an_answer_that_was_cut_off():
    answer = Answer(max_tokens=8)
    for second, count in enumerate([1, 2, 10**6], 1):
        answer.feed(running(count, content="a"), float(second))
    answer.settle()
    assert (answer.output_tokens, answer.tokens_source, answer.first_chunk_tokens) == (3, "chunks", 1)
    assert (list(answer.chunk_tokens), answer.text) == ([1, 1, 1], None)


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_chat_request_that_the_server_gave_up_is_a_server_error(reason: str):
    assert read(delta(content="a"), delta(reason), usage(1), DONE)[1].kind == "server-error"
