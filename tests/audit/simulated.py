"""Trials of a small simulated server, from single steps to the record that an audit reads.

Without whole trials made of noise, nobody knows how often an audit calls a clean one invalid, or whether a fault that
was put in comes out as its code.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lab.load.summary import summarise
from lab.observe.machine import KEYS
from lab.records import Launch, Trial
from tests.builders import TRIAL, changed, launch_record

POLL_S = 0.001


@dataclass(frozen=True)
class Scene:
    """A server whose steps give each running request a token, and closed-loop clients.

    cap: most requests at once. token_s: a step; noise: its spread; prefill_s: what each new prompt adds to a step.
    slow: end-to-end slow-down over the window. pool: connections of the client. hidden: requests that something holds
    back on the way. foreign: requests of somebody else that always run. cached: share of each prompt that the cache
    held. chunk: tokens a chunk. tokens_lost: tokens of each answer that the client overlooks.
    """

    clients: int = 4
    cap: int = 4
    token_s: float = 0.025
    noise: float = 0.05
    prefill_s: float = 0.1
    output_tokens: int = 32
    warmup_s: float = 3.0
    seconds: float = 6.0
    drain_s: float = 20.0
    turnaround_s: float = 0.002
    slow: float = 0.0
    pool: int | None = None
    hidden: int = 0
    foreign: int = 0
    cached: float = 0.0
    chunk: int = 1
    tokens_lost: int = 0

    @property
    def opened_s(self) -> float:
        return self.warmup_s + 0.5

    @property
    def closed_s(self) -> float:
        return self.opened_s + self.seconds


@dataclass
class _Request:
    client: int
    due_s: float
    sent_s: float
    cap: int
    prompt_tokens: int
    token_s: list[float] = field(default_factory=list)
    end_s: float | None = None


class _Run:
    """One run of a scene; `requests`, `levels` (t, running, waiting, tokens so far) and `drained_s` when it is over."""

    def __init__(self, scene: Scene, random: np.random.Generator) -> None:
        self.scene, self.random = scene, random
        self.requests: list[_Request] = []
        self.levels: list[tuple[float, int, int, int]] = [(-1.0, scene.foreign, 0, 0)]
        self._ready = [(0.02 * client, client) for client in range(scene.clients)]
        self._queue: list[_Request] = []
        self._running: list[_Request] = []
        self._produced = 0
        self._pace = 1.0
        self.drained_s = self._play()

    def _play(self) -> float:
        now, scene = 0.0, self.scene
        while now < scene.closed_s + scene.drain_s:
            self._send(now)
            admitted = self._admit(now)
            if not self._running:
                if now > scene.closed_s:
                    break
                now += POLL_S
                continue
            now += self._step_s(now) + scene.prefill_s * admitted
            self._emit(now)
        self.levels.append((now, scene.foreign, 0, self._produced))
        return now

    def _send(self, now: float) -> None:
        scene, started = self.scene, {request.client for request in self.requests}
        slots = scene.clients if scene.pool is None else scene.pool
        for due_s, client in sorted(self._ready):
            if due_s > now or due_s >= scene.closed_s or len(self._queue) + len(self._running) >= slots:
                continue
            self._ready.remove((due_s, client))
            share = 1.0 if client in started else (client + 1) / scene.clients
            sent_s = max(due_s, now - scene.token_s * self.random.random())
            cap = max(1, round(share * scene.output_tokens))
            request = _Request(client, due_s, sent_s, cap, int(self.random.integers(30, 70)))
            self.requests.append(request)
            self._queue.append(request)

    def _admit(self, now: float) -> int:
        scene, admitted = self.scene, 0
        while len(self._queue) > scene.hidden and len(self._running) < scene.cap:
            self._running.append(self._queue.pop(0))
            admitted += 1
        waiting = len(self._queue) - min(scene.hidden, len(self._queue))
        self.levels.append((now, len(self._running) + scene.foreign, waiting, self._produced))
        return admitted

    def _step_s(self, now: float) -> float:
        """A step's time: its own noise, and a pace that wanders over several steps."""
        scene = self.scene
        self._pace = 0.8 * self._pace + 0.2 * np.exp(self.random.normal(0, scene.noise))
        slow = 1 + scene.slow * min(1.0, max(0.0, (now - scene.opened_s) / scene.seconds))
        return scene.token_s * self._pace * slow * np.exp(self.random.normal(0, scene.noise))

    def _emit(self, now: float) -> None:
        for request in list(self._running):
            request.token_s.append(now + 1e-4 * self.random.random())
            self._produced += 1
            if len(request.token_s) >= request.cap:
                self._running.remove(request)
                request.end_s = request.token_s[-1] + 2e-4
                free_s = request.end_s + self.scene.turnaround_s * self.random.random()
                self._ready.append((free_s, request.client))


