"""The load client as a ruler: its times against a server that knows the true ones, beside other readers.

Without it nobody knows by how much a latency of a millisecond is the client's own.

`python -m tests.bench.ruler [--rounds 3] [--seconds 5] [--readers lab,minimal,aiohttp] [--lockstep]`. The lab's reader
is the real client process. The readers take turns, so that a busy machine is busy for all; the last column tells how
busy. Wanted of the lab: TTFT and chunk times within 0.3 ms (p50) and 3 ms (p99) at 1, 16, 64 and 256 streams of 50
chunks a second; 1,024 streams of 10 without an error and within 10 ms (p99); throughput within 0.5 %.
"""

from __future__ import annotations

import argparse
import os

import numpy as np

from tests.bench.runs import READERS, Load, Run, run


def describe(load: Load, reader: str, runs: list[Run]) -> str:
    """One line of the table; each percentile is the median of the rounds."""
    percentiles = []
    for one in runs:
        each = [(late, share) for late in one.late_ms() for share in (50, 99)]
        percentiles.append([np.percentile(late, share) if len(late) else np.nan for late, share in each])
    values = "".join(f"{value:9.3f}" for value in np.nanmedian(percentiles, axis=0))
    read, sent = (sum(counts) for counts in zip(*(one.chunks() for one in runs), strict=True))
    errors = sum(one.errors + one.miscounted() for one in runs)
    return f"{load!s:22}{reader:10}{values}{100 * (read / sent - 1):+9.3f}%{errors:8}{os.getloadavg()[0]:8.1f}"


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--seconds", type=float, default=5.0)
    options.add_argument("--readers", default=",".join(READERS))
    options.add_argument("--lockstep", action="store_true")
    given = options.parse_args()
    loads = [Load(c, 50, 10 if c == 1 else 100, given.seconds, given.lockstep) for c in (1, 16, 64, 256)]
    print(
        f"{'ms late':22}{'reader':10}{'TTFT p50':>9}{'p99':>9}{'chunk p50':>10}{'p99':>8}{'tok/s':>10}{'errors':>8}"
        f"{'load 1m':>8}"
    )
    for load in [*loads, Load(1024, 10, 50, given.seconds, given.lockstep)]:
        names = given.readers.split(",")
        runs: dict[str, list[Run]] = {name: [] for name in names}
        for turn in range(given.rounds):
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                runs[name].append(run(name, load))
        for name in names:
            print(describe(load, name, runs[name]), flush=True)
