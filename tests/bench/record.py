"""What the table of requests costs: memory of the writer, bytes on disk, seconds to load.

Without it a long trial ends with a client that the kernel kills, and its record is lost.

`python -m tests.bench.record [--requests 100000] [--chunks 200]`. Wanted: the requests of a trial in memory and their
writing within 1 GiB, loading within 5 s.
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import tempfile
import time
from array import array
from pathlib import Path

from lab.load import record
from lab.load.answer import Answer
from lab.load.record import Request

GIVEN = "import sys; from pathlib import Path; from tests.bench.record import load; load(Path(sys.argv[1]))"
MERGED = "import sys; from pathlib import Path; from tests.bench.record import merge; merge(Path(sys.argv[1]))"


def peak_mb() -> float:
    """The most memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def made(requests: int, chunks: int) -> list[Request]:
    """The requests of a long trial as the client holds them: uneven chunk times, as a network makes them."""
    uneven = random.Random(1)
    table = []
    for number in range(requests):
        answer, at_s = Answer("chat", ("usage", "completion_tokens")), 5000 + number * 0.003
        request = Request(number, number % 256, 0, number, chunks, at_s, answer, sent_s=at_s + 1e-4, status=200)
        for _ in range(chunks):
            at_s += 0.02 + uneven.expovariate(1000)
            answer.chunk_s.append(at_s)
        answer.chunk_tokens = array("i", [1]) * chunks
        answer.first_event_s = answer.first_token_s = answer.chunk_s[0]
        answer.output_tokens, answer.first_chunk_tokens, answer.finish_reason = chunks, 1, "length"
        answer.totals.prompt_tokens = 100 + number % 50
        answer.tokens_source, answer.repeats = "usage.completion_tokens", False
        request.end_s, request.reused = at_s, True
        table.append(request)
    return table


def load(path: Path) -> None:
    """Load one table into pandas."""
    import pandas  # noqa: F401
    import pyarrow.parquet  # noqa: F401

    began = time.monotonic()
    frame = record.read(path)
    print(f"loaded {len(frame)} requests in {time.monotonic() - began:.2f} s, peak {peak_mb():.0f} MiB")


def merge(path: Path) -> None:
    """Merge two tables into one."""
    began = time.monotonic()
    record.merge([path, path], path.with_name("merged.parquet"))
    print(f"merged two such tables in {time.monotonic() - began:.2f} s, peak {peak_mb():.0f} MiB")


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("--requests", type=int, default=100_000)
    options.add_argument("--chunks", type=int, default=200)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "requests.parquet"
        requests = made(given.requests, given.chunks)
        print(f"{given.requests} requests of {given.chunks} chunks in memory: peak {peak_mb():.0f} MiB")
        began = time.monotonic()
        record.write(requests, 5010.0, 5300.0, table)
        size = table.stat().st_size / 1e6
        print(f"written in {time.monotonic() - began:.2f} s: {size:.0f} MB, peak {peak_mb():.0f} MiB", flush=True)
        for what in (GIVEN, MERGED):
            subprocess.run([sys.executable, "-c", what, str(table)], check=True, cwd=Path(__file__).parents[2])
