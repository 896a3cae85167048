"""The server's and the machine's account over time, on the same clock as the client's.

Without a timeline the only proof that sixteen requests ran together is that sixteen were sent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from lab import files
from lab.errors import LabError
from lab.observe.machine import KEYS, Meter

if TYPE_CHECKING:
    import pandas as pd

GAUGES = ("running", "waiting", "kv_usage")
SLOWEST_INTERVAL_S = 0.5
SAMPLES_PER_WINDOW = 12
IDLE_INTERVAL_S = 0.1
UNANSWERED = (OSError, LabError)


def interval_s(window_seconds: float) -> float:
    """Seconds between samples: twice a second, or twelve a window, whichever is more often."""
    return min(SLOWEST_INTERVAL_S, window_seconds / SAMPLES_PER_WINDOW)


class watch:
    """`with watch(server.sample, server.pid, interval) as timeline: …` samples in a thread until the block
    ends.

    `sample` returns the server's Sample or raises OSError (as requests' errors are) or LabError; such a
    reading is a gap: its row has the machine's figures and no server's. Any other exception ends the watch
    and is raised at the end of the block. A row's `t_s` is when the server's answer arrived.
    """

    def __init__(self, sample: Callable[[], Any], server_pid: int | None, interval: float) -> None:
        self._sample = sample
        self._interval_s = interval
        self._meter = Meter(server_pid)
        self._rows: list[dict[str, float | None]] = []
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="lab-watch")

    def __enter__(self) -> Self:
        self._work = self._pool.submit(self._run)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._pool.shutdown()
        if error is None:
            self._work.result()

    def frame(self) -> pd.DataFrame:
        """The samples so far: t_s, gauges, counters under their standard names, the machine's figures; absent
        is NaN."""
        import pandas as pd

        rows = list(self._rows)
        fixed = ["t_s", *GAUGES]
        counters = sorted({name for row in rows for name in row} - {*fixed, *KEYS})
        return pd.DataFrame(rows, columns=[*fixed, *counters, *KEYS], dtype="float64")

    def _run(self) -> None:
        due_s = time.monotonic()
        while not self._stop.wait(max(0.0, due_s - time.monotonic())):
            self._rows.append(self._read())
            due_s = max(due_s + self._interval_s, time.monotonic())

    def _read(self) -> dict[str, float | None]:
        try:
            sample = self._sample()
            server = {name: getattr(sample, name) for name in GAUGES} | dict(sample.counters)
        except UNANSWERED:
            server = {}
        return {"t_s": time.monotonic()} | server | self._meter.read()


def write(frame: pd.DataFrame, path: Path) -> None:
    """Write a timeline to `path` in one step, absent values as nulls; raises DiskFullError or InputError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), buffer)
    files.write_bytes(path, buffer.getvalue().to_pybytes())


def idle_look(sample: Callable[[], Any], seconds: float) -> float | None:
    """The most requests seen running or waiting on a server that we leave alone for `seconds`: more than none
    is somebody else's work. None when the server does not tell. Raises what `sample` raises when it does not
    answer."""
    end_s = time.monotonic() + seconds
    seen: list[float] = []
    while True:
        reading = sample()
        if reading.running is not None:
            seen.append(reading.running + (reading.waiting or 0))
        rest_s = end_s - time.monotonic()
        if rest_s <= 0:
            return max(seen, default=None)
        time.sleep(min(IDLE_INTERVAL_S, rest_s))
