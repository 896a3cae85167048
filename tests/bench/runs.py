"""One run of one reader against the stamp server, and what it read beside what was sent.

Without one runner the ruler and the cost bench would measure different loads.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson

ROOT = Path(__file__).parents[2]
READERS = ("lab", "minimal", "aiohttp")
WARMUP_SECONDS = 2.0
ITEMS = 20_000


@dataclass(frozen=True)
class Load:
    """What is offered: clients, chunks a second of each stream, tokens an answer, seconds of the window."""

    concurrency: int
    rate: float
    tokens: int
    seconds: float
    lockstep: bool = False

    def __str__(self) -> str:
        return f"C={self.concurrency} x {self.rate:g}/s{' lockstep' if self.lockstep else ''}"


@dataclass(frozen=True)
class Run:
    """What one reader made of a load. Times are monotonic seconds; cpu_s: its process's, in the window.

    requests: number, when it was sent, when its chunks came. truth: number → when it was received, when its chunks
    were sent. errors: requests that failed.
    """

    opened_s: float
    closed_s: float
    cpu_s: float
    requests: list[tuple[int, float, np.ndarray]]
    errors: int
    truth: dict[int, tuple[float, np.ndarray]]

    def late_ms(self) -> tuple[np.ndarray, np.ndarray]:
        """By how much the reader's TTFTs differ from the server's, and each chunk's arrival from its sending; for the
        requests sent, and the chunks sent, in the window."""
        first, each = [], []
        for number, sent_s, times in self.requests:
            received_s, stamps = self.truth[number]
            if not len(times) or not len(stamps):
                continue
            if self.opened_s <= sent_s < self.closed_s:
                first.append((times[0] - sent_s) - (stamps[0] - received_s))
            common = min(len(times), len(stamps))
            inside = (stamps[:common] >= self.opened_s) & (stamps[:common] < self.closed_s)
            each.append((times[:common] - stamps[:common])[inside])
        return np.array(first) * 1e3, np.concatenate(each) * 1e3

    def chunks(self) -> tuple[int, int]:
        """Chunks in the window, by the reader and by the server."""
        read = [times for _, _, times in self.requests]
        sent = [stamps for _, stamps in self.truth.values()]
        return self._inside(read), self._inside(sent)

    def miscounted(self) -> int:
        """Requests of which the reader has another number of chunks than were sent."""
        return sum(len(times) != len(self.truth[number][1]) for number, _, times in self.requests)

    def _inside(self, series: list[np.ndarray]) -> int:
        times = np.concatenate(series)
        return int(((times >= self.opened_s) & (times < self.closed_s)).sum())


def run(reader: str, load: Load) -> Run:
    """Let one reader take a load from a server of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with _server(load, folder / "stamps") as port:
            read = _lab(load, port, folder) if reader == "lab" else _other(reader, load, port, folder)
        truth = pickle.loads((folder / "stamps").read_bytes())
    return Run(*read, truth={number: (at, np.asarray(stamps)) for number, (at, stamps) in truth.items()})


@contextmanager
def _server(load: Load, stamps: Path) -> Iterator[int]:
    command = [sys.executable, "-m", "tests.bench.stamp_server", "--rate", str(load.rate), "--stamps", str(stamps)]
    lockstep = ["--lockstep"] if load.lockstep else []
    with subprocess.Popen(command + lockstep, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as server:
        yield int(server.stdout.readline())
        server.stdin.close()
        server.wait()


def _lab(load: Load, port: int, folder: Path) -> tuple:
    """The load client as every trial runs it, in one process."""
    from lab.load import record
    from lab.load.clients import Clients

    items = folder / "items.jsonl"
    items.write_bytes(
        b"\n".join(
            orjson.dumps({"messages": [{"role": "user", "content": f"request {number}"}]}) for number in range(ITEMS)
        )
    )
    job = {
        "server_url": f"http://127.0.0.1:{port}",
        "model": "m",
        "items": str(items),
        "concurrency": load.concurrency,
        "output_tokens": load.tokens,
        "warmup_seconds": WARMUP_SECONDS,
        "seconds": load.seconds,
        "stall_seconds": 30.0,
        "drain_seconds": 60.0,
        "sampling": {"temperature": 0, "seed": 1},
        "extras": {"stream_options": {"continuous_usage_stats": True}},
        "tokens_path": ["usage", "completion_tokens"],
    }
    with Clients(job, [folder / "requests.parquet"], None, None) as clients:
        clients.wait_until_ready()
        outcome = clients.measure()
    frame = record.read(folder / "requests.parquet")
    opened_s, closed_s = outcome["opened_s"], outcome["closed_s"]
    requests = list(zip(frame.prompt, frame.sent_s, frame.chunk_s, strict=True))
    return opened_s, closed_s, outcome["cpu_share"] * (closed_s - opened_s), requests, int(frame.error.notna().sum())


def _other(reader: str, load: Load, port: int, folder: Path) -> tuple:
    command = [
        sys.executable, "-m", "tests.bench.other_client", reader, "--port", str(port), "-c", str(load.concurrency),
        "--tokens", str(load.tokens), "--warmup", str(WARMUP_SECONDS), "--seconds", str(load.seconds),
        "--out", str(folder / "read"),
    ]  # fmt: skip
    subprocess.run(command, check=True, cwd=ROOT)
    read = pickle.loads((folder / "read").read_bytes())
    requests = [(number, sent_s, np.asarray(times)) for number, sent_s, times in read["requests"]]
    return read["opened_s"], read["closed_s"], read["cpu_s"], requests, 0
