"""Streams cut anywhere, broken off, and filled with garbage."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import read
from sse_server import DONE, ROLE, delta, event, usage

from lab.load.answer import Answer
from lab.load.events import BrokenStream, error_message

COUNT = ("timings", "predicted_n")


def test_no_token_is_empty():
    assert read(ROLE, delta("stop"), usage(0), DONE)[1].kind == "empty"


def test_stream_that_breaks_off_is_disconnected():
    assert read(ROLE, delta(content="a"))[1].kind == "disconnected"


def test_stream_that_breaks_off_inside_an_event_is_truncated():
    answer, fault = read(ROLE, delta(content="a"), delta(content="b")[:-20])
    assert (fault.kind, answer.output_tokens) == ("truncated", 1)


def test_missing_last_blank_line_is_forgiven():
    assert read(delta(content="a"), DONE.rstrip())[1] is None


def test_finish_reason_ends_a_stream_that_never_says_done():
    assert read(delta(content="a"), delta("stop"))[1] is None


@pytest.mark.parametrize("payload", [b"{not json", b"[1, 2]", b'"text"', b"null", b"\xff\xfe"])
def test_garbage_is_bad_sse(payload: bytes):
    with pytest.raises(BrokenStream) as broken:
        Answer().feed(event(payload), 1.0)
    assert broken.value.fault.kind == "bad-sse"


@pytest.mark.parametrize(
    "chunk",
    [{"choices": 3}, {"choices": [3]}, {"choices": {"a": 1}}, {"choices": [{"delta": "text"}]}, {"choices": [None]}],
)
def test_json_of_another_shape_is_bad_sse(chunk: dict):
    with pytest.raises(BrokenStream, match="unknown shape") as broken:
        Answer().feed(event(chunk), 1.0)
    assert broken.value.fault.kind == "bad-sse"


@pytest.mark.parametrize(
    "stream",
    [
        event({"error": {"message": "no room"}}),
        b'error: {"message": "no room"}\n\n',
        b'event: error\ndata: {"message": "no room"}\n\n',
        event({"object": "error", "message": "no room"}),
        b'event: error\r\ndata: {"detail": "no room"}\r\n\r\n',
    ],
)
def test_error_inside_a_stream_keeps_the_servers_words(stream: bytes):
    with pytest.raises(BrokenStream) as broken:
        Answer().feed(delta(content="a") + stream, 1.0)
    assert (broken.value.fault.kind, broken.value.fault.text) == ("server-error", "no room")


def test_event_that_ends_in_cr_does_not_wait_for_the_next():
    answer = Answer()
    for second, text in enumerate("ab", 1):
        answer.feed(delta(content=text).replace(b"\n", b"\r"), float(second))
    assert list(answer.chunk_s) == [1.0, 2.0]


@pytest.mark.parametrize("before", [0, 3])
def test_error_beside_text_is_an_error(before: int):
    answer = Answer()
    for _ in range(before):
        answer.feed(delta(content="a"), 1.0)
    chunk = {"choices": [{"index": 0, "delta": {"content": "b"}, "finish_reason": None}], "error": {"message": "gone"}}
    with pytest.raises(BrokenStream) as broken:
        answer.feed(event(chunk), 2.0)
    assert (broken.value.fault.kind, broken.value.fault.text) == ("server-error", "gone")
    assert answer.output_tokens == before


def test_null_error_beside_text_is_none():
    chunk = {"choices": [{"index": 0, "delta": {"content": "b"}, "finish_reason": None}], "error": None}
    assert read(event(chunk), event(chunk), delta("stop"), DONE)[0].output_tokens == 2


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


def test_event_without_end_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lab.load.answer.EVENT_BYTES", 1000)
    answer = Answer()
    with pytest.raises(BrokenStream, match="more than 1000 bytes"):
        for _ in range(20):
            answer.feed(b"data: " + b"x" * 100, 1.0)


STREAM = (
    b": ping\r\n\r\n" + ROLE + delta(content="a\u00e9", count=1) + delta(content="b", count=3).replace(b"\n", b"\r\n")
) + (delta("length", count=3) + usage(4, timings={"predicted_n": 4}) + DONE)
CRLF = STREAM.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
FIELDS = STREAM.replace(b"data: ", b"id: 7\nevent: message\nretry: 5\ndata: ")
NO_SPACE = STREAM.replace(b"data: ", b"data:")
CR = CRLF.replace(b"\n", b"")
SEVERAL_LINES = STREAM.replace(b'{"choices": [', b'{"choices":\ndata: [')


@pytest.mark.parametrize(
    "stream",
    [STREAM, CRLF, CR, FIELDS, NO_SPACE, SEVERAL_LINES],
    ids=["mixed", "crlf", "cr", "fields", "no-space", "lines"],
)
@given(st.lists(st.integers(0, 3000), max_size=12).map(sorted))
@settings(deadline=None)
def test_where_the_network_cuts_changes_nothing(stream: bytes, cuts: list[int]):
    edges = [0, *(cut % len(stream) for cut in cuts), len(stream)]
    answer, fault = read(*(stream[a:b] for a, b in pairwise(sorted(edges))), path=COUNT)
    assert fault is None
    assert answer.done
    assert (list(answer.chunk_tokens), answer.output_tokens) == ([1, 2, 1], 4)
    assert answer.finish_reason == "length"
    assert list(answer.chunk_s) == sorted(answer.chunk_s)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["choices", "delta", "content", "usage", "completion_tokens", "finish_reason", "text",
                             "meta_info", "timings", "predicted_n", "metrics", "reasoning", "tool_calls", "stop"]),
            inner, max_size=4,
        )
    ),
    max_leaves=12,
)  # fmt: skip


@given(st.lists(JSON, max_size=4), st.sampled_from(["chat", "completions", "generate", "llamacpp"]))
@settings(deadline=None)
def test_whatever_json_comes_the_reader_answers_or_refuses(values: list, api: str):
    answer = Answer(api)
    try:
        for value in values:
            answer.feed(event(value), 1.0)
    except BrokenStream as broken:
        assert broken.fault.kind in ("bad-sse", "server-error")
    answer.close(2.0)
    assert sum(answer.chunk_tokens) == answer.output_tokens < 2**31
    assert answer.first_chunk_tokens is None or 0 <= answer.first_chunk_tokens <= answer.output_tokens
    assert type(answer.first_chunk_tokens) in (int, type(None))
