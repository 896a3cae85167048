"""Closed-loop load: C clients, each with one request in flight at all times.

Without a staggered start every client moves in lockstep with the others: all prefill together, then all decode
together, and the server never sees the mixed batch that it will see in service.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

from lab.load.loop import Loop

START_SPREAD_SECONDS = 1.0
START_GAP_SECONDS = 0.02
BACK_OFF_SECONDS = (0.25, 0.5, 1.0, 2.0)


class ClosedLoop(Loop):
    """Each client sends its next request when its last has ended; after a failure it backs off first.

    One that the server puts off for longer than the warm-up waits as long as it is told, and the window does not wait
    for it: `clients_started` counts those that the window began with.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.needed = len(self.job.clients)
        self._sent_by: set[int] = set()
        self._put_off: set[int] = set()
        self._all_sent = asyncio.Event()

    def senders(self, start_s: float) -> list[Coroutine[Any, Any, None]]:
        gap_s = min(START_GAP_SECONDS, START_SPREAD_SECONDS / self.job.concurrency) / self.job.time_factor
        return [self._client(client, start_s + client * gap_s) for client in self.job.clients]

    async def warm_up(self, start_s: float) -> None:
        """The time begins when every client has sent its first request."""
        await self._all_sent.wait()
        await asyncio.sleep(self.job.warmup_seconds)

    async def _client(self, client: int, start_s: float) -> None:
        await asyncio.sleep(start_s - time.monotonic())
        due_s, failures, share = time.monotonic(), 0, (client + 1) / self.job.concurrency
        while not self.over():
            self._note_sent(client)
            request = await self.send(self.next_number(), client, due_s, share)
            share = 1.0
            if request.fault is None:
                due_s, failures = request.end_s, 0
                continue
            pause_s = BACK_OFF_SECONDS[min(failures, len(BACK_OFF_SECONDS) - 1)]
            failures += 1
            pause_s = max(pause_s, request.retry_after_s or 0) / self.job.time_factor
            self._note_pause(client, pause_s)
            await self.pause(pause_s)
            due_s = time.monotonic()

    def _note_pause(self, client: int, pause_s: float) -> None:
        """No window waits for a client that will be away for longer than the warm-up, once others have begun."""
        if pause_s > max(self.job.warmup_seconds, BACK_OFF_SECONDS[-1] / self.job.time_factor):
            self._put_off.add(client)
            self.needed = len(self.job.clients) - len(self._put_off - self._started)
            if self._started and len(self._started) >= self.needed:
                self._enough_started.set()

    def _note_sent(self, client: int) -> None:
        self._sent_by.add(client)
        if len(self._sent_by) == len(self.job.clients):
            self._all_sent.set()
