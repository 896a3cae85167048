"""This machine as the roofline sees it, measured: its memory bandwidth above all.

Without it, the bound of a machine that stands in no catalogue would rest on a data sheet, and a virtual
machine reaches a fraction of what its processor's data sheet says.

The probe follows STREAM (J. D. McCalpin, *Memory Bandwidth and Machine Balance in Current High Performance
Computers*, 1995; https://www.cs.virginia.edu/stream/ref.html): plain loops over arrays of at least four
times the last-level cache, every array written once beforehand so that no page fault is timed, several
threads, best of many rounds.

The **best** figure is the result, not the median: a roofline is a ceiling, and everything that disturbs a
round (other tenants, the scheduler) can only make it slower. A probe that was disturbed throughout still
reads low; then a measured server can lie above its bound, which says so by itself since nothing is clamped.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from lab.observe.arithmetic import fp32_flops_s
from lab.roofline.hardware import Hardware, KernelFigure

if TYPE_CHECKING:
    import numpy as np

MIB = 1 << 20
PROBE_SECONDS = 1.5  # of timed rounds; allocation and the last round come on top
DEFAULT_SET_BYTES = 256 * MIB  # the three arrays together, for a small or unknown cache
LARGEST_SET_BYTES = 1024 * MIB
CACHE_MULTIPLE = 4  # McCalpin: each array at least four times the last-level cache
TRIAD_BLOCK = 16 * 1024  # elements: 128 KiB an array, so that the intermediate stays in the core's cache
CPU_FOLDER = Path("/sys/devices/system/cpu")


def probe(seconds: float = PROBE_SECONDS) -> Hardware:
    """Measure memory bandwidth and FP32 arithmetic of the processors this process may use; under 4 s, at most 1 GiB.

    Bytes are counted as in STREAM, what the loop asks for: read 8 per element, copy 16, triad 24. The extra
    read that some processors make before a store (write-allocate) is not counted, so copy and triad can
    understate the bus. Every thread count in 1, 2, 4, … and all processors is tried.
    """
    processors = sorted(os.sched_getaffinity(0))
    cache_bytes = last_level_cache_bytes(processors)
    elements = _set_bytes(cache_bytes) // 3 // 8
    best = _best_rates(elements, _thread_counts(len(processors)), seconds)
    kernels = tuple(KernelFigure(kernel, threads, rate) for (kernel, threads), rate in sorted(best.items()))
    ceiling = max(kernels, key=lambda figure: figure.bytes_s)
    cramped = cache_bytes is not None and elements * 8 < CACHE_MULTIPLE * cache_bytes
    return Hardware(
        name=f"{_processor_name()}, {len(processors)} processors",
        memory_bandwidth_bytes_s=ceiling.bytes_s,
        source=f"probe: {ceiling.kernel} with {ceiling.threads} threads, best of all rounds"
        + ("; arrays too small for this cache, may read high" if cramped else ""),
        threads=ceiling.threads,
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        cache_bytes=cache_bytes,
        array_bytes=elements * 8,
        kernels=kernels,
        peak_flops_s={"fp32": fp32_flops_s()},
    )


def last_level_cache_bytes(processors: list[int], folder: Path = CPU_FOLDER) -> int | None:
    """Sum of the distinct last-level caches of these processors; None where Linux reports none."""
    caches: dict[tuple[int, str], int] = {}
    for processor in processors:
        for index in (folder / f"cpu{processor}" / "cache").glob("index*"):
            try:
                level = int((index / "level").read_text())
                sharers = (index / "shared_cpu_list").read_text().strip()
                caches[level, sharers] = int((index / "size").read_text().strip().removesuffix("K")) * 1024
            except (OSError, ValueError):
                continue
    last = max((level for level, _ in caches), default=None)
    return sum(size for (level, _), size in caches.items() if level == last) or None


def _read(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    import numpy as np

    for array in (a, b, c):
        np.add.reduce(array.view(np.int64))  # integers: float sums are slower than memory


def _copy(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    import numpy as np

    np.copyto(a, b)


def _triad(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    """a = b + 3 c, block by block: numpy needs two loops, and `a` must not leave the cache in between."""
    import numpy as np

    for start in range(0, len(a), TRIAD_BLOCK):
        block = slice(start, start + TRIAD_BLOCK)
        np.multiply(c[block], 3.0, out=a[block])
        np.add(a[block], b[block], out=a[block])


Kernel = Callable[["np.ndarray", "np.ndarray", "np.ndarray"], None]
KERNELS: dict[str, tuple[Kernel, int]] = {  # name -> loop, arrays that cross the bus
    "read": (_read, 3),
    "copy": (_copy, 2),
    "triad": (_triad, 3),
}


def _best_rates(elements: int, thread_counts: list[int], seconds: float) -> dict[tuple[str, int], float]:
    """Best bytes per second of every (kernel, threads), in rounds over all of them until the time is up.

    Rounds spread a disturbance over all figures instead of spoiling one. The first round is always complete.
    """
    import numpy as np

    arrays = [np.empty(elements) for _ in range(3)]
    best: dict[tuple[str, int], float] = {}
    with ThreadPoolExecutor(max(thread_counts)) as pool:
        for array in arrays:
            list(pool.map(lambda part: part.fill(1.0), np.array_split(array, max(thread_counts))))
        deadline = time.perf_counter() + seconds
        combinations = [(name, threads) for threads in thread_counts for name in KERNELS]
        done = 0
        while done < len(combinations) or time.perf_counter() < deadline:
            name, threads = combinations[done % len(combinations)]
            loop, crossing = KERNELS[name]
            slices = [np.array_split(array, threads) for array in arrays]
            began = time.perf_counter()
            list(pool.map(loop, *slices))
            rate = crossing * elements * 8 / (time.perf_counter() - began)
            best[name, threads] = max(rate, best.get((name, threads), 0.0))
            done += 1
    return best


def _thread_counts(processors: int) -> list[int]:
    """All processors first, since the ceiling is most likely there, then powers of two below."""
    counts = {1 << power for power in range(processors.bit_length()) if 1 << power < processors}
    return sorted(counts | {processors}, reverse=True)


def _set_bytes(cache_bytes: int | None) -> int:
    """Size of the three arrays together: well beyond the cache, at most 1 GiB."""
    return min(LARGEST_SET_BYTES, max(DEFAULT_SET_BYTES, 3 * CACHE_MULTIPLE * (cache_bytes or 0)))


def _processor_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "unknown processor"
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, "unknown processor")
