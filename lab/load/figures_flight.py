"""How many requests the client kept in flight, and when.

Without the exact account a fill, a drain or a stuck client is averaged into the load, and "C in flight" is a hope.
"""

from __future__ import annotations

import numpy as np


class Flight:
    """Requests in flight over time, from their sends and ends in seconds; failed and aborted ones are among them."""

    def __init__(self, sent_s: np.ndarray, end_s: np.ndarray) -> None:
        self.sent_s, self.end_s = np.sort(sent_s), np.sort(end_s)
        times = np.concatenate([end_s, sent_s])
        steps = np.concatenate([np.full(len(end_s), -1), np.full(len(sent_s), 1)])
        # One that ends and one that starts at the same instant did not overlap: the end comes first.
        order = np.lexsort((steps, times))
        self._times, self._levels = times[order], np.cumsum(steps[order])

    def mean(self, start_s: float, stop_s: float) -> float | None:
        """Little's law: the time-weighted mean between two instants; None for an empty span."""
        return float(self.bins(start_s, stop_s, 1)[0]) if stop_s > start_s else None

    def bins(self, start_s: float, stop_s: float, count: int) -> np.ndarray:
        """Time-weighted means over equal bins, to a billionth: what is smaller is rounding."""
        edges = np.linspace(start_s, stop_s, count + 1)
        integral = _integral(self.sent_s, edges) - _integral(self.end_s, edges)
        return np.round(np.diff(integral) * count / (stop_s - start_s), 9)

    def share_at_least(self, level: float, start_s: float, stop_s: float) -> float | None:
        """Share of a span during which at least `level` requests were in flight; None for an empty span."""
        if stop_s <= start_s:
            return None
        edges = np.concatenate([self._times, [np.inf]]).clip(start_s, stop_s)
        return float(np.diff(edges)[self._levels >= level].sum() / (stop_s - start_s))

    def at(self, t_s: float) -> int:
        """Requests in flight at an instant."""
        return int(np.searchsorted(self.sent_s, t_s, "right") - np.searchsorted(self.end_s, t_s, "right"))

    def most_between(self, start_s: float, stop_s: float) -> int:
        """The most requests in flight at any instant of a span."""
        within = self._levels[(self._times > start_s) & (self._times <= stop_s)]
        return max(self.at(start_s), int(within.max(initial=0)))

    @property
    def peak(self) -> int:
        """The most requests in flight at any instant."""
        return int(self._levels.max(initial=0))


def _integral(instants: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The integral up to each of `at` of how many of the sorted `instants` have passed."""
    passed = np.searchsorted(instants, at, side="right")
    sums = np.concatenate([[0.0], np.cumsum(instants)])
    return passed * at - sums[passed]
