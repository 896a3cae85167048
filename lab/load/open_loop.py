"""Open-loop load: requests fall due at times fixed beforehand, and at most C of them are in flight.

Without a record of when each request should have been sent, the wait for a free client slot vanishes from every
latency, and a server that cannot keep up looks as fast as one that can.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from itertools import chain, islice
from typing import Any

from lab.load import arrivals
from lab.load.loop import Loop

LOOK_SECONDS = 0.1


class OpenLoop(Loop):
    """A dispatcher puts requests into one queue when they fall due; C client slots send them in that order.

    Over several processes, each has every N-th arrival and its own share of the slots.
    """

    needed = 1

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        job = self.job
        at_s = [item["at_s"] for item in job.items] if job.arrivals == "trace" else ()
        offsets_s = arrivals.offsets(job.arrivals, job.rate_rps, job.salt, at_s)
        own_s = islice(offsets_s, job.process, None, job.processes)
        first = list(islice(own_s, 1))
        self.first_due_s = first[0] if first else 0.0
        self._offsets_s = chain(first, own_s)
        self._due: asyncio.Queue[tuple[int, float] | None] = asyncio.Queue()

    def senders(self, start_s: float) -> list[Coroutine[Any, Any, None]]:
        return [self._dispatch(start_s), *(self._slot(client) for client in self.job.clients)]

    async def warm_up(self, start_s: float) -> None:
        """The time begins with the load."""
        await asyncio.sleep(start_s + self.job.warmup_seconds - time.monotonic())

    async def _dispatch(self, start_s: float) -> None:
        for offset_s in self._offsets_s:
            due_s = start_s + offset_s
            if not await self._falls_due(due_s):
                break
            self._due.put_nowait((self.next_number(), due_s))
        for _ in self.job.clients:
            self._due.put_nowait(None)

    async def _falls_due(self, due_s: float) -> bool:
        """Wait until `due_s`; False when the window closes before."""
        while (rest_s := due_s - time.monotonic()) > 0:
            if self.over():
                return False
            await asyncio.sleep(min(rest_s, LOOK_SECONDS))
        return self.closed_s is None or due_s < self.closed_s

    async def _slot(self, client: int) -> None:
        while (arrival := await self._due.get()) is not None:
            number, due_s = arrival
            if self.over():
                self.never_sent(number, client, due_s)
            else:
                await self.send(number, client, due_s)
