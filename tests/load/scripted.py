"""What the load tests share: answers that a scripted server gives, a load in this process, and a whole trial.

Without it every test of the load would script the same stream of counted tokens again.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import uvloop
from sse_server import DONE, ROLE, Handler, SseServer, chunked, delta, head, usage

from lab import load
from lab.load.closed_loop import ClosedLoop
from lab.load.job import Job
from lab.load.loop import Loop
from lab.load.open_loop import OpenLoop
from lab.workloads import Workload

TOKENS = 12
COUNT = ("timings", "predicted_n")
STREAM = head(Transfer_Encoding="chunked")
END = chunked(b"")
LIMITS = SimpleNamespace(stall_seconds=10, drain_seconds=5)


def steady(pause: float = 0.01) -> Handler:
    """A handler that emits one counted token after every pause, as many as were asked for."""

    async def answer(body: dict, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + chunked(ROLE))
        for count in range(1, body["max_tokens"] + 1):
            await asyncio.sleep(pause)
            writer.write(chunked(delta(content="a", count=count)))
            await writer.drain()
        writer.write(chunked(delta("length") + usage(body["max_tokens"]) + DONE) + END)

    return answer


async def refuse(body: dict, writer: asyncio.StreamWriter) -> None:
    """A handler that turns everything down."""
    writer.write(json_answer({"error": {"message": "the prompt is too long"}}, 400))


async def silent(body: dict, writer: asyncio.StreamWriter) -> None:
    """A handler that begins a stream and never says a word."""
    writer.write(STREAM + chunked(ROLE))
    await asyncio.sleep(60)


async def cut(body: dict, writer: asyncio.StreamWriter) -> None:
    """A handler that breaks off after two tokens."""
    writer.write(STREAM + chunked(ROLE + delta(content="a", count=1) + delta(content="b", count=2)))
    await writer.drain()
    writer.close()


def json_answer(content: Any, status: int = 200, **fields: str) -> bytes:
    """A complete answer that is no stream."""
    body = json.dumps(content).encode()
    return head(status, "application/json", Content_Length=str(len(body)), **fields) + body


def in_turn(*handlers: Handler) -> Handler:
    """A handler that answers each request as the next of the given ones."""
    seen = 0

    async def answer(body: dict, writer: asyncio.StreamWriter) -> None:
        nonlocal seen
        seen += 1
        await handlers[(seen - 1) % len(handlers)](body, writer)

    return answer


def items(count: int = 500) -> list[dict[str, Any]]:
    """Short prompts, each with its number."""
    return [{"messages": [{"role": "user", "content": str(number)}]} for number in range(count)]


def job(url: str, **changes: Any) -> Job:
    """A job of a short window for three clients."""
    values = {
        "server_url": url,
        "model": "m",
        "items": items(),
        "concurrency": 3,
        "output_tokens": TOKENS,
        "warmup_seconds": 0.1,
        "seconds": 0.3,
        "stall_seconds": 10,
        "drain_seconds": 5,
        "requests_path": Path("unused"),
        "tokens_path": COUNT,
    }
    return Job(**values | changes)


def offer(job: Job, on_open: Callable[[], None] = lambda: None) -> Loop:
    """The load of a job, run to its end in this process; the window opens as soon as the load is warm."""

    async def run() -> Loop:
        def hear(event: str, content: dict[str, Any]) -> None:
            if event == "warm":
                now_s = time.monotonic()
                load.set_window(now_s, now_s + job.seconds)
            if event == "window-open":
                on_open()

        load = (ClosedLoop if job.arrivals == "closed" else OpenLoop)(job, hear)
        await load.run(time.monotonic())
        return load

    return uvloop.run(run())


def prompts(**changes: Any) -> load.Prompts:
    """Prompts of a workload of kind chat."""
    return load.build(Workload(**{"kind": "chat", "output_tokens": TOKENS, "concurrency": [3]} | changes), "test", 500)


def window(seconds: float = 0.3, warmup_seconds: float = 0.1) -> SimpleNamespace:
    """A window as a campaign has it."""
    return SimpleNamespace(seconds=seconds, warmup_seconds=warmup_seconds, min_steady_seconds=seconds)


def target(server: SseServer, **changes: Any) -> load.Target:
    """The scripted server as a target, with its own count of requests."""

    def sample() -> SimpleNamespace:
        counters = {"requests_finished": float(server.finished)}
        return SimpleNamespace(
            running=float(server.running), waiting=0.0, kv_usage=None, running_by_rank=(), counters=counters
        )

    return load.Target(**{"url": server.url, "model": "m", "sample": sample, "tokens_path": COUNT} | changes)


def drive(server: SseServer, folder: Path, workload: load.Prompts | None = None, **changes: Any) -> load.Measured:
    """A short trial at a concurrency of three; `target` holds changes of the target."""
    arguments = {"concurrency": 3, "output_tokens": TOKENS, "window": window(), "limits": LIMITS, "folder": folder}
    where = target(server, **changes.pop("target", {}))
    return load.drive(where, workload or prompts(), **(arguments | changes))
