"""Closed-loop load: C clients, each with one request in flight at all times, around one timed window.

Without a warm-up at the measured concurrency, a staggered start and a drain, the window holds the ramp, every
client moves in lockstep with the others, and requests that were too slow to finish drop out of the record.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from lab.load.answer import Answer, Fault
from lab.load.exchange import ABORTED, Endpoint, Exchange
from lab.load.record import Request

BEAT_SECONDS = 0.02
PROGRESS_SECONDS = 1.0
START_SPREAD_SECONDS = 1.0
START_GAP_SECONDS = 0.02
BACK_OFF_SECONDS = (0.25, 0.5, 1.0, 2.0)
REFUSED_SECONDS = 1.0
FAILURES_PER_CLIENT = 3
SEED = 1


@dataclass(frozen=True)
class Job:
    """What to offer: `output_tokens` per request at `concurrency`; seconds as in the campaign's window and limits."""

    server_url: str
    model: str
    messages: list[list[dict[str, str]]]
    concurrency: int
    output_tokens: int
    warmup_seconds: float
    seconds: float
    stall_seconds: float
    drain_seconds: float
    extras: dict[str, Any] = field(default_factory=dict)
    tokens_path: tuple[str, ...] | None = None


class GaveUp(Exception):
    """The server cannot be measured: nothing listens, nothing succeeds, or nothing comes back."""


