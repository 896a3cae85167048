"""The server's account of the window, from the samples of its gauges and counters.

Without the window cut out of it, and each sample weighed by the time it stands for, an idle minute before the trial
halves the batch that ran.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np

from lab.load.figures_flight import Flight
from lab.observe.machine import KEYS
from lab.observe.timeline import GAUGES, RANKS, STAMPS

if TYPE_CHECKING:
    import pandas as pd

# Samples around the opening of the window that must all show requests that are not ours: a single odd one may not.
OPENING_SAMPLES = 3
# A counter that falls by so much was reset.
FALL = 0.5


class Samples:
    """The timeline, column by column; `t_s` is server seconds after the window opened, missing values are NaN."""

    def __init__(self, timeline: pd.DataFrame, opened_s: float, seconds: float, time_factor: float) -> None:
        self.frame, self.seconds, self.time_factor = timeline, seconds, time_factor
        self.t_s = (timeline.t_s.to_numpy(dtype=np.float64) - opened_s) * time_factor
        self.inside = (self.t_s >= 0) & (self.t_s < seconds)

    def column(self, name: str) -> np.ndarray:
        """A column; all NaN when the table has none of that name."""
        known = name in self.frame.columns
        return self.frame[name].to_numpy(dtype=np.float64) if known else np.full(len(self.t_s), np.nan)

    def weights_s(self, values: np.ndarray) -> np.ndarray:
        """The time in the window that each known value stands for: the time that is nearest to it.

        A missing value stands for its time too: that time is left out, not given to its neighbours.
        """
        edges = np.concatenate([[-np.inf], (self.t_s[1:] + self.t_s[:-1]) / 2, [np.inf]]).clip(0.0, self.seconds)
        return np.where(np.isnan(values), 0.0, np.diff(edges))

    def mean(self, name: str) -> float | None:
        """The time-weighted mean over the window; None when no sample stands for any of it."""
        values = self.column(name)
        if not len(values):
            return None
        weights = self.weights_s(values)
        return float(weights @ np.nan_to_num(values) / weights.sum()) if weights.sum() > 0 else None

    def quantile(self, name: str, share: float) -> float | None:
        """The value that is not exceeded during `share` of the window."""
        values = self.column(name)
        if not len(values):
            return None
        weights = self.weights_s(values)
        order = np.argsort(values)
        reached = np.cumsum(weights[order])
        if not reached[-1] > 0:
            return None
        return float(values[order][np.searchsorted(reached, share * reached[-1] * (1 - 1e-12))])

    def most(self, name: str) -> float | None:
        """The largest value inside the window."""
        values = self.column(name)[self.inside]
        return float(np.nanmax(values)) if (~np.isnan(values)).any() else None

    def growth(self, name: str, appears: bool = False) -> float | None:
        """What a counter grew by in the window, interpolated at its ends; None unless samples reach around it, and
        when it fell. One that `appears` with its first event was 0 in the answers before."""
        values = self.column(name)
        if appears and not np.isnan(values).all():
            before = np.arange(len(values)) < np.argmin(np.isnan(values))
            values = np.where(before & ~np.isnan(self.column("running")), 0.0, values)
        known = ~np.isnan(values)
        t_s, values = self.t_s[known], values[known]
        if len(t_s) < 2 or t_s[0] > 0 or t_s[-1] < self.seconds or (np.diff(values) < 0).any():
            return None
        at_open, at_close = np.interp([0.0, self.seconds], t_s, values)
        return float(at_close - at_open)

    def always_zero(self, name: str) -> bool:
        """Whether there are samples of it, and all are zero."""
        values = self.column(name)
        values = values[~np.isnan(values)]
        return len(values) > 0 and not values.any()

    def fallen(self) -> list[str]:
        """The server's counters that were reset between two samples; less than half an event is rounding."""
        names = sorted({*self.frame.columns} - {*STAMPS, *GAUGES, RANKS, *KEYS})
        columns = {name: self.column(name) for name in names}
        return [name for name, values in columns.items() if (np.diff(values[~np.isnan(values)]) <= -FALL).any()]

    def staircase(self, name: str) -> float | None:
        """By how much the largest rise of a counter between two samples in the window is above the median one: what a
        counter that moves now and then may be behind."""
        values = self.column(name)[self.inside]
        rises = np.diff(values[~np.isnan(values)])
        return float(rises.max() - np.median(rises)) if len(rises) else None


