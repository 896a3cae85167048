"""One request over a real socket, against a server that does exactly what the test says."""

from __future__ import annotations

import asyncio
import gzip
import socket
from email.utils import formatdate
from itertools import pairwise
from time import monotonic, time

import pytest
import uvloop
from asking import BODY, WHOLE, Result, against, ask, ask_all, script, with_handler
from sse_server import DONE, ROLE, Handler, SseServer, chunked, delta, event, head

from lab.load.answer import Answer
from lab.load.endpoint import Endpoint
from lab.load.events import Fault
from lab.load.exchange import ABORTED, Exchange, Pool, seconds_to_wait
from lab.secrets import HIDDEN


@pytest.mark.parametrize(
    "wire",
    [
        (head(), BODY),
        (head(Content_Length=str(len(BODY))), BODY),
        (head(Transfer_Encoding="chunked"), chunked(BODY), chunked(b"")),
        (
            head(Transfer_Encoding="chunked"),
            *(chunked(BODY[i : i + 7]) for i in range(0, len(BODY), 7)),
            chunked(b""),
        ),
        (head(kind="text/event-stream; charset=utf-8"), BODY),
        (b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", head(), BODY),
    ],
    ids=["until-close", "length", "one-chunk", "odd-chunks", "charset", "early-hints"],
)
def test_every_framing_gives_the_same_answer(wire: tuple[bytes, ...]):
    one, fault = against(*wire)
    assert fault is None
    assert one.status == 200
    assert list(one.answer.chunk_tokens) == [1, 2]
    assert one.sent_s <= one.answer.first_event_s <= one.answer.first_token_s <= one.end_s


def test_segments_split_anywhere_are_joined():
    one, fault = against(*(WHOLE[i : i + 23] for i in range(0, len(WHOLE), 23)), pause=0.001)
    assert fault is None
    assert one.answer.output_tokens == 3


def test_first_token_is_told_once():
    told = []

    async def run(url: str) -> None:
        pool = Pool(Endpoint(url))
        one = pool.exchange(pool.endpoint.payload({}), Answer(), 5, lambda: told.append(one.answer.first_token_s))
        await one.run()

    with SseServer(script(head(), ROLE, delta(content="a"), delta(content="b"), delta("stop"), DONE, pause=0.01)) as s:
        uvloop.run(run(s.url))
    assert len(told) == 1
    assert told[0] is not None


def test_server_error_keeps_status_and_message():
    body = b'{"error": {"message": "out of slots"}}'
    one, fault = against(head(500, "application/json", Content_Length=str(len(body))), body)
    assert (one.status, fault) == (500, Fault("http-5xx", "out of slots"))
    assert one.end_s >= one.sent_s


def test_client_error_without_words_says_so():
    one, fault = against(head(404, "text/plain", Content_Length="0"))
    assert (one.status, fault) == (404, Fault("http-4xx", "HTTP 404 without a message"))


@pytest.mark.parametrize(("status", "kind"), [(429, "rate-limited"), (503, "http-5xx")])
def test_refusal_says_how_long_to_wait(status: int, kind: str):
    one, fault = against(head(status, "application/json", Content_Length="2", Retry_After="1.5"), b"{}")
    assert (one.status, fault.kind, one.retry_after_s) == (status, kind, 1.5)


def test_retry_after_is_seconds_or_a_date():
    assert seconds_to_wait("7") == 7
    assert 50 < seconds_to_wait(formatdate(time() + 60, usegmt=True)) <= 60
    assert seconds_to_wait("Sun, 06 Nov 1994 08:49:37 GMT") == 0
    assert seconds_to_wait("soon") is None
    assert seconds_to_wait("inf") is None
    assert seconds_to_wait("-3") == 0


def test_error_text_is_short():
    _, fault = against(head(500, "text/plain", Content_Length="5000"), b"x" * 5000)
    assert fault.text == "x" * 300


def test_refused_key_is_not_repeated():
    body = b'{"error": {"message": "Incorrect API key provided: sk-1234567890"}}'
    handler = script(head(401, "application/json", Content_Length=str(len(body))), body)
    with SseServer(handler) as server:
        endpoint = Endpoint(server.url, headers={"Authorization": "Bearer sk-1234567890"})
        _, fault = ask_all(endpoint)[0]
        assert b"Authorization: Bearer sk-1234567890\r\n" in server.heads[0]
    assert fault == Fault("http-4xx", f"Incorrect API key provided: {HIDDEN}")


@pytest.mark.parametrize("before", [0, 278, 295])
def test_key_is_removed_before_a_text_is_cut(before: int):
    body = b'{"error": {"message": "' + b"x" * before + b" sk\\u002d1234567890 sk-1234567890" + b"y" * 400 + b'"}}'
    handler = script(head(400, "application/json", Content_Length=str(len(body))), body)
    with SseServer(handler) as server:
        _, fault = ask_all(Endpoint(server.url, headers={"Authorization": "Bearer sk-1234567890"}))[0]
    assert fault.text == ("x" * before + f" {HIDDEN} {HIDDEN}" + "y" * 400)[:300]


@pytest.mark.parametrize("body", [event(b"sk-1234567890 is no JSON"), b"data: " + b" " * 290 + b"sk-1234567890"])
def test_key_inside_a_broken_stream_is_not_repeated(body: bytes):
    with SseServer(script(head(), body, close=True)) as server:
        _, fault = ask_all(Endpoint(server.url, headers={"X-Api-Key": "sk-1234567890"}))[0]
    assert fault.kind in ("bad-sse", "truncated")
    assert "sk-" not in fault.text
    assert len(fault.text) <= 300


def test_connection_cut_between_events_keeps_the_tokens_that_came():
    one, fault = against(head(Transfer_Encoding="chunked"), chunked(ROLE + delta(content="a", count=1)))
    assert fault.kind == "disconnected"
    assert (one.status, one.answer.output_tokens) == (200, 1)


def test_connection_cut_inside_an_event_is_truncated():
    one, fault = against(head(Transfer_Encoding="chunked"), chunked(delta(content="a", count=1) + b'data: {"choi'))
    assert fault.kind == "truncated"
    assert one.answer.output_tokens == 1


def test_connection_cut_before_the_head_is_disconnected():
    one, fault = against()
    assert (one.status, fault.kind, one.reused) == (None, "disconnected", False)


def test_connection_cut_inside_the_head_is_disconnected():
    one, fault = against(b"HTTP/1.1 200 OK\r\nContent-")
    assert (one.status, fault.kind) == (None, "disconnected")


def test_answer_that_is_no_stream_is_bad_sse():
    body = b'{"choices": []}'
    _, fault = against(head(200, "application/json", Content_Length=str(len(body))), body)
    assert fault.kind == "bad-sse"


def test_garbage_inside_a_stream_is_bad_sse():
    _, fault = against(head(), delta(content="a") + event(b"{garbage"), delta(content="b"), pause=0.01)
    assert fault.kind == "bad-sse"


def test_error_inside_a_stream_is_the_servers():
    _, fault = against(head(), delta(content="a"), event({"error": {"message": "no room"}}) + DONE)
    assert fault == Fault("server-error", "no room")


@pytest.mark.parametrize(
    "wire",
    [b"SSH-2.0-OpenSSH\r\n\r\n", b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", b"\0\0\0"],
)
def test_bytes_that_are_no_http_answer_are_bad_http(wire: bytes):
    assert against(wire, pause=0.1)[1].kind == "bad-http"


def test_silence_is_a_stall():
    async def silent(body: dict, writer: asyncio.StreamWriter) -> None:
        writer.write(head() + delta(content="a", count=1))
        await asyncio.sleep(60)

    one, fault = with_handler(silent, stall_seconds=0.2)
    assert fault.kind == "stalled"
    assert one.answer.output_tokens == 1


def test_slow_but_steady_bytes_are_no_stall():
    pieces = [delta(content="a", count=n) for n in range(1, 9)]
    _, fault = against(head(), *pieces, DONE, pause=0.1, stall_seconds=0.5)
    assert fault is None


def test_nobody_listening_is_a_connect_fault():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        one, fault = ask_all(Endpoint(f"http://127.0.0.1:{taken.getsockname()[1]}"))[0]
    assert (one.status, fault.kind, one.sent_s) == (None, "connect", None)
    assert one.end_s is not None


def test_done_ends_the_answer_although_the_body_stays_open():
    async def open_end(body: dict, writer: asyncio.StreamWriter) -> None:
        writer.write(head(Transfer_Encoding="chunked") + chunked(BODY))
        await asyncio.sleep(60)

    one, fault = with_handler(open_end)
    assert fault is None
    assert one.end_s == one.answer.last_event_s


def lingering(seconds: float) -> Handler:
    """Answers whole, and keeps the HTTP body open for so long after the end of its stream."""

    async def answer(body: dict, writer: asyncio.StreamWriter) -> None:
        writer.write(head(Transfer_Encoding="chunked") + chunked(BODY))
        await writer.drain()
        await asyncio.sleep(seconds)
        writer.write(chunked(b""))

    return answer


def test_next_request_does_not_wait_for_a_body_that_stays_open():
    with SseServer(lingering(0.15), keep=True) as server:
        results = ask_all(Endpoint(server.url), 8)
        connections = server.connections
    assert [fault for _, fault in results] == [None] * 8
    waits_s = [later.sent_s - earlier.end_s for (earlier, _), (later, _) in pairwise(results)]
    assert sorted(waits_s)[len(waits_s) // 2] < 0.1
    assert connections > 1


def test_connection_serves_again_when_its_open_body_has_ended():
    with SseServer(lingering(0.03), keep=True) as server:
        results = ask_all(Endpoint(server.url), 3, pause=0.3)
        connections = server.connections
    assert [one.reused for one, _ in results] == [False, True, True]
    assert connections == 1


def test_connection_whose_body_never_ends_is_closed():
    with SseServer(lingering(60), keep=True) as server:
        results = ask_all(Endpoint(server.url), 2, pause=0.5)
        assert (server.connections, [one.reused for one, _ in results]) == (2, [False, False])


def test_no_more_bodies_stay_open_than_there_are_files_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lab.load.exchange.OPEN_BODIES", 1)

    async def run(url: str) -> list[float]:
        pool = Pool(Endpoint(url))

        async def one() -> float:
            began_s = monotonic()
            assert (await ask(pool))[1] is None
            return monotonic() - began_s

        took_s = await asyncio.gather(one(), one(), one())
        pool.close()
        return sorted(took_s)

    with SseServer(lingering(60)) as server:
        took_s = uvloop.run(run(server.url))
    assert took_s[0] < 0.2 < took_s[1]


def test_compressed_stream_is_named():
    body = gzip.compress(BODY)
    one, fault = against(head(Content_Encoding="gzip", Content_Length=str(len(body))), body)
    assert (fault.kind, one.answer.output_tokens) == ("bad-http", 0)
    assert "compressed (Content-Encoding: gzip)" in fault.text


def test_compressed_refusal_is_named():
    body = gzip.compress(b"no room")
    _, fault = against(head(503, "text/plain", Content_Encoding="gzip", Content_Length=str(len(body))), body)
    assert fault == Fault("http-5xx", "a message in gzip")


def test_identity_is_no_compression():
    assert against(head(Content_Encoding="identity"), BODY)[1] is None


def test_aborted_request_says_who_counted_its_tokens():
    async def endless(body: dict, writer: asyncio.StreamWriter) -> None:
        writer.write(head() + delta(content="two words") + delta(content="two more"))
        await asyncio.sleep(60)

    async def run(url: str) -> Exchange:
        pool = Pool(Endpoint(url))
        one = pool.exchange(pool.endpoint.payload({}), Answer(), 5, lambda: one.abort())
        await one.run()
        return one

    with SseServer(endless) as server:
        answer = uvloop.run(run(server.url)).answer
    assert (answer.tokens_source, answer.output_tokens) == ("chunks", len(answer.chunk_s))


def test_aborted_request_is_closed_and_keeps_its_tokens():
    closed = []

    async def endless(body: dict, writer: asyncio.StreamWriter) -> None:
        writer.write(head() + delta(content="a", count=1))
        await writer.drain()
        try:
            await writer.wait_closed()
        finally:
            closed.append(True)

    async def run(url: str) -> Result:
        pool = Pool(Endpoint(url))
        one = pool.exchange(pool.endpoint.payload({}), Answer(), 5, lambda: one.abort())
        return one, await one.run()

    with SseServer(endless) as server:
        one, fault = uvloop.run(run(server.url))
    assert fault is ABORTED
    assert one.answer.output_tokens == 1


def test_cancelled_request_is_aborted():
    async def run(url: str) -> Exchange:
        pool = Pool(Endpoint(url))
        one = pool.exchange(pool.endpoint.payload({}), Answer(), 5, lambda: None)
        task = asyncio.create_task(one.run())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return one

    with SseServer(script(head(), delta(content="a"), pause=60)) as server:
        assert uvloop.run(run(server.url)).end_s is not None


def test_long_request_is_sent_whole():
    text = "word " * 400_000
    received = []

    async def check(body: dict, writer: asyncio.StreamWriter) -> None:
        received.append(body["text"] == text)
        writer.write(WHOLE)

    async def run(url: str) -> Fault | None:
        pool = Pool(Endpoint(url))
        return await pool.exchange(pool.endpoint.payload({"text": text}), Answer(), 5, lambda: None).run()

    with SseServer(check) as server:
        assert uvloop.run(run(server.url)) is None
    assert received == [True]
