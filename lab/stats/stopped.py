"""The effect of a lever whose campaign ended early, corrected for having ended just then.

Without it the figure beside an early "adopt" is too good: campaigns end when the estimate happens to be large.

Stagewise ordering (Tsiatis, Rosner & Mehta, *Biometrics* 40, 1984, 797-803): a campaign that crossed its upper bound
earlier is more extreme. The estimate is the drift under which what was seen is the median, the interval holds the
drifts under which it is no further out than alpha/2 on either side (Jennison & Turnbull, *Group Sequential Methods*,
2000, sections 8.2 to 8.5).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lab.stats.walk import Walk

SEARCH_WIDTH = 3.0
"""How far from the plain estimate the corrected one is sought first, in standard errors."""


@dataclass(frozen=True)
class Corrected:
    """Estimate and interval in standard errors of the last look (z), and the two-sided p-value."""

    z: float
    low: float
    high: float
    p_value: float


def corrected(passes: Sequence[int], bounds: Sequence[tuple[float, float]], z: float, alpha: float) -> Corrected:
    """Correct the `z` seen at the last of the looks after `passes`, when the campaign would have ended outside `bounds`
    (a lower and an upper one) at the earlier ones; all in standard errors of their look.

    At a first look there is nothing to correct.
    """
    scale = math.sqrt(passes[-1])

    def above(drift: float) -> float:
        walk, total = Walk(drift), 0.0
        for done, (low, high) in zip(passes[:-1], bounds, strict=True):
            walk.go_on(done)
            total += walk.beyond(high)
            walk.stop_beyond(low, high)
        walk.go_on(passes[-1])
        return total + walk.beyond(z)

    at_rest = above(0.0)
    return Corrected(
        z=_drift_where(above, 0.5, z, scale) * scale,
        low=_drift_where(above, alpha / 2, z, scale) * scale,
        high=_drift_where(above, 1 - alpha / 2, z, scale) * scale,
        p_value=min(1.0, 2 * min(at_rest, 1 - at_rest)),
    )


def _drift_where(above, probability: float, z: float, scale: float) -> float:
    """The drift under which so much lies above what was seen; `above` rises with the drift."""
    from scipy.optimize import brentq

    low, high, width = z / scale, z / scale, SEARCH_WIDTH / scale
    while above(low := low - width) > probability:
        width *= 2
    while above(high := high + width) < probability:
        width *= 2
    return brentq(lambda drift: above(drift) - probability, low, high, xtol=1e-6)
