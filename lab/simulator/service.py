"""The simulated engine in time: absolute schedule, arrivals, faults, and the account of it all.

Without an absolute schedule the jitter of sleeping would add up, and the true speed would not be what `truth.Truth`
says. Steps are handed out at their planned ends, or all at once when the process is late; none is skipped, so the
mean rate holds however late single ones are. How late is in the journal.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab.simulator.journal import Journal
from lab.simulator.pace import Pace
from lab.simulator.request import Request
from lab.simulator.scheduler import Rank, Step
from lab.simulator.stream import Stream
from lab.simulator.tally import Gauges, Histogram, Tally, aged, gauges_of
from lab.simulator.truth import Truth

_SHORTEST_SLEEP_S = 0.001  # the loop's timers resolve a millisecond
_PINNED_LENGTH = 1 << 30


class Service:
    """Ranks, clock and journal of one process. Server seconds count from `begin`."""

    def __init__(self, truth: Truth, launch: int, bounds: dict[str, tuple[float, ...]]) -> None:
        self.truth = truth
        self.launch = launch
        self.first_request_s: list[float] = []
        pace = Pace(truth, launch)
        self.launch_factor = pace.launch_factor
        self.ranks = [Rank(truth, pace, index, self.first_request_s) for index in range(truth.ranks)]
        self._bounds = bounds
        self.tallies = [
            aged(self._new_tally(), truth.metrics.requests_before if i == 0 else 0) for i in range(truth.ranks)
        ]
        self._shown = [Gauges() for _ in self.ranks]
        self.in_flight: dict[int, Request] = {}
        self.generation_requests = 0
        self.finished = 0
        self.on_step: Callable[[Step], None] = lambda _: None
        self._held: deque[Request] = deque()
        self._rotation = 0
        self._timer: asyncio.TimerHandle | None = None
        self._target_s = math.inf
        self._tail = random.Random(f"{truth.seed}/{launch}/tail")

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the clock; from now on requests may come."""
        self._loop = loop
        self.zero_s = time.monotonic()
        self.started_unix_s = time.time()
        self.journal = Journal(self.zero_s, self.truth.time_factor)
        for index in range(self.truth.foreign.idle_running):
            request = Request(-1 - index, 0.0, 0.0, 1, _PINNED_LENGTH, _PINNED_LENGTH, foreign=True, pinned=True)
            self._route(request).add(request)
        self._arm()

    def now_s(self) -> float:
        """Server seconds since the start."""
        return (time.monotonic() - self.zero_s) * self.truth.time_factor

    def unix(self, server_s: float) -> float:
        """Server seconds since the start as a wall-clock time."""
        return self.started_unix_s + server_s / self.truth.time_factor

    def later(self, server_seconds: float, call: Callable[[], None]) -> None:
        """Call after so many server seconds."""
        self._loop.call_later(server_seconds / self.truth.time_factor, call)

    def number(self) -> int:
        """The number of the generation request that has just come, from 0."""
        self.generation_requests += 1
        if self.generation_requests == 1:
            self._plan_events()
        return self.generation_requests - 1

    def arrival(self) -> tuple[float, float]:
        """Now, and when a request that comes now may be queued."""
        now_s = self.now_s()
        noise = self.truth.noise
        wait_ms = self.truth.overhead_ms
        if noise.tail_share and self._tail.random() < noise.tail_share:
            wait_ms += self._tail.expovariate(1 / noise.tail_ms) if noise.tail_ms else 0.0
        return now_s, now_s + wait_ms / 1000

    def submit(self, request: Request) -> None:
        """Take a request in; beyond `hold_beyond` it waits at the door, where no gauge sees it."""
        limit = self.truth.hold_beyond
        if limit is not None and len(self.in_flight) >= limit and not request.foreign:
            self._held.append(request)
            return
        self.in_flight[id(request)] = request
        self._route(request).add(request)
        self._arm()

    def leave(self, request: Request, reason: str) -> None:
        """A request ended: by itself, or `abort`, `cut`, `stalled`, `error`; the last three leave the engine too."""
        known = self.in_flight.pop(id(request), None) is not None
        if not known and request in self._held:
            self._held.remove(request)
        natural = reason in ("stop", "length")
        if known and not natural:
            self.ranks[request.rank].abort(request)
        if known or natural:
            self.tallies[request.rank].ended(request, reason if natural else "abort")
        self.journal.ended(request, time.monotonic(), reason)
        while self._held and len(self.in_flight) < (self.truth.hold_beyond or math.inf):
            held = self._held.popleft()
            held.ready_s = self.arrival()[1]
            self.submit(held)
        self.finished += natural
        if self.truth.faults.crash_after_requests == self.finished and natural:
            self.crash()

    def gauges(self, index: int) -> Gauges:
        """The gauges of a rank as they are shown."""
        return (
            gauges_of(self.ranks[index], self.now_s()) if self.truth.metrics.refresh_steps == 1 else self._shown[index]
        )

    def summary(self, from_s: float, to_s: float) -> dict[str, Any]:
        """The truth between two monotonic seconds, up to this instant: due steps are handed out before."""
        self._catch_up()
        under_way = [rank.current for rank in self.ranks if rank.current is not None]
        return self.journal.summary(from_s, to_s, under_way)

    def crash(self) -> None:
        """Die without a farewell."""
        os._exit(self.truth.faults.crash_code)

    def flush_prefix_cache(self) -> None:
        """Forget cached prompts."""
        for rank in self.ranks:
            rank.cache.clear()

    def save(self, folder: Path) -> None:
        """Write the journal."""
        self.journal.save(folder / "truth.npz")

    def _new_tally(self) -> Tally:
        return Tally(histograms={name: Histogram(bounds) for name, bounds in self._bounds.items()})

    def _route(self, request: Request) -> Rank:
        if self.truth.router == "first":
            return self.ranks[0]
        return min(self.ranks, key=lambda rank: rank.in_flight)

    def _plan_events(self) -> None:
        truth = self.truth
        if truth.faults.crash_at_s is not None:
            self.later(truth.faults.crash_at_s, self.crash)
        if truth.metrics.reset_at_s is not None:
            self.later(truth.metrics.reset_at_s, self._reset)
        if truth.foreign.requests:
            self.later(truth.foreign.start_s, self._visit)

    def _reset(self) -> None:
        self.tallies = [self._new_tally() for _ in self.ranks]

    def _visit(self) -> None:
        """Somebody else's requests arrive."""
        foreign = self.truth.foreign
        for index in range(foreign.requests):
            now_s, ready_s = self.arrival()
            length = foreign.output_tokens
            self.submit(Request(-1000 - index, now_s, ready_s, foreign.prompt_tokens, length, length, foreign=True))

    def _arm(self) -> None:
        """Wake at the next event, never earlier than a millisecond from now."""
        next_s = min(rank.next_s() for rank in self.ranks)
        if self._timer is not None and next_s >= self._target_s:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._target_s = next_s
        if next_s == math.inf:
            return
        wait_s = self.zero_s + next_s / self.truth.time_factor - time.monotonic()
        self._timer = self._loop.call_later(max(_SHORTEST_SLEEP_S, math.ceil(wait_s * 1000) / 1000), self._wake)

    def _wake(self) -> None:
        self._timer, self._target_s = None, math.inf
        self._catch_up()
        self._arm()

    def _catch_up(self) -> None:
        """Hand out every step that has ended by now."""
        now_s = self.now_s()
        while True:
            rank = min(self.ranks, key=lambda one: one.next_s())
            if rank.next_s() > now_s:
                break
            step = rank.advance(now_s)
            if step is not None:
                self._hand_out(step)

    def _hand_out(self, step: Step) -> None:
        rank = self.ranks[step.rank]
        self.tallies[step.rank].stepped(step, self.truth.speculation.tokens)
        self.journal.stepped(step, time.monotonic() - self.journal.real(step.end_s))
        if step.number % self.truth.metrics.refresh_steps == 0 or not rank.in_flight:
            self._shown[step.rank] = Gauges(len(rank.running), len(rank.waiting), rank.kv_used)
        self.on_step(step)
        for request, tokens in step.tokens:
            sink: Stream | None = request.sink
            if sink is not None:
                sink.deliver(tokens)
            elif not request.pinned:
                self.journal.sent(request, tokens, time.monotonic())
        for request in step.finished:
            if request.sink is None:
                self.leave(request, request.finish_reason)
