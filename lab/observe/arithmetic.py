"""How fast this machine multiplies matrices, measured.

Without it the roof of a machine that stands in no catalogue has a slope and no top, and nobody sees from which batch on
arithmetic is the limit.
"""

from __future__ import annotations

import time

PROBE_SECONDS = 0.4  # of timed rounds, after one that wakes the threads of the library
SIZE = 1024  # rows and columns: three matrices of 4 MiB, large enough for the library to reach its best


def fp32_flops_s(seconds: float = PROBE_SECONDS) -> float:
    """FLOP/s of numpy's matrix product in FP32 on all processors: 2 n³ operations over the best round.

    The best, not the median, since it is a ceiling (see `bandwidth`). Kernels on quantised weights compute in integers
    and can exceed it, so it is a roof in pictures and never part of a bound.
    """
    import numpy as np

    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal((SIZE, SIZE), dtype=np.float32) for _ in range(2))
    product = left @ right
    best_s, ends_s = float("inf"), time.perf_counter() + seconds
    while best_s == float("inf") or time.perf_counter() < ends_s:
        began_s = time.perf_counter()
        np.matmul(left, right, out=product)
        best_s = min(best_s, time.perf_counter() - began_s)
    return 2.0 * SIZE**3 / best_s
