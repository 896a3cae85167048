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
    """The client's own state in the window: `loop_lag_mean_ms`, `loop_lag_p99_ms`, `loop_lag_max_ms`, `cpu_share`;
    None before its end.

    loop_lag: how late the event loop wakes, of a wake each 20 ms; its mean is how long what arrives at any moment lies
    unread, its maximum for how long the client saw nothing at all; cpu_share: CPU time over time, 1 is one core, None
    when the loop came too late to see any of the window.
    """

    def __init__(self) -> None:
        self.loop_lag_mean_ms: float | None = None
        self.loop_lag_p99_ms: float | None = None
        self.loop_lag_max_ms: float | None = None
        self.cpu_share: float | None = None

    async def until(self, end_s: float, due_s: float) -> None:
        """Beat until `end_s`; a call later than `due_s`, when the window opened, is the first lag (monotonic).

        The garbage collector rests meanwhile: a full collection of a large heap takes longer than a chunk gap.
        """
        start_s, cpu_s = time.monotonic(), time.process_time()
        lags_s = missed_beats(start_s - due_s)
        gc.freeze()
        gc.disable()
        try:
            while (now := time.monotonic()) < end_s:
                beat = min(BEAT_SECONDS, end_s - now)
                await asyncio.sleep(beat)
                lags_s += missed_beats(time.monotonic() - now - beat)
        finally:
            gc.enable()
        self.loop_lag_mean_ms = 1000 * sum(lags_s) / len(lags_s)
        self.loop_lag_p99_ms = percentile_ms(lags_s, 0.99)
        self.loop_lag_max_ms = 1000 * max(lags_s)
        if start_s < end_s:
            self.cpu_share = (time.process_time() - cpu_s) / (time.monotonic() - start_s)


def missed_beats(late_s: float) -> list[float]:
    """How late the loop came to each beat that fell due in a lag: `late_s`, and a beat less for each further one.

    A lag counted once would be one of thousands of beats, and a client that stood still for seconds would show none.
    """
    return [late_s - beat * BEAT_SECONDS for beat in range(math.ceil(late_s / BEAT_SECONDS))] or [0.0]


def percentile_ms(values_s: list[float], share: float) -> float | None:
    """The nearest-rank percentile of durations in seconds, in milliseconds; None without values."""
    if not values_s:
        return None
    rank = max(1, math.ceil(share * len(values_s)))
    return sorted(values_s)[rank - 1] * 1000