class ClosedLoop:
    """One trial's load. `run()` once; then `requests`, `opened_s`, `closed_s` and `outcome()` tell what happened."""

    def __init__(self, job: Job, emit: Callable[[str, dict[str, Any]], None]) -> None:
        self.requests: list[Request] = []
        self.opened_s: float | None = None
        self.closed_s: float | None = None
        self._opened_at: str | None = None
        self._drained_s: float | None = None
        self._failure: str | None = None
        self._job = job
        self._emit = emit
        self._endpoint = Endpoint(job.server_url)
        self._phase = "start"
        self._sent = 0
        self._live: dict[int, tuple[Request, Exchange]] = {}
        self._started: set[int] = set()
        self._started_at_warmup = 0
        self._all_started = asyncio.Event()
        self._all_sent = asyncio.Event()
        self._sent_by: set[int] = set()
        self._closing = asyncio.Event()
        self._failures = 0
        self._refused_since_s: float | None = None
        self._refused = 0
        self._lags_s: list[float] = []
        self._cpu_share: float | None = None

    async def run(self) -> None:
        """Offer the load until the window is over and every request has ended."""
        reporter = asyncio.create_task(self._report())
        try:
            async with asyncio.TaskGroup() as group:
                for client in range(self._job.concurrency):
                    group.create_task(self._client(client))
                group.create_task(self._conduct())
        except* GaveUp as gave_up:
            self._failure = str(gave_up.exceptions[0])
        finally:
            reporter.cancel()
        self._drained_s = time.monotonic()

    def outcome(self) -> dict[str, Any]:
        """What the load generator knows of itself; `failure` is None when the window was completed."""
        aborted = any(request.fault is ABORTED for request in self.requests)
        return {
            "failure": self._failure,
            "opened_s": self.opened_s,
            "closed_s": self.closed_s,
            "opened_at": self._opened_at,
            "clients_started": self._started_at_warmup,
            "loop_lag_p99_ms": percentile_ms(self._lags_s, 0.99),
            "cpu_share": self._cpu_share,
            "drained": self._failure is None and not aborted,
            "drain_seconds": None if self.closed_s is None else self._drained_s - self.closed_s,
        }

    async def _conduct(self) -> None:
        job = self._job
        self._phase = "warmup"
        await asyncio.gather(self._first_tokens(), self._warm_up())
        self.opened_s = time.monotonic()
        self._opened_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        cpu_s = time.process_time()
        self._phase = "window"
        self._emit("window-open", {"t_s": self.opened_s})
        self.closed_s = self.opened_s + job.seconds
        while (now := time.monotonic()) < self.closed_s:
            beat = min(BEAT_SECONDS, self.closed_s - now)
            await asyncio.sleep(beat)
            self._lags_s.append(max(0.0, time.monotonic() - now - beat))
        self._cpu_share = (time.process_time() - cpu_s) / (time.monotonic() - self.opened_s)
        self._phase = "drain"
        self._closing.set()
        self._emit("window-closed", {"t_s": self.closed_s})
        self._begin_drain()

    async def _warm_up(self) -> None:
        """The warm-up at the measured concurrency: it begins when every client has sent its first request."""
        await self._all_sent.wait()
        await asyncio.sleep(self._job.warmup_seconds)

    async def _first_tokens(self) -> None:
        """No window before every client has seen a token, or a stall's time has passed without."""
        stall = self._job.stall_seconds
        with suppress(TimeoutError):
            async with asyncio.timeout(stall):
                await self._all_started.wait()
        self._started_at_warmup = len(self._started)
        if not self._started:
            raise GaveUp(f"no request produced a token within {stall:g} s")

    def _begin_drain(self) -> None:
        for request, exchange in list(self._live.values()):
            rest = self._expected_rest_s(request)
            if rest is not None and rest > self._job.drain_seconds:
                exchange.abort()
        asyncio.get_running_loop().call_later(self._job.drain_seconds, self._abort_all)

    def _abort_all(self) -> None:
        for _, exchange in list(self._live.values()):
            exchange.abort()

    def _expected_rest_s(self, request: Request) -> float | None:
        """Seconds until the request should end, from the pace it has shown; None while it has shown none."""
        answer = request.answer
        if answer.output_tokens < 2 or answer.first_token_s is None:
            return None
        pace_s = (answer.chunk_s[-1] - answer.first_token_s) / (answer.output_tokens - 1)
        return pace_s * (request.max_tokens - answer.output_tokens)

    async def _client(self, client: int) -> None:
        job = self._job
        await asyncio.sleep(client * min(START_GAP_SECONDS, START_SPREAD_SECONDS / job.concurrency))
        max_tokens = max(1, round(job.output_tokens * (client + 1) / job.concurrency))
        failures = 0
        while not self._over():
            fault = await self._send(client, max_tokens)
            max_tokens = job.output_tokens
            if fault is None or fault is ABORTED:
                failures = 0
                continue
            pause = BACK_OFF_SECONDS[min(failures, len(BACK_OFF_SECONDS) - 1)]
            failures += 1
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._closing.wait()

    def _over(self) -> bool:
        """Whether the window has ended; by the clock too, since the loop may wake a little late."""
        return self._closing.is_set() or (self.closed_s is not None and time.monotonic() >= self.closed_s)

    async def _send(self, client: int, max_tokens: int) -> Fault | None:
        job = self._job
        number, self._sent = self._sent, self._sent + 1
        prompt = number % len(job.messages)
        body = {
            "model": job.model,
            "messages": job.messages[prompt],
            "max_tokens": max_tokens,
            "temperature": 0,
            "seed": SEED,
            "stream": True,
            "stream_options": {"include_usage": True},
            **job.extras,
        }
        answer = Answer(job.tokens_path)
        exchange = Exchange(self._endpoint.payload(body), answer, job.stall_seconds, lambda: self._note_start(client))
        request = Request(number, client, prompt, max_tokens, time.monotonic(), answer)
        self.requests.append(request)
        self._live[number] = request, exchange
        self._sent_by.add(client)
        if len(self._sent_by) == job.concurrency:
            self._all_sent.set()
        fault: Fault | None = ABORTED
        try:
            fault = await exchange.run(self._endpoint)
        finally:
            del self._live[number]
            request.end_s = exchange.end_s or time.monotonic()
            request.status, request.fault = exchange.status, fault
        self._judge_health(fault, request.end_s)
        return fault

    def _note_start(self, client: int) -> None:
        self._started.add(client)
        if len(self._started) == self._job.concurrency:
            self._all_started.set()

    def _judge_health(self, fault: Fault | None, now_s: float) -> None:
        """Raise GaveUp when nothing listens any more, or when nothing has ever worked."""
        if fault is None or fault.kind != "connect":
            self._refused, self._refused_since_s = 0, None
        else:
            self._refused += 1
            self._refused_since_s = self._refused_since_s or now_s
            if self._refused > self._job.concurrency and now_s - self._refused_since_s >= REFUSED_SECONDS:
                raise GaveUp(f"the server no longer accepts connections ({fault.text})")
        if fault is not None and fault is not ABORTED:
            self._failures += 1
            if not self._started and self._failures >= FAILURES_PER_CLIENT * self._job.concurrency:
                raise GaveUp(f"every request fails: {fault.kind}: {fault.text}")

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(PROGRESS_SECONDS)
            self._emit(
                "progress",
                {
                    "phase": self._phase,
                    "in_flight": len(self._live),
                    "sent": self._sent,
                    "failed": self._failures,
                    "output_tokens": sum(request.answer.output_tokens for request in self.requests),
                },
            )


def percentile_ms(values_s: list[float], share: float) -> float | None:
    """The nearest-rank percentile of durations in seconds, in milliseconds; None without values."""
    if not values_s:
        return None
    rank = max(1, math.ceil(share * len(values_s)))
    return sorted(values_s)[rank - 1] * 1000
