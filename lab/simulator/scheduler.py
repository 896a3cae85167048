"""The simulated engine, pure: continuous batching on one rank, step by step, without a clock or a network.

Without a model that can be stepped by hand, the truth of a simulated server would itself be a measurement.

A step holds every running request. It costs `step_ms + step_ms_per_running · running (+ context)`, with speculation
times its step cost, plus `prefill_ms_per_token` for each prompt token computed in it. A request whose prompt is
complete gets one token a step, with speculation one and the accepted drafts; the step that completes its prompt
gives the first token. Steps follow each other without a gap: the next begins when the one before ends.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

from lab.simulator.pace import Pace
from lab.simulator.prefix import PrefixCache
from lab.simulator.request import Request
from lab.simulator.truth import Truth

_GOLDEN = 0.6180339887498949  # steps of this size, modulo 1, fill [0, 1) evenly: shares are right after few draws


@dataclass(slots=True)
class Step:
    """What one step did. Times in server seconds; running and waiting as during the step."""

    rank: int
    number: int
    start_s: float
    end_s: float
    running: int
    waiting: int
    decoding: int
    prefill_tokens: int
    cached_tokens: int
    queried_tokens: int
    new_requests: int
    kv_tokens: int
    eager: bool
    preempted: int = 0
    tokens: list[tuple[Request, int]] = field(default_factory=list)
    firsts: list[Request] = field(default_factory=list)
    finished: list[Request] = field(default_factory=list)
    drafts: int = 0
    accepted: int = 0
    accepted_at: list[int] = field(default_factory=list)
    pause_s: float = 0.0
    first_cold: bool = False


class Rank:
    """One data-parallel rank: its queue, its batch and its cache."""

    def __init__(self, truth: Truth, pace: Pace, index: int = 0, first_request_s: list[float] | None = None) -> None:
        self.index = index
        self.arriving: list[Request] = []
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.preemptions = 0
        self.cache = PrefixCache(truth.block_tokens, truth.cache_tokens)
        self._truth = truth
        self._pace = pace
        self._step: Step | None = None
        self._free_s = 0.0
        self._steps = 0
        self._cold_seen = False
        self._first_request_s = first_request_s if first_request_s is not None else []

    def add(self, request: Request) -> None:
        """Take in a request; it joins the queue at its `ready_s`."""
        if not self._first_request_s and not request.pinned:
            self._first_request_s.append(request.arrival_s)
        request.rank = self.index
        request.draw = random.Random(f"{self._truth.seed}/{request.number}").random()
        self.arriving.append(request)

    def abort(self, request: Request) -> None:
        """Drop a request wherever it is; its place is free from the next step on."""
        for place in (self.arriving, self.waiting, self.running):
            if request in place:
                place.remove(request)

    @property
    def in_flight(self) -> int:
        """Requests on this rank, whatever their state."""
        return len(self.arriving) + len(self.waiting) + len(self.running)

    @property
    def kv_used(self) -> int:
        """Tokens of the cache in use."""
        return sum(request.kv_tokens for request in self.running)

    @property
    def current(self) -> Step | None:
        """The step that is under way."""
        return self._step

    def next_s(self) -> float:
        """When something happens next, in server seconds; infinite when idle."""
        if self._step is not None:
            return self._step.end_s
        if self.running or self.waiting:
            return self._free_s
        return max(self._free_s, min((request.ready_s for request in self.arriving), default=float("inf")))

    def advance(self, now_s: float) -> Step | None:
        """The next step that ended by `now_s`, or None. Call until None; steps in the past are not skipped."""
        if self._step is None:
            start_s = self.next_s()
            if start_s > now_s:
                return None
            self._step = self._begin(start_s)
        if self._step.end_s > now_s:
            return None
        done, self._step = self._step, None
        self._free_s = done.end_s
        self._complete(done)
        return done

    def _begin(self, start_s: float) -> Step:
        if self.arriving:
            ready = sorted((r for r in self.arriving if r.ready_s <= start_s), key=lambda r: r.ready_s)
            self.waiting.extend(ready)
            self.arriving = [r for r in self.arriving if r.ready_s > start_s]
        preempted = self._make_room()
        new, cached, queried = (0, 0, 0) if preempted else self._admit(start_s)
        decoding = [r for r in self.running if r.computed >= r.to_compute]
        prefill = self._share_prefill()
        context = sum(r.kv_tokens for r in decoding)
        cost_ms = self._pace.decode_ms(len(self.running), len(decoding), context)
        cost_ms += self._truth.prefill_ms_per_token * prefill
        since_s = start_s - self._first_request_s[0] if self._first_request_s else 0.0
        cold = any(r.number < self._truth.cold.requests and not r.foreign for r in self.running)
        pause_s = self._pace.pause_s(since_s)
        self._steps += 1
        step = Step(
            rank=self.index,
            number=self._steps,
            start_s=start_s,
            end_s=start_s + pause_s + self._pace.step_s(cost_ms, since_s, cold),
            running=len(self.running),
            waiting=len(self.waiting),
            decoding=len(decoding),
            prefill_tokens=prefill,
            cached_tokens=cached,
            queried_tokens=queried,
            new_requests=new,
            kv_tokens=self.kv_used,
            eager=self._pace.is_eager(len(self.running)),
            preempted=preempted,
            pause_s=pause_s,
            first_cold=cold and not self._cold_seen,
        )
        self._cold_seen = self._cold_seen or cold
        return step

    def _growth(self) -> int:
        return 1 + self._truth.speculation.tokens

    def _make_room(self) -> int:
        """Preempt the youngest requests until every other one can grow; they are computed again later."""
        growth = self._growth()
        movable = [r for r in self.running if not r.pinned]
        used = self.kv_used + growth * len(movable)
        preempted = 0
        while used > self._truth.cache_tokens and len(movable) > 1:
            victim = movable.pop()
            self.running.remove(victim)
            used -= victim.kv_tokens + growth
            victim.kv_tokens = victim.computed = 0
            victim.preemptions += 1
            preempted += 1
            self.waiting.appendleft(victim)
        self.preemptions += preempted
        return preempted

    def _admit(self, start_s: float) -> tuple[int, int, int]:
        """Let waiting requests in, in order, while there is room: how many, their cached tokens, tokens looked for."""
        admitted = cached = queried = 0
        if not self.waiting or len(self.running) >= self._truth.cap or (self._truth.whole_batches and self.running):
            return admitted, cached, queried
        used = sum(self._need(request) for request in self.running)
        while self.waiting and len(self.running) < self._truth.cap:
            request = self.waiting[0]
            need = self._need(request)
            if used + need > self._truth.cache_tokens and self.running:
                break
            used += need
            request.slot = self._free_slot()
            self.running.append(self.waiting.popleft())
            request.kv_tokens = request.to_compute
            admitted += 1
            if request.fresh:
                request.admitted_s = start_s
                if self._truth.prefix_cache:
                    request.cached_tokens = self.cache.hit_tokens(request.blocks, request.prompt_tokens)
                    request.computed = request.cached_tokens
                    cached += request.cached_tokens
                    queried += request.prompt_tokens
        return admitted, cached, queried

    def _free_slot(self) -> int:
        taken = {request.slot for request in self.running}
        return next(slot for slot in range(len(taken) + 1) if slot not in taken)

    def _need(self, request: Request) -> int:
        """Cache that a request must have to run its next step, or its whole life where the engine reserves it."""
        if request.pinned:
            return request.to_compute
        whole = request.prompt_tokens + request.length if self._truth.kv_reserve_output else 0
        return max(whole, request.to_compute + self._growth())

    def _share_prefill(self) -> int:
        """Give the step's prompt tokens to requests in order; returns how many are computed."""
        left = self._truth.prefill_chunk_tokens
        for request in self.running:
            if not left:
                break
            if request.computed < request.to_compute:
                take = min(left, request.to_compute - request.computed)
                request.computed += take
                left -= take
        return self._truth.prefill_chunk_tokens - left

    def _complete(self, step: Step) -> None:
        """Hand out the tokens of a step that has ended."""
        spec = self._truth.speculation
        step.accepted_at = [0] * spec.tokens
        for request in list(self.running):
            if request.computed < request.to_compute:
                continue
            tokens = 1
            if spec.tokens and request.generated:
                tokens += self._verify(request, step)
            if request.fresh:
                request.fresh = False
                self.cache.remember(request.blocks)
            tokens = tokens if request.pinned else min(tokens, request.length - request.generated)
            if not request.generated and not request.pinned:
                request.first_token_s = step.end_s
                step.firsts.append(request)
            if not request.pinned:
                request.kv_tokens += tokens
                request.computed += tokens
                request.generated += tokens
            step.tokens.append((request, tokens))
            if request.generated >= request.length and not request.pinned:
                request.finished_s = step.end_s
                request.finish_reason = "length" if request.length >= request.max_tokens else "stop"
                self.running.remove(request)
                step.finished.append(request)

    def _verify(self, request: Request, step: Step) -> int:
        """Draft tokens accepted in this step: at position p with the true share of `acceptance[p]`."""
        spec = self._truth.speculation
        rates = spec.acceptance
        if request.synthetic and spec.synthetic_acceptance is not None:
            rates = spec.synthetic_acceptance
        request.draw = (request.draw + _GOLDEN) % 1.0
        accepted = sum(request.draw < rate for rate in rates)
        request.drafts += 1
        request.accepted += accepted
        step.drafts += 1
        step.accepted += accepted
        request.accepted_at = request.accepted_at or [0] * spec.tokens
        for position in range(accepted):
            step.accepted_at[position] += 1
            request.accepted_at[position] += 1
        return accepted
