"""HTTP/1.1 connections of the load client: one answer after the other, each read as its bytes arrive.

Without a reader directly on the socket the arrival times are those of somebody else's buffers and queues, and the
load client's own work shows up in the server's latencies.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from time import monotonic
from typing import Protocol

import httptools

from lab.load.answer import Answer
from lab.load.events import BrokenStream, Fault

STALE = Fault("disconnected", "the server closed the connection before answering")


class Reader(Protocol):
    """What a connection tells of the answer that it reads (`exchange.Exchange`)."""

    answer: Answer
    streaming: bool

    def take_status(self, status: int) -> None:
        """The status; the headers are complete."""

    def take_header(self, name: bytes, value: bytes) -> None:
        """A header, its name in lower case."""

    def take_body(self, body: bytes) -> None:
        """A piece of a body that is not a stream of events."""

    def tell_first_token(self) -> None:
        """The first token has arrived; called once for each sending."""

    def await_end(self) -> None:
        """The stream of events is over, the HTTP body not yet; called for each further piece."""

    def finish(self, reusable: bool) -> None:
        """The answer is complete; a connection that is not reusable closes.

        It is not when the answer came before the whole request was sent: the next would go out ahead of the rest.
        """

    def fail(self, fault: Fault) -> None:
        """The answer cannot be read to its end; STALE: the connection closed before its first byte."""

    def cut(self) -> None:
        """The connection closed within the answer, or at the end of one without a length."""


class Tail:
    """Reads what follows a complete answer while its HTTP body stays open (a `Reader`).

    `over(reusable)` is called once: when the body has ended, or is not ended after `seconds`.
    """

    answer: None = None
    streaming = False

    def __init__(self, seconds: float, over: Callable[[bool], None]) -> None:
        self._over = over
        self._timer = asyncio.get_running_loop().call_later(seconds, self.cut)

    def take_status(self, status: int) -> None:
        pass

    def take_header(self, name: bytes, value: bytes) -> None:
        pass

    def take_body(self, body: bytes) -> None:
        pass

    def finish(self, reusable: bool) -> None:
        self._timer.cancel()
        self._over(reusable)

    def fail(self, fault: Fault) -> None:
        self.finish(False)

    def cut(self) -> None:
        self.finish(False)


class Connection(asyncio.Protocol):
    """One connection. `lost(connection)` is called once it is closed, by whomever."""

    __slots__ = (
        "_answer", "_answering", "_descriptor", "_lost", "_parser", "_reader", "_transport", "_waiting", "heard_s",
    )  # fmt: skip

    def __init__(self, lost: Callable[[Connection], None]) -> None:
        self.heard_s = 0.0
        self._lost = lost
        self._reader: Reader | None = None
        self._answer: Answer | None = None
        self._answering = False
        self._waiting = False
        self._transport: asyncio.Transport | None = None
        self._descriptor: int | None = None
        self._parser = httptools.HttpResponseParser(self)

    def send(self, reader: Reader, payload: bytes) -> float:
        """Send a request, whose answer goes to `reader`; returns when its first bytes went out (monotonic seconds).

        Written straight to the socket where possible: uvloop would keep the bytes until it has read all sockets
        that are ready, and the wait would count as the server's.
        """
        self._reader, self._answering, self._waiting = reader, False, True
        sent_s = self.heard_s = monotonic()
        if self._parser is None:  # lost already, when nobody was reading
            self._reader = None
            asyncio.get_running_loop().call_soon(reader.fail, STALE)
            return sent_s
        if self._transport.is_closing():
            return sent_s
        written = 0
        if self._descriptor is not None:
            try:
                written = os.write(self._descriptor, payload)
            except BlockingIOError:
                written = 0
            except OSError:
                self._transport.abort()
                return sent_s
        if written < len(payload):
            self._transport.write(payload[written:])
        return sent_s

    def leave(self, tail: Tail) -> None:
        """The answer is complete and its reader gone; `tail` takes what is left of the body."""
        self._reader, self._answer = tail, None

    def close(self) -> None:
        """Close the connection at once; whoever reads from it is not told."""
        self._reader = self._answer = None
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        if transport.get_extra_info("sslcontext") is None:
            self._descriptor = transport.get_extra_info("socket").fileno()

    def data_received(self, data: bytes) -> None:
        self.heard_s = monotonic()
        if self._reader is None:
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if self._reader is not None:
                self._reader.fail(Fault("bad-http", str(error) or "the bytes are not an HTTP answer"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost(self)
        self._parser = None
        reader, self._reader = self._reader, None
        if reader is None:
            return
        if self._answering:
            reader.cut()
        else:
            reader.fail(STALE)

    def on_message_begin(self) -> None:
        self._answering = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._reader is not None:
            self._reader.take_header(name.lower(), value)

    def on_headers_complete(self) -> None:
        reader = self._reader
        if reader is not None:
            reader.take_status(self._parser.get_status_code())
            self._answer = reader.answer if reader.streaming else None

    def on_body(self, body: bytes) -> None:
        answer = self._answer
        if answer is None:
            if self._reader is not None:
                self._reader.take_body(body)
            return
        try:
            answer.feed(body, self.heard_s)
        except BrokenStream as error:
            self._reader.fail(error.fault)
            return
        if self._waiting and answer.first_token_s is not None:
            self._waiting = False
            self._reader.tell_first_token()
        if answer.done:
            self._reader.await_end()

    def on_message_complete(self) -> None:
        reader = self._reader
        if reader is None or self._parser.get_status_code() < 200:
            return
        self._reader = self._answer = None
        reader.finish(self._parser.should_keep_alive() and not self._transport.get_write_buffer_size())
