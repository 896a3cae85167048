"""A server that knows when it received each request and sent each chunk: the truth that readers are held against.

Without the true times a reader can only be compared with another reader, and both may be late.

`python -m tests.bench.stamp_server --rate 50 --stamps FILE [--lockstep] [--prefill 0.05]` speaks OpenAI chat
streams with a running usage on 127.0.0.1 and prints its port. Each stream has `--rate` chunks a second, its own
phase and uneven gaps; with --lockstep all streams send at the same moments. The last word of the first message is the
request's number. Times are monotonic seconds, taken just before the bytes go to the socket. When standard input ends,
FILE receives a pickled {number: (received_s, array of chunk times)}, and the server ends.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import pickle
import random
import sys
import time
from array import array
from pathlib import Path

import httptools
import orjson
import uvloop

TICK_SECONDS = 0.001
WORDS = [" the", " model", " answers", ",", " word", " by", " word", " and", " stops", "."]
HEAD = (
    b"HTTP/1.1 200 OK\r\ndate: Mon, 30 Nov 2026 12:00:00 GMT\r\nserver: uvicorn\r\n"
    b"content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)
CHUNK = (
    'data: {"id":"chatcmpl-bd0e772fca25b259","object":"chat.completion.chunk","created":1796072793,"model":"m",'
    '"choices":[{"index":0,"delta":{"content":"%s"},"logprobs":null,"finish_reason":%s,"token_ids":null}],'
    '"usage":{"prompt_tokens":32,"total_tokens":%d,"completion_tokens":%d}}\n\n'
)
ROLE = (
    'data: {"id":"chatcmpl-bd0e772fca25b259","object":"chat.completion.chunk","created":1796072793,"model":"m",'
    '"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],'
    '"usage":{"prompt_tokens":32,"total_tokens":32,"completion_tokens":0}}\n\n'
)


def framed(text: str) -> bytes:
    """One piece of a chunked body."""
    content = text.encode()
    return b"%x\r\n%b\r\n" % (len(content), content)


def chunk(number: int, last: bool) -> bytes:
    """The chunk with the `number`-th token."""
    return framed(CHUNK % (WORDS[number % len(WORDS)], '"length"' if last else "null", 32 + number, number))


CHUNKS = [chunk(number, False) for number in range(1, 4097)]
END = framed("data: [DONE]\n\n") + b"0\r\n\r\n"


class Clock:
    """Calls streams when they are due, with the millisecond for a grain."""

    def __init__(self, rate: float, lockstep: bool, prefill_s: float) -> None:
        self.gap_s = 1 / rate
        self.lockstep = lockstep
        self.prefill_s = prefill_s
        self.stamps: dict[int, tuple[float, array]] = {}
        self._slots: list[list[Stream]] = [[] for _ in range(8192)]
        self._tick = int(time.monotonic() / TICK_SECONDS)

    def at(self, due_s: float, stream: Stream) -> None:
        """Call `stream.send` at that time."""
        tick = max(int(due_s / TICK_SECONDS), self._tick + 1)
        self._slots[tick % len(self._slots)].append(stream)

    async def run(self) -> None:
        """Tick for ever."""
        while True:
            now = int(time.monotonic() / TICK_SECONDS)
            while self._tick < now:
                self._tick += 1
                index = self._tick % len(self._slots)
                due, self._slots[index] = self._slots[index], []
                for stream in due:
                    stream.send()
            await asyncio.sleep(TICK_SECONDS)


class Stream(asyncio.Protocol):
    """One connection."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._parser = httptools.HttpRequestParser(self)
        self._body = b""
        self._closed = False
        self._left = 0

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._descriptor = transport.get_extra_info("socket").fileno()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True

    def data_received(self, data: bytes) -> None:
        self._received_s = time.monotonic()
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        asked, self._body = orjson.loads(self._body), b""
        number = int(asked["messages"][0]["content"].split()[-1])
        self._sent = array("d")
        self._clock.stamps[number] = self._received_s, self._sent
        self._left = asked["max_tokens"]
        self._begun = False
        self._due_s = self._received_s + self._clock.prefill_s * random.uniform(0.5, 1.5)
        self._schedule()

    def _schedule(self) -> None:
        if self._clock.lockstep:
            self._due_s = (int(self._due_s / self._clock.gap_s) + 1) * self._clock.gap_s
        self._clock.at(self._due_s, self)

    def send(self) -> None:
        """The next chunk."""
        if self._closed:
            return
        if not self._begun:
            self._begun = True
            self._write(HEAD + framed(ROLE))
        self._left -= 1
        token = len(self._sent) + 1
        content = CHUNKS[len(self._sent)] if self._left else chunk(token, True)
        self._sent.append(time.monotonic())
        self._write(content)
        if self._left:
            self._due_s += self._clock.gap_s * (1 if self._clock.lockstep else random.uniform(0.8, 1.2))
            self._schedule()
        else:
            self._write(END)

    def _write(self, content: bytes) -> None:
        """Straight to the socket: the event loop would keep the bytes until after its next look at all sockets."""
        try:
            written = os.write(self._descriptor, content)
        except OSError:
            self._transport.abort()
            return
        if written < len(content):
            raise RuntimeError("the reader is so far behind that the socket is full")


async def serve(rate: float, lockstep: bool, prefill_s: float, stamps: Path) -> None:
    """Serve until standard input ends."""
    clock = Clock(rate, lockstep, prefill_s)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Stream(clock), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    ticking = asyncio.create_task(clock.run())
    await loop.run_in_executor(None, sys.stdin.buffer.read)
    ticking.cancel()
    stamps.write_bytes(pickle.dumps(clock.stamps))


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("--rate", type=float, required=True)
    options.add_argument("--prefill", type=float, default=0.05)
    options.add_argument("--lockstep", action="store_true")
    options.add_argument("--stamps", type=Path, required=True)
    given = options.parse_args()
    uvloop.run(serve(given.rate, given.lockstep, given.prefill, given.stamps))
