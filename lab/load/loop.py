"""What every kind of load shares: sending, one timed window, the drain after it, and knowing when it is hopeless.

Without a warm-up at the measured load and a drain, the window holds the ramp, and requests that were too slow to
finish drop out of the record.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from lab.errors import LabError
from lab.load import apis
from lab.load.answer import Answer
from lab.load.endpoint import Endpoint
from lab.load.events import Fault
from lab.load.exchange import ABORTED, Exchange, Pool
from lab.load.job import Job
from lab.load.record import Request
from lab.load.self_watch import SelfWatch

PROGRESS_SECONDS = 1.0
REFUSED_SECONDS = 1.0
FAILURES_PER_CLIENT = 3
NOT_SENT = Fault("not-sent", "fell due before the end of the window, and no client slot had sent it by then")


class GaveUp(LabError):
    """The server cannot be measured: nothing listens, nothing succeeds, or nothing comes back."""


class Loop(ABC):
    """One process's share of a trial's load.

    `run` once; the owner's `set_window` while it runs. Then `requests`, `opened_s`, `closed_s` and `outcome()` tell
    what happened. `emit(event, content)` tells the owner: `progress` each second, `warm` when the window may open,
    `window-open`, `window-closed`.
    """

    needed: int
    """How many clients must have seen a token before the window may open."""
    first_due_s: float = 0.0
    """When this process's first request falls due, in seconds from the start."""

    def __init__(self, job: Job, emit: Callable[[str, dict[str, Any]], None]) -> None:
        self.job = job
        self.requests: list[Request] = []
        self.opened_s: float | None = None
        self.closed_s: float | None = None
        self._emit = emit
        self._endpoint = Endpoint(job.server_url, job.api, job.headers)
        self._pool = Pool(self._endpoint)
        self._phase = "start"
        self._number = job.process
        self._live: dict[int, tuple[Request, Exchange]] = {}
        self._ended_tokens = 0
        self._started: set[int] = set()
        self._enough_started = asyncio.Event()
        self._window = asyncio.Event()
        self._closing = asyncio.Event()
        self._failures = 0
        self._last_fault: Fault | None = None
        self._refused_since_s: float | None = None
        self._refused = 0
        self._failure: str | None = None
        self._started_when_warm = 0
        self._drained_s: float | None = None
        self._self_watch = SelfWatch()

    @abstractmethod
    def senders(self, start_s: float) -> list[Coroutine[Any, Any, None]]:
        """The coroutines that send, from `start_s` (monotonic) until `over()`."""

    @abstractmethod
    async def warm_up(self, start_s: float) -> None:
        """Return when the measured load has been offered for the time of the warm-up."""

    async def run(self, start_s: float) -> None:
        """Offer the load from `start_s` until the window is over and every request has ended."""
        reporter = asyncio.create_task(self._report())
        try:
            async with asyncio.TaskGroup() as group:
                for sender in self.senders(start_s):
                    group.create_task(sender)
                group.create_task(self._conduct(start_s))
        except* LabError as errors:
            self._failure = str(errors.exceptions[0])
        finally:
            reporter.cancel()
        self._drained_s = time.monotonic()

    def set_window(self, opened_s: float, closed_s: float) -> None:
        """Open the window at `opened_s` and close it at `closed_s`, by the monotonic clock that this host shares."""
        self.opened_s, self.closed_s = opened_s, closed_s
        self._window.set()

    def outcome(self) -> dict[str, Any]:
        """What the load generator knows of itself; `failure` is None when the window was completed."""
        aborted = any(request.fault == ABORTED for request in self.requests)
        return {
            "failure": self._failure,
            "clients_started": self._started_when_warm,
            "loop_lag_mean_ms": self._self_watch.loop_lag_mean_ms,
            "loop_lag_p99_ms": self._self_watch.loop_lag_p99_ms,
            "loop_lag_max_ms": self._self_watch.loop_lag_max_ms,
            "cpu_share": self._self_watch.cpu_share,
            "drained": self._failure is None and not aborted,
            "drain_seconds": None if self.closed_s is None else max(0.0, self._drained_s - self.closed_s),
        }

    def over(self) -> bool:
        """Whether the window has ended; by the clock too, since the loop may wake a little late."""
        return self._closing.is_set() or (self.closed_s is not None and time.monotonic() >= self.closed_s)

    async def pause(self, seconds: float) -> None:
        """Wait so long, or until the window closes."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()

    def next_number(self) -> int:
        """This process's next request number: every `processes`-th, so that all processes together go through the
        items in order."""
        number, self._number = self._number, self._number + self.job.processes
        return number

    async def send(self, number: int, client: int, due_s: float, share: float = 1.0) -> Request:
        """Send one request, asking for that share of its tokens, and read its answer; raises GaveUp when that makes
        the trial hopeless."""
        job = self.job
        item = job.items[number % len(job.items)]
        request = self._request(number, client, due_s, max(1, round(share * self._max_tokens(item))))
        body = apis.get(job.api).body(item, job.model, request.max_tokens, job.sampling, job.extras)
        exchange = self._pool.exchange(
            self._endpoint.payload(body), request.answer, job.stall_seconds, lambda: self._note_start(client)
        )
        self._live[number] = request, exchange
        tried_s = time.monotonic()
        fault: Fault | None = ABORTED
        try:
            fault = await exchange.run()
        finally:
            del self._live[number]
            request.ended(exchange, fault)
            if request.sent_s is None:  # no connection: it counts as sent and failed, not as never sent
                request.sent_s = tried_s
            self._ended_tokens += request.answer.output_tokens
        self._judge_health(fault, request.end_s)
        return request

    def never_sent(self, number: int, client: int, due_s: float) -> None:
        """Keep a request that fell due and was not sent before the window closed."""
        item = self.job.items[number % len(self.job.items)]
        self._request(number, client, due_s, self._max_tokens(item)).fault = NOT_SENT

    def _max_tokens(self, item: dict[str, Any]) -> int:
        return item.get("max_tokens") or self.job.output_tokens

    def _request(self, number: int, client: int, due_s: float, max_tokens: int) -> Request:
        job = self.job
        prompt = number % len(job.items)
        request = Request(
            number, client, job.process, prompt, max_tokens, due_s, Answer(job.api, job.tokens_path, max_tokens)
        )
        self.requests.append(request)
        return request

    async def _conduct(self, start_s: float) -> None:
        self._phase = "warmup"
        await asyncio.gather(self._first_tokens(start_s), self.warm_up(start_s))
        self._started_when_warm = len(self._started)
        self._emit("warm", {"clients_started": self._started_when_warm})
        await self._window.wait()
        await asyncio.sleep(max(0.0, self.opened_s - time.monotonic()))
        self._phase = "window"
        self._emit("window-open", {"t_s": self.opened_s})
        await self._self_watch.until(self.closed_s, self.opened_s)
        self._phase = "drain"
        self._closing.set()
        self._emit("window-closed", {"t_s": self.closed_s})
        self._begin_drain()

    async def _first_tokens(self, start_s: float) -> None:
        """No window before enough clients have seen a token, or a stall's time has passed without."""
        stall = self.job.stall_seconds
        with suppress(TimeoutError):
            async with asyncio.timeout(start_s + self.first_due_s + stall - time.monotonic()):
                await self._enough_started.wait()
        if not self._started:
            why = f" ({self._last_fault.kind}: {self._last_fault.text})" if self._last_fault else ""
            raise GaveUp(f"no request produced a token within {stall:g} s{why}")

    def _note_start(self, client: int) -> None:
        self._started.add(client)
        if len(self._started) >= self.needed:
            self._enough_started.set()

    def _begin_drain(self) -> None:
        for request, exchange in list(self._live.values()):
            rest = expected_rest_s(request)
            if rest is not None and rest > self.job.drain_seconds:
                exchange.abort()
        asyncio.get_running_loop().call_later(self.job.drain_seconds, self._abort_all)

    def _abort_all(self) -> None:
        for _, exchange in list(self._live.values()):
            exchange.abort()

    def _judge_health(self, fault: Fault | None, now_s: float) -> None:
        """Raise GaveUp when nothing listens any more, or when nothing has ever worked."""
        clients = len(self.job.clients)
        if fault is None or fault.kind != "connect":
            self._refused, self._refused_since_s = 0, None
        else:
            self._refused += 1
            self._refused_since_s = self._refused_since_s or now_s
            if self._refused > clients and now_s - self._refused_since_s >= REFUSED_SECONDS:
                raise GaveUp(f"the server no longer accepts connections ({fault.text})")
        if fault is not None and fault != ABORTED:
            self._failures += 1
            self._last_fault = fault
            if not self._started and self._failures >= FAILURES_PER_CLIENT * clients:
                raise GaveUp(f"every request fails: {fault.kind}: {fault.text}")

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(PROGRESS_SECONDS)
            live_tokens = sum(request.answer.output_tokens for request, _ in self._live.values())
            self._emit(
                "progress",
                {
                    "phase": self._phase,
                    "in_flight": len(self._live),
                    "sent": len(self.requests),
                    "failed": self._failures,
                    "output_tokens": self._ended_tokens + live_tokens,
                },
            )


def expected_rest_s(request: Request) -> float | None:
    """Seconds until the request should end, from the pace it has shown; None while it has shown none."""
    answer = request.answer
    later = answer.output_tokens - (answer.first_chunk_tokens or 1)
    if later < 1 or answer.first_token_s is None:
        return None
    pace_s = (answer.chunk_s[-1] - answer.first_token_s) / later
    return pace_s * (request.max_tokens - answer.output_tokens)
