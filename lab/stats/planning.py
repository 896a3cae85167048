"""How many passes a question costs.

Without it, "inconclusive" is a dead end: nobody can tell whether two more passes would settle the lever or
two hundred.
"""

from __future__ import annotations

import bisect
import math

from lab.stats.compare import Effect, t_quantile

MOST_PASSES = 1_000_000


def passes_needed(effect: Effect, target_half_width_pct: float, alpha: float = 0.05) -> int | None:
    """Further passes until the interval's half-width is expected to reach `target_half_width_pct` (points).

    `alpha` is the one the effect was computed with. The spread is taken to stay as it is; the standard
    error shrinks with the square root of the passes, and each pass adds one degree of freedom (more arms
    add more, so this is cautious). 0 when the interval is already that narrow; None when there is no
    interval to start from, or when even a million passes would not do. Raises ValueError for a target that
    is not positive.
    """
    if not target_half_width_pct > 0:
        raise ValueError(f"target_half_width_pct is {target_half_width_pct}, not positive")
    if effect.ci_low_pct is None or effect.ci_high_pct is None or effect.effect_pct is None or not effect.df:
        return None
    ratio = 1 + effect.effect_pct / 100
    half_width = _log_half_width((effect.ci_high_pct - effect.ci_low_pct) / 2, ratio)
    target = _log_half_width(target_half_width_pct, ratio)
    passes = max(1, effect.launches // 2)  # P passes use 2 P + 1 launches, a block C T T C four

    def expected(more: int) -> float:
        quantiles = t_quantile(1 - alpha / 2, effect.df + more) / t_quantile(1 - alpha / 2, effect.df)
        return half_width * quantiles * math.sqrt(passes / (passes + more))

    more = bisect.bisect_left(range(MOST_PASSES), True, key=lambda more: expected(more) <= target)
    return more if more < MOST_PASSES else None


def _log_half_width(half_width_pct: float, ratio: float) -> float:
    """Half-width on the log scale of an interval that is this wide in percentage points around `ratio`."""
    return math.asinh(half_width_pct / 100 / ratio)
