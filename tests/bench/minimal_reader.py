"""The least that a reader can do: asyncio.Protocol, httptools, orjson, and the time of each chunk.

Without a floor nobody knows how much of the load client's time is the price of Python, and how much its own.
Only for the stamp server's streams: it knows no errors, no other framing and no other API.
"""

from __future__ import annotations

import asyncio
import time
from array import array

import httptools
import orjson


class Minimal(asyncio.Protocol):
    """One connection that is used again and again."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._now = 0.0
        self.times: list[float] = []
        self.over: asyncio.Future | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._now = time.monotonic()
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        for event in body.split(b"\n\n"):
            if event and not event.endswith(b"[DONE]"):
                choices = orjson.loads(event[6:])["choices"]
                if choices and choices[0]["delta"].get("content"):
                    self.times.append(self._now)

    def on_message_complete(self) -> None:
        self.over.set_result(None)


class Reader:
    """One client slot."""

    def __init__(self, host: str, port: int) -> None:
        self._address = host, port
        self._protocol: Minimal | None = None

    async def ask(self, body: bytes) -> tuple[float, array]:
        """Send the body of a chat request; when it was sent, and when its chunks came."""
        loop = asyncio.get_running_loop()
        if self._protocol is None:
            _, self._protocol = await loop.create_connection(Minimal, *self._address)
        protocol = self._protocol
        protocol.times, protocol.over = [], loop.create_future()
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
        sent_s = time.monotonic()
        protocol.transport.write(head + body)
        await protocol.over
        return sent_s, array("d", protocol.times)
