"""The price of looking several times: how small a p-value must be at each look for the whole to keep its error rate.

Without it, a lever that is judged after every pass and dropped as soon as it "is significant" at 5 % is adopted for
nothing in one campaign of six.

Error is spent over the looks by a spending function (Lan & DeMets, *Biometrika* 70, 1983, 659-663), here the one that
resembles Pocock's boundary, alpha ln(1 + (e - 1) t) at the share t of the passes: levers that do something mostly do a
lot, and are decided early. The levels are exact for normal increments (Armitage, McPherson & Rowe, *JRSS A* 132, 1969,
235-244) and are applied to t-based p-values at the same level (Jennison & Turnbull, *Group Sequential Methods*, 2000,
section 3.8).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

from lab.stats.walk import REACH, Walk

FEW_LAUNCHES_SHARE = 0.02
"""Of the error that is due, what a look at two launches of a treatment may spend: they leave its spread one degree of
freedom."""


def levels(looks: Sequence[int], last: int, alpha: float, sides: int = 2) -> tuple[float, ...]:
    """The nominal p-value (one- or two-sided) at each of `looks` (passes, rising), when the last may be after `last`.

    With looks up to the last, one of them is reached with probability `alpha` when nothing is true. Raises ValueError
    when the looks do not rise from 1 or go beyond `last`.
    """
    looks = tuple(looks)
    if list(looks) != sorted(set(looks)) or (looks and not 1 <= looks[0] <= looks[-1] <= last):
        raise ValueError(f"looks {looks} are not rising passes up to {last}")
    return _levels(looks, last, alpha, sides)


def spent(passes: int, last: int, alpha: float) -> float:
    """The error that may have been spent by the look after `passes` of `last` passes."""
    share = alpha * math.log1p((math.e - 1) * passes / last)
    return share * FEW_LAUNCHES_SHARE if passes <= 2 < last else share


@cache
def _levels(looks: tuple[int, ...], last: int, alpha: float, sides: int) -> tuple[float, ...]:
    from scipy.optimize import brentq
    from scipy.special import ndtr

    walk, found, before = Walk(), [], 0.0
    for passes in looks:
        walk.go_on(passes)
        due = (spent(passes, last, alpha) - before) / sides
        bound = brentq(lambda z, due: walk.beyond(z) - due, 0.0, REACH, (due,)) if walk.beyond(REACH) < due else REACH
        found.append(float(sides * ndtr(-bound)))
        before += sides * walk.beyond(bound)
        walk.stop_beyond(-bound if sides == 2 else -math.inf, bound)
    return tuple(found)