def trial_of(scene: Scene, seed: int = 0, facts: dict[str, Any] | None = None, **launch: Any) -> Trial:
    """The trial that the lab would record of a run of that scene."""
    run = _Run(scene, np.random.default_rng(seed))
    table = pd.DataFrame([_row(number, request, run) for number, request in enumerate(run.requests)])
    sections = summarise(
        table,
        _timeline(run),
        opened_s=scene.opened_s,
        closed_s=scene.closed_s,
        concurrency=scene.clients,
        output_tokens=scene.output_tokens,
        delta=_delta(run),
        live_counters={"output_tokens"},
        min_steady_seconds=0.6 * scene.seconds,
    )
    drained = sections["client"]["aborted"] == 0
    own: dict[str, dict[str, Any]] = {
        "window": {"warmup_seconds": scene.warmup_s, "seconds": scene.seconds},
        "client": {"clients_started": min(scene.clients, scene.cap), "processes": 1, "loop_lag_p99_ms": 1.0,
                   "cpu_share": 0.05, "drained": drained},
        "server": {"idle_running_max": 0.0, "idle_grew": {}, "log_events": [], "requests_before": 0.0},
    }  # fmt: skip
    record = {**TRIAL, "concurrency": scene.clients}
    for name, section in sections.items():
        record[name] = {**section, **own.get(name, {})}
    parent = Launch(Path("000-control"), launch_record(facts={"cap": scene.cap, **(facts or {})}, **launch))
    return Trial(Path("000-control/trials/chat"), changed(record), parent)


def _row(number: int, request: _Request, run: _Run) -> dict[str, Any]:
    """The request as a row of requests.parquet."""
    scene, kept = run.scene, request.token_s[run.scene.tokens_lost :]
    ends = [*range(scene.chunk, len(kept), scene.chunk), len(kept)] if kept else []
    counts = [b - a for a, b in pairwise([0, *ends])]
    times = [kept[end - 1] for end in ends]
    first = times[0] if times else None
    done = request.end_s is not None
    return {
        "request": number, "client": request.client, "process": 0, "prompt": number, "phase": "window",
        "max_tokens": request.cap, "due_s": request.due_s, "sent_s": request.sent_s, "first_event_s": first,
        "first_token_s": first, "end_s": request.end_s if done else run.drained_s,
        "prompt_tokens": request.prompt_tokens, "cached_tokens": round(scene.cached * request.prompt_tokens),
        "output_tokens": len(kept), "reasoning_tokens": None, "reasoning_seen": False,
        "first_chunk_tokens": counts[0] if counts else None, "tokens_source": "usage.completion_tokens",
        "draft_tokens": None, "draft_accepted": None, "error": None if done else "aborted", "error_text": None,
        "repeats": False, "chunk_s": times, "chunk_tokens": counts,
    }  # fmt: skip


def _delta(run: _Run) -> dict[str, float]:
    """The server's counters over the trial."""
    prompts = sum(request.prompt_tokens for request in run.requests)
    cached = sum(round(run.scene.cached * request.prompt_tokens) for request in run.requests)
    return {
        "output_tokens": float(sum(len(request.token_s) for request in run.requests)),
        "prompt_tokens": float(prompts - cached),
        "cached_tokens": float(cached),
        "requests_finished": float(sum(request.end_s is not None for request in run.requests)),
    }


def _timeline(run: _Run) -> pd.DataFrame:
    """Twice a second or twelve a window, each a little late, and each what the server was at its last step."""
    t_s = np.arange(-0.3, run.drained_s + 1, min(0.5, run.scene.seconds / 12))
    t_s = t_s + run.random.exponential(0.01, len(t_s))
    times, running, waiting, produced = (np.array(column, dtype=float) for column in zip(*run.levels, strict=True))
    at = np.searchsorted(times, t_s - 0.002, side="right") - 1
    machine = dict.fromkeys(KEYS, np.nan) | {"server_cpu_s": np.maximum(0.0, t_s), "machine_cpu_pct": 55.0}
    frame = pd.DataFrame({"t_s": t_s, "running": running[at], "waiting": waiting[at], "output_tokens": produced[at]})
    return frame.assign(kv_usage=0.01 + 0.02 * running[at], **machine)
