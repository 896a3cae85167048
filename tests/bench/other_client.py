"""The other readers under the lab's own load: the same staggered closed loop, warm-up and window, in one process.

Without the same load around them the readers would be compared at different in-flight counts.

`python -m tests.bench.other_client minimal|aiohttp --port P -c N --tokens T --warmup S --seconds S --out FILE` pickles
{"opened_s", "closed_s", "cpu_s", "requests": [(number, sent_s, chunk times)]}.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import pickle
import time
from array import array
from importlib import import_module
from pathlib import Path
from typing import Any

import orjson
import uvloop


async def run(given: argparse.Namespace) -> dict[str, Any]:
    """Offer the load; what became of it."""
    reader = import_module(f"tests.bench.{given.reader}_reader").Reader
    requests: list[tuple[int, float, array]] = []
    numbers = iter(range(10**9))
    closed = asyncio.Event()

    async def client(slot: int) -> None:
        await asyncio.sleep(slot * min(0.02, 1.0 / given.concurrency))
        one, share = reader("127.0.0.1", given.port), (slot + 1) / given.concurrency
        while not closed.is_set():
            number = next(numbers)
            body = {
                "model": "m",
                "messages": [{"role": "user", "content": f"request {number}"}],
                "max_tokens": max(1, round(given.tokens * share)),
                "stream": True,
                "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            }
            share = 1.0
            requests.append((number, *await one.ask(orjson.dumps(body))))

    clients = [asyncio.create_task(client(slot)) for slot in range(given.concurrency)]
    await asyncio.sleep(1.0 + given.warmup)
    gc.freeze()
    gc.disable()
    opened_s, cpu_s = time.monotonic(), time.process_time()
    await asyncio.sleep(given.seconds)
    closed_s, cpu_s = time.monotonic(), time.process_time() - cpu_s
    closed.set()
    await asyncio.gather(*clients)
    return {"opened_s": opened_s, "closed_s": closed_s, "cpu_s": cpu_s, "requests": requests}


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("reader", choices=["minimal", "aiohttp"])
    options.add_argument("--port", type=int, required=True)
    options.add_argument("-c", "--concurrency", type=int, required=True)
    options.add_argument("--tokens", type=int, required=True)
    options.add_argument("--warmup", type=float, required=True)
    options.add_argument("--seconds", type=float, required=True)
    options.add_argument("--out", type=Path, required=True)
    arguments = options.parse_args()
    arguments.out.write_bytes(pickle.dumps(uvloop.run(run(arguments))))
