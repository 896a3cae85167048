"""Streams cut, counted and judged, without a network."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sse_server import DONE, ROLE, delta, event, usage

from lab.load.answer import Answer, BrokenStream, error_message

COUNT = ("timings", "predicted_n")


def read(*pieces: bytes, path: tuple[str, ...] | None = None) -> tuple[Answer, object]:
    """Feed the pieces at seconds 1, 2, 3 …"""
    answer = Answer(path)
    for second, piece in enumerate(pieces, 1):
        answer.feed(piece, float(second))
    return answer, answer.close(float(len(pieces)))


def test_role_null_and_empty_chunks_are_not_the_first_token():
    answer, fault = read(ROLE, delta(content=""), delta(content="a"), delta("stop"), usage(1), DONE)
    assert fault is None
    assert answer.first_token_s == 3.0
    assert (answer.chunk_s, answer.chunk_tokens) == ([3.0], [1])


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_is_a_token(name: str):
    answer, fault = read(ROLE, delta(**{name: "hm"}), delta(content="a"), usage(2), DONE)
    assert fault is None
    assert answer.first_token_s == 2.0
    assert answer.output_tokens == 2


def test_running_count_gives_several_tokens_to_one_chunk():
    answer, _ = read(delta(content="a", count=1), delta(content="b c d", count=4), usage(4), DONE, path=COUNT)
    assert answer.chunk_tokens == [1, 3]
    assert answer.tokens_source == "timings.predicted_n"


def test_end_token_without_text_counts_where_the_server_counted_it():
    last = usage(3, timings={"predicted_n": 3, "draft_n": 8, "draft_n_accepted": 5})
    answer, _ = read(delta(content="a", count=1), delta(content="b", count=2), delta("stop"), last, DONE, path=COUNT)
    assert (answer.chunk_s, answer.chunk_tokens) == ([1.0, 2.0, 4.0], [1, 1, 1])
    assert (answer.draft_tokens, answer.draft_accepted) == (8, 5)


def test_usage_larger_than_the_chunks_goes_to_the_last_chunk():
    answer, _ = read(delta(content="a"), delta(content="b"), usage(7), DONE)
    assert answer.chunk_tokens == [1, 6]
    assert (answer.output_tokens, answer.tokens_source) == (7, "usage")


def test_usage_smaller_than_the_chunks_is_believed():
    answer, _ = read(*[delta(content="a")] * 4, usage(2), DONE)
    assert answer.chunk_tokens == [1, 1, 0, 0]
    assert answer.output_tokens == 2


def test_without_usage_the_chunks_are_counted_and_nothing_is_invented():
    answer, fault = read(ROLE, delta(content="a"), delta("stop"), DONE)
    assert fault is None
    assert (answer.output_tokens, answer.tokens_source) == (1, "chunks")
    assert (answer.prompt_tokens, answer.cached_tokens, answer.draft_tokens) == (None, None, None)


def test_tokens_that_never_show_as_text_are_counted_without_a_first_token():
    answer, fault = read(ROLE, delta("stop"), usage(3), DONE)
    assert fault is None
    assert (answer.output_tokens, answer.chunk_tokens, answer.first_token_s) == (3, [3], None)


def test_no_token_is_empty():
    assert read(ROLE, delta("stop"), usage(0), DONE)[1].kind == "empty"


def test_stream_that_breaks_off_is_disconnected():
    assert read(ROLE, delta(content="a"))[1].kind == "disconnected"


def test_finish_reason_ends_a_stream_that_never_says_done():
    assert read(delta(content="a"), delta("stop"))[1] is None


@pytest.mark.parametrize("payload", [b"{not json", b"[1, 2]", b'"text"'])
def test_garbage_is_bad_sse(payload: bytes):
    with pytest.raises(BrokenStream) as broken:
        Answer().feed(event(payload), 1.0)
    assert broken.value.fault.kind == "bad-sse"


@pytest.mark.parametrize("stream", [event({"error": {"message": "no room"}}), b'error: {"message": "no room"}\n\n'])
def test_error_inside_a_stream_keeps_the_servers_words(stream: bytes):
    with pytest.raises(BrokenStream) as broken:
        Answer().feed(stream, 1.0)
    assert (broken.value.fault.kind, broken.value.fault.text) == ("server-error", "no room")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error": {"message": "too long"}}', "too long"),
        (b'{"detail": "Not Found"}', "Not Found"),
        (b'{"error": "busy"}', "busy"),
        (b"<html>Bad Gateway</html>", "<html>Bad Gateway</html>"),
        (b"", ""),
    ],
)
def test_error_message_of_the_usual_shapes(body: bytes, message: str):
    assert error_message(body) == message


STREAM = (
    b": ping\r\n\r\n" + ROLE + delta(content="a\u00e9", count=1) + delta(content="b", count=3).replace(b"\n", b"\r\n")
) + (delta("length", count=3) + usage(4, timings={"predicted_n": 4}) + DONE)


@given(st.lists(st.integers(0, len(STREAM)), max_size=12).map(sorted))
def test_where_the_network_cuts_changes_nothing(cuts: list[int]):
    edges = [0, *cuts, len(STREAM)]
    answer, fault = read(*(STREAM[a:b] for a, b in pairwise(edges)), path=COUNT)
    assert fault is None
    assert answer.done
    assert (answer.chunk_tokens, answer.output_tokens) == ([1, 2, 1], 4)
    assert answer.finish_reason == "length"
    assert answer.chunk_s == sorted(answer.chunk_s)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=20), st.one_of(st.none(), st.integers(1, 60)))
def test_chunks_always_add_up_to_the_output(sizes: list[int], total: int | None):
    stream = [delta(content="x") for _ in sizes]
    answer, _ = read(*stream, *([] if total is None else [usage(total)]), DONE)
    assert sum(answer.chunk_tokens) == answer.output_tokens
    assert answer.output_tokens == (len(sizes) if total is None else total)
    assert len(answer.chunk_s) == len(answer.chunk_tokens)