def server_figures(
    samples: Samples,
    flight: Flight,
    *,
    delta: dict[str, float],
    live_counters: Collection[str],
    window_tokens: int,
    ranks: int | None,
) -> dict[str, Any]:
    """The section `server` as far as it follows from the tables; `cores` and CPU times are real, not virtual.

    Where a counter fell the server began to count anew, and nothing is known of how much any of them grew.
    """
    fell = samples.fallen()
    if fell:
        delta, live_counters = {}, ()
    answered = samples.t_s[~np.isnan(samples.column("running"))]
    cpu_seconds = samples.growth("server_cpu_s")
    growth = {name: samples.growth(name, appears=True) for name in sorted(live_counters)}
    return {
        "running": samples.mean("running"),
        "waiting": samples.mean("waiting"),
        "running_max": samples.most("running"),
        "waiting_max": samples.most("waiting"),
        "waiting_p10": samples.quantile("waiting", 0.1),
        "running_p25": samples.quantile("running", 0.25),
        "running_p95": samples.quantile("running", 0.95),
        "rank_running_p95": samples.quantile("rank_running_max", 0.95),
        "samples": int(((answered >= 0) & (answered < samples.seconds)).sum()),
        "sampled_from_s": float(answered[0]) if len(answered) else None,
        "sampled_to_s": float(answered[-1]) if len(answered) else None,
        "held_error": _held_error(samples),
        "kv_usage_max": samples.most("kv_usage"),
        "zero_gauges": [name for name in GAUGES if samples.always_zero(name)],
        "zero_counters": [name for name in sorted(delta) if samples.always_zero(name)],
        "delta": delta,
        "window_delta": {name: value for name, value in growth.items() if value is not None},
        "rank_skew": _rank_skew(samples, ranks),
        "cpu_seconds": cpu_seconds,
        "cores": None if cpu_seconds is None else cpu_seconds * samples.time_factor / samples.seconds,
        "cpu_ms_per_token": 1000 * cpu_seconds / window_tokens if cpu_seconds and window_tokens else None,
        "load_1m": samples.mean("load_1m"),
        "machine_cpu_pct": samples.mean("machine_cpu_pct"),
        "restarted": bool(fell),
        "fell": fell,
        "output_tokens_staircase": samples.staircase("output_tokens"),
        **_at_open(samples, flight),
    }


def _at_open(samples: Samples, flight: Flight) -> dict[str, float | None]:
    """What the server held when the window opened, and how much more than ours that was.

    A reading is of some moment since the one before it; it exceeds ours only by what we never had in flight in that
    time, and the excess is the smallest over the last three readings before the window.
    """
    running, waiting = samples.column("running"), np.nan_to_num(samples.column("waiting"))
    before = np.flatnonzero((samples.t_s <= 0) & ~np.isnan(running))
    last = before[-1] if len(before) else None
    excess = [
        running[i] + waiting[i] - flight.most_between(samples.t_s[i - 1], samples.t_s[i])
        for i in before[-OPENING_SAMPLES:]
        if i > 0
    ]
    return {
        "running_at_open": None if last is None else float(running[last]),
        "waiting_at_open": None if last is None else float(waiting[last]),
        "excess_at_open": float(min(excess)) if len(excess) == OPENING_SAMPLES else None,
    }


def _rank_skew(samples: Samples, ranks: int | None) -> float | None:
    """Time-weighted mean of the fullest data-parallel rank over that of all ranks; None with one rank."""
    fullest, running = samples.mean("rank_running_max"), samples.mean("running")
    return fullest * ranks / running if fullest is not None and running and ranks and ranks > 1 else None


def _held_error(samples: Samples) -> float | None:
    """The standard error of the mean of running and waiting requests together, from the spread of the samples."""
    held = (samples.column("running") + samples.column("waiting"))[samples.inside]
    held = held[~np.isnan(held)]
    return float(held.std(ddof=1) / np.sqrt(len(held))) if len(held) > 1 else None
