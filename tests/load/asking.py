"""Asking a scripted server over a real socket, with the load client's own reader.

Without it every test of the reader would open its own event loop its own way.
"""

from __future__ import annotations

import asyncio

import uvloop
from sse_server import DONE, ROLE, Handler, SseServer, chunked, delta, head, usage

from lab.load.answer import Answer
from lab.load.endpoint import Endpoint
from lab.load.events import Fault
from lab.load.exchange import Exchange, Pool

BODY = ROLE + delta(content="a", count=1) + delta(content="b c", count=3) + delta("stop") + usage(3) + DONE
WHOLE = head(Transfer_Encoding="chunked") + chunked(BODY) + chunked(b"")
Result = tuple[Exchange, Fault | None]


async def ask(pool: Pool, stall_seconds: float = 5.0) -> Result:
    """One request, run to its end."""
    payload = pool.endpoint.payload({"n": 1})
    one = pool.exchange(payload, Answer("chat", ("timings", "predicted_n")), stall_seconds, lambda: None)
    return one, await asyncio.wait_for(one.run(), 20)


def ask_all(endpoint: Endpoint, count: int = 1, stall_seconds: float = 5.0, pause: float = 0.0) -> list[Result]:
    """`count` requests, one after the other, from one pool."""

    async def run() -> list[Result]:
        pool = Pool(endpoint)
        results = []
        for _ in range(count):
            results.append(await ask(pool, stall_seconds))
            await asyncio.sleep(pause)
        pool.close()
        return results

    return uvloop.run(run())


def against(*pieces: bytes, pause: float = 0.0, stall_seconds: float = 5.0) -> Result:
    """One request answered with the pieces, each in a segment of its own."""
    return with_handler(script(*pieces, pause=pause), stall_seconds)


def with_handler(handler: Handler, stall_seconds: float = 5.0) -> Result:
    """One request answered by `handler`."""
    with SseServer(handler) as server:
        return ask_all(Endpoint(server.url), stall_seconds=stall_seconds)[0]


def script(*pieces: bytes, pause: float = 0.0, close: bool = False) -> Handler:
    """A handler that sends the pieces one after the other."""

    async def answer(body: dict, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause)
        if close:
            writer.close()

    return answer
