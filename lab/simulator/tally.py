"""The counters and gauges of one rank, as an engine keeps them.

Without one account that all dialects print, two dialects of the same truth could disagree.
"""

from __future__ import annotations

import bisect
from collections import Counter
from dataclasses import dataclass, field
from itertools import accumulate

from lab.simulator.request import Request
from lab.simulator.scheduler import Rank, Step

OLD_REQUEST_TOKENS = 100


class Histogram:
    """Observations in buckets, as Prometheus counts them."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Take in a value, or the same value several times."""
        self.counts[bisect.bisect_left(self.bounds, value)] += times
        self.sum += value * times

    @property
    def count(self) -> int:
        """How many observations."""
        return sum(self.counts)

    def cumulative(self) -> list[int]:
        """Counts up to each bound, and all."""
        return list(accumulate(self.counts))


@dataclass
class Gauges:
    """A rank's state as it is shown: running and waiting requests, tokens in the cache."""

    running: int = 0
    waiting: int = 0
    kv_tokens: int = 0


@dataclass
class Tally:
    """Counters since the start (or the last reset). Live: moved by steps. Finished: moved by requests that ended."""

    prompt_computed: int = 0
    prompt_cached: int = 0
    output: int = 0
    first_tokens: int = 0
    prompt_finished: int = 0
    output_finished: int = 0
    finished: Counter[str] = field(default_factory=Counter)
    aborted_running: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    steps: int = 0
    decode_steps: int = 0
    prefill_steps: int = 0
    eager_decode_steps: int = 0
    eager_prefill_steps: int = 0
    busy_slots: int = 0
    drafts: int = 0
    draft_tokens: int = 0
    accepted: int = 0
    accepted_at: list[int] = field(default_factory=list)
    drafts_finished: int = 0
    accepted_finished: int = 0
    accepted_at_finished: list[int] = field(default_factory=list)
    preemptions: int = 0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    longest: int = 0
    histograms: dict[str, Histogram] = field(default_factory=dict)

    def stepped(self, step: Step, draft_tokens: int) -> None:
        """A step ended."""
        self.steps += 1
        self.prompt_computed += step.prefill_tokens
        self.prompt_cached += step.cached_tokens
        self.prefix_queries += step.queried_tokens
        self.prefix_hits += step.cached_tokens
        tokens = sum(count for _, count in step.tokens)
        self.output += tokens
        self.decode_steps += step.decoding > 0
        self.prefill_steps += step.prefill_tokens > 0
        self.eager_decode_steps += step.eager and step.decoding > 0
        self.eager_prefill_steps += step.eager and step.prefill_tokens > 0
        self.busy_slots += step.running
        self.drafts += step.drafts
        self.draft_tokens += step.drafts * draft_tokens
        self.accepted += step.accepted
        self.accepted_at = self.accepted_at or [0] * len(step.accepted_at)
        for position, count in enumerate(step.accepted_at):
            self.accepted_at[position] += count
        self.preemptions += step.preempted
        self.first_tokens += len(step.firsts)
        for request in step.firsts:
            self.observe("ttft", request.first_token_s - request.arrival_s)
        self.observe("iteration_tokens", tokens + step.prefill_tokens)
        self.observe("inter_token", step.end_s - step.start_s, tokens - len(step.firsts))

    def ended(self, request: Request, reason: str) -> None:
        """A request ended; its latencies are observed only when it was finished."""
        self.finished[reason] += 1
        if reason not in ("stop", "length"):
            self.aborted_running += request.admitted_s == request.admitted_s  # NaN: never ran
            return
        self.prompt_finished += request.prompt_tokens
        self.output_finished += request.generated
        self.drafts_finished += request.drafts
        self.accepted_finished += request.accepted
        self.accepted_at_finished = self.accepted_at_finished or [0] * len(request.accepted_at)
        for position, count in enumerate(request.accepted_at):
            self.accepted_at_finished[position] += count
        self.longest = max(self.longest, request.prompt_tokens + request.generated)
        prefill_s = request.first_token_s - request.admitted_s
        decode_s = request.finished_s - request.first_token_s
        self.prefill_s += prefill_s
        self.decode_s += decode_s
        self.observe("e2e", request.finished_s - request.arrival_s)
        self.observe("queue", request.admitted_s - request.ready_s)
        self.observe("prefill", prefill_s)
        self.observe("decode", decode_s)
        self.observe("inference", request.finished_s - request.admitted_s)
        if request.generated > 1:
            self.observe("time_per_token", decode_s / (request.generated - 1))
        self.observe("prompt_tokens", request.prompt_tokens)
        self.observe("output_tokens", request.generated)
        self.observe("max_tokens", request.max_tokens)
        self.observe("preemptions", request.preemptions)
        self.observe("n", 1)

    def observe(self, name: str, value: float, times: int = 1) -> None:
        """Into the histogram of that name, where the dialect has one."""
        histogram = self.histograms.get(name)
        if histogram is not None and times:
            histogram.observe(value, times)


def aged(tally: Tally, requests: int) -> Tally:
    """The counters of a server that has served so many requests before."""
    tally.prompt_computed = tally.prompt_finished = OLD_REQUEST_TOKENS * requests
    tally.output = tally.output_finished = OLD_REQUEST_TOKENS * requests
    tally.first_tokens = requests
    tally.finished["length"] = requests
    tally.steps = tally.decode_steps = OLD_REQUEST_TOKENS * requests
    tally.prefill_steps = requests
    return tally


def gauges_of(rank: Rank, now_s: float) -> Gauges:
    """A rank's state now; requests that arrived during the step that runs are waiting."""
    arrived = sum(request.ready_s <= now_s for request in rank.arriving)
    return Gauges(len(rank.running), len(rank.waiting) + arrived, rank.kv_used)
