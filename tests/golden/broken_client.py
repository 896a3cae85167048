"""The load client with one fault: `python -m tests.golden.broken_client FAULT NUMBER…`, else as `lab.load.client`.

Without it nothing would show that a client that is slow, short of connections or too eager is told from a server that
is.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from lab.load import client, tokenizer
from lab.load.answer import Answer
from lab.load.closed_loop import ClosedLoop
from lab.load.exchange import Exchange
from lab.load.job import Job


def pool(connections: float) -> None:
    """Requests wait for one of so many connections before they are sent."""
    free, run = asyncio.Semaphore(int(connections)), Exchange.run

    async def limited(self: Exchange) -> Any:
        async with free:
            return await run(self)

    Exchange.run = limited


def busy(milliseconds: float) -> None:
    """Every piece of an answer costs so much computing, once its arrival was noted."""
    feed = Answer.feed

    def slow(self: Answer, body: bytes, now_s: float) -> None:
        feed(self, body, now_s)
        end_s = time.monotonic() + milliseconds / 1000
        while time.monotonic() < end_s:
            pass

    Answer.feed = slow


def leaving(clients: float, share: float) -> None:
    """The first so many clients send nothing more after that share of the window."""
    leaves: ContextVar[bool] = ContextVar("leaves", default=False)
    loop_client, over = ClosedLoop._client, ClosedLoop.over

    async def marked(self: ClosedLoop, number: int, start_s: float) -> None:
        leaves.set(number < clients)
        await loop_client(self, number, start_s)

    def over_for_me(self: ClosedLoop) -> bool:
        if leaves.get() and self.closed_s is not None:
            return time.monotonic() >= self.opened_s + share * (self.closed_s - self.opened_s)
        return over(self)

    ClosedLoop._client, ClosedLoop.over = marked, over_for_me


def only(requests: float) -> None:
    """The last so many clients send one request each, the others none; the window does not wait for those."""
    begin = ClosedLoop.__init__

    def few(self: ClosedLoop, *arguments: Any) -> None:
        begin(self, *arguments)
        self.needed = int(requests)

    async def once(self: ClosedLoop, number: int, start_s: float) -> None:
        self._note_sent(number)
        if number >= self.job.concurrency - requests:
            await self.send(self.next_number(), number, start_s)

    ClosedLoop.__init__, ClosedLoop._client = few, once


def more(clients: float) -> None:
    """So many clients more than asked for."""
    Job.clients = property(lambda job: range(job.process, job.concurrency + int(clients), job.processes))


def no_tokenizer() -> None:
    """The server offers no tokenizer to count with."""
    tokenizer.find = lambda *_: None


FAULTS: dict[str, Callable[..., None]] = {
    "pool": pool,
    "busy": busy,
    "leaving": leaving,
    "only": only,
    "more": more,
    "no_tokenizer": no_tokenizer,
}

if __name__ == "__main__":
    FAULTS[sys.argv[1]](*map(float, sys.argv[2:]))
    sys.exit(client.main())
