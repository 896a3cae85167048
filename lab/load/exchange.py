"""One HTTP request and its answer, read byte by byte as they arrive.

Without a reader directly on the socket the arrival times are those of somebody else's buffers and queues, and
the load client's own work shows up in the server's latencies.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import httptools
import orjson

from lab.load.answer import Answer, BrokenStream, Fault, error_message

LINGER_SECONDS = 1.0
ERROR_BODY_BYTES = 65536
ABORTED = Fault("aborted", "still running when the drain time was over; closed by the client")


class Endpoint:
    """Where requests go: an http:// or https:// URL of an OpenAI-compatible server."""

    def __init__(self, server_url: str, path: str = "/v1/chat/completions") -> None:
        parts = urlsplit(server_url)
        self.tls = parts.scheme == "https"
        self.host = parts.hostname or "127.0.0.1"
        self.port = parts.port or (443 if self.tls else 80)
        self._head = (
            f"POST {parts.path.rstrip('/').removesuffix('/v1')}{path} HTTP/1.1\r\n"
            f"Host: {parts.netloc}\r\nAccept: text/event-stream\r\nContent-Type: application/json\r\n"
            "Connection: close\r\nContent-Length: "
        )

    def payload(self, body: dict) -> bytes:
        """The bytes of one POST."""
        content = orjson.dumps(body)
        return f"{self._head}{len(content)}\r\n\r\n".encode() + content


class Exchange(asyncio.Protocol):
    """One POST on a connection of its own, from the send to the last byte.

    `ended` resolves to None when the answer is complete, else to a Fault of kind `http-4xx`, `http-5xx`,
    `rate-limited`, `disconnected`, `bad-http`, `bad-sse`, `server-error` (told inside a stream), `empty`,
    `stalled` or `aborted`. `end_s` is when that was known (monotonic seconds).
    """

    def __init__(
        self, payload: bytes, answer: Answer, stall_seconds: float, on_first_token: Callable[[], None]
    ) -> None:
        self.answer = answer
        self.status: int | None = None
        self.end_s: float | None = None
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[Fault | None] = self._loop.create_future()
        self._payload = payload
        self._stall_seconds = stall_seconds
        self._on_first_token = on_first_token
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._streaming = False
        self._body = b""
        self._heard_s = 0.0
        self._stall_timer: asyncio.TimerHandle | None = None

    async def run(self, endpoint: Endpoint) -> Fault | None:
        """Connect, send and read to the end; returns what went wrong, if anything. Cancelling closes the connection."""
        try:
            async with asyncio.timeout(self._stall_seconds):
                await self._loop.create_connection(
                    lambda: self, endpoint.host, endpoint.port, ssl=True if endpoint.tls else None
                )
        except (OSError, TimeoutError) as error:
            self._end(Fault("connect", f"{endpoint.host}:{endpoint.port}: {error or 'no answer'}"))
        try:
            return await asyncio.shield(self.ended)
        except asyncio.CancelledError:
            self.abort()
            raise

    def abort(self) -> None:
        """Close the connection of a request that is no longer wanted."""
        self._end(ABORTED)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._heard_s = time.monotonic()
        transport.write(self._payload)
        self._stall_timer = self._loop.call_later(self._stall_seconds, self._check_stall)

    def data_received(self, data: bytes) -> None:
        self._heard_s = time.monotonic()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._end(Fault("bad-http", str(error) or "the bytes are not an HTTP answer"))

    def connection_lost(self, exc: Exception | None) -> None:
        if self.ended.done():
            return
        if self.status is None:
            self._end(Fault("disconnected", "the server closed the connection before answering"))
        else:
            self._end(self._verdict())

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"content-type":
            self._streaming = value.lower().startswith(b"text/event-stream")

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        if self.ended.done():
            return
        if self.status != 200 or not self._streaming:
            self._body = (self._body + body)[:ERROR_BODY_BYTES]
            return
        waiting = self.answer.first_token_s is None
        try:
            self.answer.feed(body, self._heard_s)
        except BrokenStream as error:
            self._end(error.fault)
            return
        if waiting and self.answer.first_token_s is not None:
            self._on_first_token()
        if self.answer.done:
            self._end(self.answer.close(self._heard_s))

    def on_message_complete(self) -> None:
        if not self.ended.done():
            self._end(self._verdict())
        self._transport.close()

    def _verdict(self) -> Fault | None:
        if self.status != 200:
            return _refusal(self.status, self._body)
        if not self._streaming:
            return Fault("bad-sse", f"the answer is not an event stream: {error_message(self._body)}")
        return self.answer.close(self._heard_s)

    def _check_stall(self) -> None:
        quiet = time.monotonic() - self._heard_s
        if quiet >= self._stall_seconds:
            self._end(Fault("stalled", f"no byte for {self._stall_seconds:g} s"))
        else:
            self._stall_timer = self._loop.call_later(self._stall_seconds - quiet, self._check_stall)

    def _end(self, fault: Fault | None) -> None:
        if self.ended.done():
            return
        self.end_s = time.monotonic() if fault else self._heard_s
        self.answer.settle()
        self.ended.set_result(fault)
        if self._stall_timer is not None:
            self._stall_timer.cancel()
        if self._transport is None:
            return
        if fault is None:
            self._loop.call_later(LINGER_SECONDS, self._transport.abort)
        else:
            self._transport.abort()


def _refusal(status: int, body: bytes) -> Fault:
    kind = "rate-limited" if status == 429 else f"http-{status // 100}xx"
    return Fault(kind, error_message(body) or f"HTTP {status} without a message")
