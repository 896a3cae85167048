"""Connections that serve again, that turn out dead, and those that are encrypted."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import subprocess
import threading
import weakref
from contextlib import suppress
from pathlib import Path

import pytest
import uvloop
from asking import BODY, WHOLE, ask_all, script
from sse_server import Handler, SseServer, chunked, event, head

from lab.load.answer import Answer
from lab.load.endpoint import Endpoint
from lab.load.events import Fault
from lab.load.exchange import Pool


def test_connection_is_used_again():
    with SseServer(script(WHOLE), keep=True) as server:
        results = ask_all(Endpoint(server.url), 4)
        assert server.connections == 1
    assert [fault for _, fault in results] == [None] * 4
    assert [one.reused for one, _ in results] == [False, True, True, True]


def test_refused_request_leaves_the_connection_to_the_next():
    with SseServer(script(head(503, "text/plain", Content_Length="4"), b"busy"), keep=True) as server:
        results = ask_all(Endpoint(server.url), 2)
        assert server.connections == 1
    assert [fault for _, fault in results] == [Fault("http-5xx", "busy")] * 2


def test_connection_that_the_server_will_close_is_not_used_again():
    wire = head(Transfer_Encoding="chunked", Connection="close") + chunked(BODY) + chunked(b"")
    with SseServer(script(wire), keep=True) as server:
        results = ask_all(Endpoint(server.url), 2)
        assert server.connections == 2
    assert [one.reused for one, _ in results] == [False, False]


def test_kept_connection_that_was_closed_meanwhile_is_not_used():
    with SseServer(script(WHOLE)) as server:
        results = ask_all(Endpoint(server.url), 3, pause=0.05)
        assert server.connections == 3
    assert [fault for _, fault in results] == [None] * 3


class EarlyRefusal:
    """A server that refuses each request at its head, offers to keep the connection, and reads nothing more of it."""

    ANSWER = head(413, "text/plain", Content_Length="9") + b"too large"

    def __enter__(self) -> EarlyRefusal:
        self.connections: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
        for one in [self._listening, *self.connections]:
            one.close()

    def _serve(self) -> None:
        with suppress(OSError):  # no longer listening
            while True:
                connection, _ = self._listening.accept()
                self.connections.append(connection)
                connection.recv(100)
                connection.sendall(self.ANSWER)


def test_answer_that_came_before_the_whole_request_was_sent_ends_the_connection():
    async def run(url: str) -> list[tuple[Fault | None, bool | None]]:
        pool = Pool(Endpoint(url))
        results = []
        for words in (4_000_000, 1):
            one = pool.exchange(pool.endpoint.payload({"text": "word " * words}), Answer(), 2, lambda: None)
            results.append((await one.run(), one.reused))
        return results

    with EarlyRefusal() as server:
        results = uvloop.run(run(server.url))
        assert len(server.connections) == 2
    assert results == [(Fault("http-4xx", "too large"), False)] * 2


def closing_at_the_second(on_second: bytes) -> Handler:
    """Answers the first request of a connection; at the second sends those bytes and closes."""
    served: list[asyncio.StreamWriter] = []

    async def answer(body: dict, writer: asyncio.StreamWriter) -> None:
        if writer in served:
            writer.write(on_second)
            writer.close()
            return
        served.append(writer)
        writer.write(WHOLE)

    return answer


def test_request_on_a_dead_connection_is_sent_once_more_on_a_fresh_one():
    with SseServer(closing_at_the_second(b""), keep=True) as server:
        (first, _), (second, fault) = ask_all(Endpoint(server.url), 2)
        assert (server.connections, len(server.bodies)) == (2, 3)
    assert fault is None
    assert second.reused is False
    assert second.sent_s > first.end_s
    assert second.answer.output_tokens == 3


def test_second_attempt_is_the_last():
    async def only_the_first(body: dict, writer: asyncio.StreamWriter) -> None:
        if len(server.bodies) == 1:
            writer.write(WHOLE)
        else:
            writer.close()

    with SseServer(only_the_first, keep=True) as server:
        _, (one, fault) = ask_all(Endpoint(server.url), 2)
        assert len(server.bodies) == 3
    assert (fault.kind, one.status, one.reused) == ("disconnected", None, False)


def test_connections_are_not_kept_when_the_server_closes_them_all_the_same():
    with SseServer(closing_at_the_second(b""), keep=True) as server:
        results = ask_all(Endpoint(server.url), 10)
        assert len(server.bodies) == 13
    assert [fault for _, fault in results] == [None] * 10


def test_answer_that_has_begun_is_never_asked_for_again():
    with SseServer(closing_at_the_second(b"HTTP/1.1 2"), keep=True) as server:
        _, (one, fault) = ask_all(Endpoint(server.url), 2)
        assert len(server.bodies) == 2
    assert (fault.kind, one.reused) == ("disconnected", True)


@pytest.mark.parametrize("pieces", [[WHOLE], [head(500, "text/plain", Content_Length="0")], [head() + event(b"{")], []])
def test_nothing_is_left_for_the_garbage_collector_which_rests_in_the_window(pieces: list[bytes]):
    gc.disable()
    try:
        with SseServer(script(*pieces), keep=bool(pieces)) as server:
            exchanges = [weakref.ref(one) for one, _ in ask_all(Endpoint(server.url), 3)]
        assert [one() for one in exchanges] == [None] * 3
    finally:
        gc.enable()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate of our own for 127.0.0.1, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    paths = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj",
         "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-out", paths[0], "-keyout", paths[1]],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return paths


@pytest.fixture
def https(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    """What a server with that certificate speaks."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


def test_https_with_a_trusted_certificate(https: ssl.SSLContext, certificate: tuple[Path, Path]):
    with SseServer(script(WHOLE), keep=True, tls=https) as server:
        trusted = ssl.create_default_context(cafile=certificate[0])
        results = ask_all(Endpoint(server.url, tls=trusted), 2)
        assert server.connections == 1
    assert [fault for _, fault in results] == [None, None]
    assert results[1][0].reused


def test_https_with_an_unknown_certificate_is_a_connect_fault(https: ssl.SSLContext):
    with SseServer(script(WHOLE), tls=https) as server:
        _, fault = ask_all(Endpoint(server.url))[0]
    assert fault.kind == "connect"
    assert "certificate" in fault.text.lower()
