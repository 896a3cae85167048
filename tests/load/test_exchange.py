"""One request over a real socket, against a server that does exactly what the test says."""

from __future__ import annotations

import asyncio
import socket

import pytest
from sse_server import DONE, ROLE, Handler, SseServer, chunked, delta, head, usage

from lab.load.answer import Answer, Fault
from lab.load.exchange import Endpoint, Exchange

BODY = ROLE + delta(content="a", count=1) + delta(content="b c", count=3) + delta("stop") + usage(3) + DONE


def exchange(url: str, stall_seconds: float = 5.0) -> tuple[Exchange, Fault | None]:
    """One request to `url`, run to its end."""

    async def send() -> tuple[Exchange, Fault | None]:
        one = Exchange(Endpoint(url).payload({"n": 1}), Answer(("timings", "predicted_n")), stall_seconds, lambda: None)
        return one, await asyncio.wait_for(one.run(Endpoint(url)), 20)

    return asyncio.run(send())


def against(*pieces: bytes, pause: float = 0.0, stall_seconds: float = 5.0) -> tuple[Exchange, Fault | None]:
    """One request answered with the pieces, each in a segment of its own."""
    return with_handler(script(*pieces, pause=pause), stall_seconds)


def with_handler(handler: Handler, stall_seconds: float = 5.0) -> tuple[Exchange, Fault | None]:
    """One request answered by `handler`."""
    with SseServer(handler) as server:
        return exchange(server.url, stall_seconds)


def script(*pieces: bytes, pause: float = 0.0) -> Handler:
    """A handler that sends the pieces one after the other, then closes."""

    async def answer(body: dict, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause)

    return answer


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
    ],
    ids=["until-close", "length", "one-chunk", "odd-chunks", "charset"],
)
def test_every_framing_gives_the_same_answer(wire: tuple[bytes, ...]):
    one, fault = against(*wire)
    assert fault is None
    assert one.status == 200
    assert one.answer.chunk_tokens == [1, 2]
    assert one.answer.first_token_s <= one.end_s


def test_segments_split_anywhere_are_joined():
    wire = head(Transfer_Encoding="chunked") + chunked(BODY) + chunked(b"")
    one, fault = against(*(wire[i : i + 23] for i in range(0, len(wire), 23)), pause=0.001)
    assert fault is None
    assert one.answer.output_tokens == 3


def test_server_error_keeps_status_and_message():
    body = b'{"error": {"message": "out of slots"}}'
    one, fault = against(head(500, "application/json", Content_Length=str(len(body))), body)
    assert (one.status, fault) == (500, Fault("http-5xx", "out of slots"))


def test_client_error_without_words_says_so():
    one, fault = against(head(404, "text/plain", Content_Length="0"))
    assert (one.status, fault) == (404, Fault("http-4xx", "HTTP 404 without a message"))


def test_too_many_requests_is_rate_limited():
    one, fault = against(head(429, "application/json", Content_Length="2"), b"{}")
    assert (one.status, fault.kind) == (429, "rate-limited")


def test_connection_cut_in_the_stream_keeps_the_tokens_that_came():
    one, fault = against(head(Transfer_Encoding="chunked"), chunked(ROLE + delta(content="a", count=1)))
    assert fault.kind == "disconnected"
    assert (one.status, one.answer.output_tokens) == (200, 1)


def test_connection_cut_before_the_head_is_disconnected():
    one, fault = against()
    assert (one.status, fault.kind) == (None, "disconnected")


def test_answer_that_is_no_stream_is_bad_sse():
    body = b'{"choices": []}'
    _, fault = against(head(200, "application/json", Content_Length=str(len(body))), body)
    assert fault.kind == "bad-sse"


def test_bytes_that_are_no_http_are_bad_http():
    assert against(b"SSH-2.0-OpenSSH\r\n\r\n")[1].kind == "bad-http"


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
        one, fault = exchange(f"http://127.0.0.1:{taken.getsockname()[1]}")
    assert (one.status, fault.kind) == (None, "connect")


@pytest.mark.parametrize("url", ["http://host:1", "http://host:1/", "http://host:1/v1", "http://host:1/v1/"])
def test_url_with_or_without_v1_reaches_the_same_path(url: str):
    assert Endpoint(url).payload({}).startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")


def test_https_is_spoken_on_its_own_port():
    endpoint = Endpoint("https://example.org")
    assert (endpoint.tls, endpoint.port) == (True, 443)
