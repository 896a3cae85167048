"""Brownian motion with absorbing bounds, looked at a few times: what a sequential test does, look by look.

Without one exact recursion, the levels of the looks and the adjusted effects would rest on two different simulations.
Time runs in passes: after t passes the walk is normal with mean drift·t and variance t; z is its value over √t.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

NODES = 96
NODES_PER_PASS = 1.5
"""Nodes for each standard deviation of a step of one pass, the least: with fewer, a late look falls between them."""
REACH = 9.0
"""Standard deviations beyond which nothing is counted."""


class Walk:
    """A walk of known drift; `go_on` to a look, ask `beyond`, then `stop_beyond` what ends there."""

    def __init__(self, drift: float = 0.0) -> None:
        self._drift = drift
        self._at = self._looked = 0.0
        self._place, self._mass = np.zeros(1), np.ones(1)  # nodes where the walk may be, with their probabilities

    def go_on(self, passes: float) -> None:
        """To the look after so many passes."""
        self._at = passes

    def beyond(self, z: float) -> float:
        """Probability that the walk has not ended before this look and is above `z` at it."""
        from scipy.special import ndtr

        step = self._at - self._looked
        reached = self._place + self._drift * step - z * math.sqrt(self._at)
        return float(self._mass @ ndtr(reached / math.sqrt(step)))

    def stop_beyond(self, low: float, high: float) -> None:
        """End every walk that is outside [low, high] (z) at this look; infinite where nothing ends."""
        step, spread = self._at - self._looked, math.sqrt(self._at)
        centre = self._drift * self._at
        left = max(low * spread, centre - REACH * spread)
        right = min(high * spread, centre + REACH * spread)
        self._looked = self._at
        if left >= right:  # all ended: no walk can be back inside
            self._place, self._mass = np.zeros(1), np.zeros(1)
            return
        nodes, weights = _gauss(32 * math.ceil(max(NODES, NODES_PER_PASS * (right - left)) / 32))
        place = left + (nodes + 1) * (right - left) / 2
        distance = (place[:, None] - self._place[None, :] - self._drift * step) / math.sqrt(step)
        density = np.exp(-(distance**2) / 2) @ self._mass / math.sqrt(2 * math.pi * step)
        self._place, self._mass = place, density * weights * (right - left) / 2


@cache
def _gauss(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Legendre nodes and weights on [-1, 1]."""
    return np.polynomial.legendre.leggauss(count)
