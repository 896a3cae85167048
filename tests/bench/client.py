"""What the load client costs: CPU time a chunk beside other readers, and the time until it is ready.

Without it a dearer reader is noticed when it can no longer keep up.

`python -m tests.bench.client [--rounds 5] [--seconds 5]`. Wanted: at most 1.3 times the minimal reader and 0.6 times
aiohttp at 256 streams; at most 0.6 of a core at 1,024 streams of 10 chunks a second; ready within 0.5 s.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

import numpy as np

from tests.bench.runs import READERS, ROOT, Load, run

START = (
    "import time; t = time.monotonic(); import lab.load.client; import sys; "
    "print(time.monotonic() - t, [m for m in ('numpy', 'pandas', 'pyarrow', 'scipy') if m in sys.modules])"
)


def cpu(rounds: int, load: Load) -> None:
    """CPU microseconds a chunk of the three readers, which take turns."""
    cost = {name: [] for name in READERS}
    for turn in range(rounds):
        for name in READERS[turn % len(READERS) :] + READERS[: turn % len(READERS)]:
            one = run(name, load)
            read, sent = one.chunks()
            cost[name].append(one.cpu_s / read * 1e6)
            print(
                f"{load!s:20}{name:10}{cost[name][-1]:8.2f} us a chunk, {one.cpu_s / load.seconds:.2f} cores, "
                f"{read} of {sent} chunks, {one.errors} errors, {one.miscounted()} miscounted",
                flush=True,
            )
    lab, minimal, aiohttp = (np.array(cost[name]) for name in READERS)
    for name, other in (("minimal", minimal), ("aiohttp", aiohttp)):
        ratios = np.round(np.sort(lab / other), 2)
        print(f"{load!s:20}lab / {name}: {np.median(ratios):.2f} (each round: {ratios})", flush=True)


def start() -> None:
    """Seconds from the start of the process until the client is ready, and what it imports."""
    times = []
    for _ in range(7):
        began = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "lab.load.client"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
        )
        job = (
            b'{"server_url": "http://127.0.0.1:1", "model": "m", "items": [{"text": "a"}], "concurrency": 1, '
            b'"output_tokens": 1, "warmup_seconds": 1, "seconds": 1, "stall_seconds": 1, "drain_seconds": 1, '
            b'"requests_path": "none"}\n'
        )
        process.stdin.write(job)
        process.stdin.flush()
        process.stdout.readline()
        times.append(time.monotonic() - began)
        process.communicate()
    imported = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, cwd=ROOT).stdout.strip()
    print(
        f"ready after {np.median(times):.3f} s (least {min(times):.3f} s); seconds of imports, heavy ones: {imported}"
    )


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=float, default=5.0)
    given = options.parse_args()
    start()
    cpu(given.rounds, Load(256, 50, 200, given.seconds))
    cpu(max(1, given.rounds // 2), Load(1024, 10, 50, given.seconds))
