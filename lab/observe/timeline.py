"""The server's and the machine's account over time, on the same clock as the client's.

Without a timeline the only proof that sixteen requests ran together is that sixteen were sent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from lab import files
from lab.errors import LabError
from lab.observe.machine import KEYS, Meter

if TYPE_CHECKING:
    import pandas as pd

    from lab.engines.server import Sample
    from lab.observe.gpus import Gpus

STAMPS = ("t_s", "wall_s", "took_s")
GAUGES = ("running", "waiting", "kv_usage")
RANKS = "rank_running_max"
SLOWEST_INTERVAL_S = 0.5
SAMPLES_PER_WINDOW = 16
IDLE_INTERVAL_S = 0.1
PATIENCE_S = 5.0
"""How long a server may fail to answer for itself, beside the load, before it counts as gone."""
WORK = ("prompt_tokens", "output_tokens", "requests_finished")
UNANSWERED = (OSError, LabError)


def interval_s(window_seconds: float) -> float:
    """Seconds between samples: twice a second, or sixteen a window (in real seconds), whichever is more often."""
    return min(SLOWEST_INTERVAL_S, window_seconds / SAMPLES_PER_WINDOW)


class watch:
    """`with watch(server.sample, server.pid, interval) as timeline: …` samples in a thread until the block
    ends.

    `sample` returns the server's Sample or raises OSError (as requests' errors are) or LabError; such a
    reading is a gap: its row has the machine's figures and no server's. Any other exception ends the watch
    and is raised at the end of the block. Samples never overlap: after one that took longer than `interval` (real
    seconds) the next begins at once. `log_path`: the server's log, where this machine can see it; `gpus`: those it
    uses.

    A row's `t_s` (monotonic) and `wall_s` (unix) are when the server's answer arrived, `took_s` seconds after it was
    asked for: the figures are those of some moment in between. The machine's figures are read right after.
    """

    def __init__(
        self,
        sample: Callable[[], Sample],
        server_pid: int | None,
        interval: float,
        *,
        log_path: Path | None = None,
        gpus: Gpus | None = None,
    ) -> None:
        self._sample = sample
        self._interval_s = interval
        self._meter = Meter(server_pid, log_path, gpus)
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
        """The samples so far: stamps, gauges, most requests running on one data-parallel rank (of several), counters
        under their standard names, the machine's figures; absent is NaN."""
        import pandas as pd

        rows = list(self._rows)
        fixed = [*STAMPS, *GAUGES, RANKS]
        counters = sorted({name for row in rows for name in row} - {*fixed, *KEYS})
        return pd.DataFrame(rows, columns=[*fixed, *counters, *KEYS], dtype="float64")

    def _run(self) -> None:
        due_s = time.monotonic()
        while not self._stop.wait(max(0.0, due_s - time.monotonic())):
            self._rows.append(self._read())
            due_s = max(due_s + self._interval_s, time.monotonic())

    def _read(self) -> dict[str, float | None]:
        asked_s = time.monotonic()
        try:
            sample = self._sample()
            server = {name: getattr(sample, name) for name in GAUGES} | dict(sample.counters)
            server[RANKS] = max(sample.running_by_rank, default=None)
        except UNANSWERED:
            server = {}
        t_s = time.monotonic()
        return {"t_s": t_s, "wall_s": time.time(), "took_s": t_s - asked_s} | server | self._meter.read()


def write(frame: pd.DataFrame, path: Path) -> None:
    """Write a timeline to `path` in one step, absent values as nulls; raises DiskFullError or InputError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), buffer)
    files.write_bytes(path, buffer.getvalue().to_pybytes())


@dataclass(frozen=True)
class IdleLook:
    """What a server did while we left it alone; any of it is somebody else's work.

    running_max: most requests seen running or waiting, None when the server does not tell; grew: by how much the
    counters of WORK rose, those that did not are left out. Requests shorter than the time between two looks show in
    the counters only.
    """

    running_max: float | None
    grew: dict[str, float]


def patiently(ask: Callable[[], Any]) -> Any:
    """What a server answers, asked again when it does not, for some seconds; raises what the last try raised."""
    end_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return ask()
        except UNANSWERED:
            if time.monotonic() >= end_s:
                raise
        time.sleep(IDLE_INTERVAL_S)


def idle_look(sample: Callable[[], Sample], seconds: float) -> IdleLook:
    """Look at a server that we leave alone for `seconds`. Raises what `sample` raises when it does not answer for some
    seconds."""
    end_s = time.monotonic() + seconds
    first = latest = patiently(sample)
    seen = [first]
    while (rest_s := end_s - time.monotonic()) > 0:
        time.sleep(min(IDLE_INTERVAL_S, rest_s))
        seen.append(latest := patiently(sample))
    held = [one.running + (one.waiting or 0) for one in seen if one.running is not None]
    rises = {name: latest.counters.get(name, 0.0) - first.counters.get(name, 0.0) for name in WORK}
    return IdleLook(max(held, default=None), {name: rise for name, rise in rises.items() if rise > 0})
