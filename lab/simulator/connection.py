"""HTTP on one connection: parse requests, write answers and event streams, say when the client has gone.

Without a reader directly on the socket the simulator could not stamp what it sends, nor serve hundreds of streams
on a fraction of a core.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from email.utils import formatdate
from typing import Protocol
from urllib.parse import unquote

import httptools

_REASONS = {
    200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 405: "Method Not Allowed",
    429: "Too Many Requests", 500: "Internal Server Error", 501: "Not Implemented", 503: "Service Unavailable",
}  # fmt: skip


class Handler(Protocol):
    """What the connection calls: one complete request, or the end of the client."""

    server_header: bytes

    def handle(self, connection: Connection, method: str, path: str, query: str, body: bytes) -> None: ...
    def closed(self, connection: Connection) -> None: ...


class Connection(asyncio.Protocol):
    """One client connection; requests on it are answered one after the other."""

    def __init__(self, handler: Handler, opened: Callable[[Connection], None]) -> None:
        self.exchange: object | None = None
        self.peer = "127.0.0.1:0"
        self._handler = handler
        self._opened = opened
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._url, self._body, self._keep = b"", b"", True
        self._queued: list[tuple[str, bytes, bytes]] = []
        self._busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        host, port = transport.get_extra_info("peername")[:2]
        self.peer = f"{host}:{port}"
        self._opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._handler.closed(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.cut()

    def on_message_begin(self) -> None:
        self._url, self._body = b"", b""

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        self._keep = self._parser.should_keep_alive()
        self._queued.append((self._parser.get_method().decode(), self._url, self._body))
        self._next()

    @property
    def open(self) -> bool:
        """Whether the client is still there."""
        return self._transport is not None and not self._transport.is_closing()

    def respond(self, status: int, body: bytes, kind: str = "application/json", headers: bytes = b"") -> None:
        """A whole answer."""
        self._write(
            self._head(status, kind.encode()) + headers + f"content-length: {len(body)}\r\n\r\n".encode() + body
        )
        self._finish()

    def begin_stream(self) -> None:
        """The head of an event stream."""
        self._write(self._head(200, b"text/event-stream; charset=utf-8") + b"transfer-encoding: chunked\r\n\r\n")

    def send(self, event: bytes) -> None:
        """One server-sent event, its `data: ` and blank line included, as one HTTP chunk."""
        self._write(b"%x\r\n%b\r\n" % (len(event), event))

    def end_stream(self) -> None:
        """The end of a stream."""
        self._write(b"0\r\n\r\n")
        self._finish()

    def cut(self) -> None:
        """Close the connection as it is, after what was written."""
        if self._transport is not None:
            self._transport.close()

    def _head(self, status: int, kind: bytes) -> bytes:
        reason = _REASONS.get(status, "Unknown").encode()
        date = formatdate(usegmt=True).encode()
        close = b"" if self._keep else b"connection: close\r\n"
        return b"HTTP/1.1 %d %b\r\ndate: %b\r\nserver: %b\r\ncontent-type: %b\r\n%b" % (
            status, reason, date, self._handler.server_header, kind, close,
        )  # fmt: skip

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _finish(self) -> None:
        self._busy, self.exchange = False, None
        if not self._keep:
            self.cut()
        elif self._queued:
            self._next()

    def _next(self) -> None:
        if self._busy or not self._queued:
            return
        self._busy = True
        method, url, body = self._queued.pop(0)
        path, _, query = url.decode("latin-1").partition("?")
        self._handler.handle(self, method, unquote(path), query, body)
