"""The client watching itself during the window.

Without it a client that is out of breath passes for a slow server: late reads look like late tokens.
"""

from __future__ import annotations

import asyncio
import gc
import math
import time

BEAT_SECONDS = 0.02


class SelfWatch:
    """The client's own state in the window: `loop_lag_p99_ms` and `cpu_share`, None before the window ended.

    loop_lag: how late the event loop wakes from a sleep of 20 ms; cpu_share: CPU time over time, 1 is one core.
    """

    def __init__(self) -> None:
        self.loop_lag_p99_ms: float | None = None
        self.cpu_share: float | None = None

    async def until(self, end_s: float) -> None:
        """Beat until `end_s` (monotonic). The garbage collector rests meanwhile: a full collection of a large heap
        takes longer than a chunk gap."""
        lags_s: list[float] = []
        start_s, cpu_s = time.monotonic(), time.process_time()
        gc.freeze()
        gc.disable()
        try:
            while (now := time.monotonic()) < end_s:
                beat = min(BEAT_SECONDS, end_s - now)
                await asyncio.sleep(beat)
                lags_s.append(max(0.0, time.monotonic() - now - beat))
        finally:
            gc.enable()
        self.loop_lag_p99_ms = percentile_ms(lags_s, 0.99)
        if (seconds := time.monotonic() - start_s) > 0:
            self.cpu_share = (time.process_time() - cpu_s) / seconds


def percentile_ms(values_s: list[float], share: float) -> float | None:
    """The nearest-rank percentile of durations in seconds, in milliseconds; None without values."""
    if not values_s:
        return None
    rank = max(1, math.ceil(share * len(values_s)))
    return sorted(values_s)[rank - 1] * 1000
