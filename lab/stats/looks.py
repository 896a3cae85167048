"""The sequential rule as arithmetic on arrays: at which look it ends, and how.

Without one core for a single campaign and for ten thousand simulated ones, the error rates on display would belong to
another rule than the one that judges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from lab.stats.boundary import levels
from lab.stats.spread import Estimate

ADOPT, REJECT, NO_EFFECT, INCONCLUSIVE = "adopt", "reject", "no-effect", "inconclusive"
LABELS = (INCONCLUSIVE, ADOPT, REJECT, NO_EFFECT)
SPENT_SHARE = 0.87
"""Share of alpha that the looks spend where all arms scatter alike. The rest is for arms that do not: with a treatment
that scatters five times as much as its control the whole comes near alpha (`python -m tests.golden.error_rates`)."""
HOPELESS = 0.03
"""A lever leaves when a decision by the last pass is less probable than this, given what was seen."""


@dataclass(frozen=True)
class Bounds:
    """What a rule asks: the most passes, alpha, and the least effects that count (log ratios), the lower one negative;
    better: 1 where more of the metric is better, -1 where less is."""

    last: int
    alpha: float
    low: float
    high: float
    better: int


@dataclass(frozen=True)
class Ending:
    """Where each campaign ended: label (index into `LABELS`), look (index; of the last one where nothing was decided),
    hopeless: left undecided before its last pass."""

    label: np.ndarray
    look: np.ndarray
    hopeless: np.ndarray


def ending(passes: Sequence[int], estimates: Sequence[Estimate], bounds: Bounds, comparisons: int = 1) -> Ending:
    """Go through the looks, after so many `passes` each; every campaign ends at its first decision.

    adopt, reject: the p-value per arm (least degrees of freedom) is below the level of its look, and the estimate is at
    least the smallest effect that counts. no-effect: the interval lies inside the smallest effects, and both one-sided
    p-values against them are below the level of their look (Schuirmann, *J. Pharmacokin. Biopharm.* 15, 1987).
    `comparisons`: treatments that share the controls, see `shared_level`.
    """
    alpha = SPENT_SHARE * bounds.alpha
    two_sided = [shared_level(level, comparisons) for level in levels(passes, bounds.last, alpha)]
    one_sided = levels(passes, bounds.last, alpha, sides=1)
    at_last = shared_level(_level_at_last(passes, bounds.last, alpha), comparisons)
    shape = estimates[0].log_ratio.shape
    label, look = np.zeros(shape, int), np.full(shape, len(passes) - 1)
    hopeless = np.zeros(shape, bool)
    going = np.ones(shape, bool)
    for index, (done, found) in enumerate(zip(passes, estimates, strict=True)):
        better, worse = _different(found, two_sided[index], bounds)
        same = _same(found, min(bounds.alpha / 2, one_sided[index]), bounds)
        lost = _hopeless(found, done, at_last, bounds) if done < bounds.last else np.zeros(shape, bool)
        lost &= going & ~(better | worse | same)
        hopeless |= lost
        for number, ends in enumerate((lost, better, worse, same)):  # in the order of `LABELS`
            new = going & ends
            label[new], look[new] = number, index
            going &= ~new
    return Ending(label, look, hopeless)


@cache
def shared_level(level: float, comparisons: int) -> float:
    """The level of each of several comparisons with one control that together have `level` (Dunnett, *JASA* 50, 1955):
    two-sided, equal launches in every arm, so that the comparisons correlate by one half."""
    if comparisons == 1 or not 0 < level < 1:
        return level
    from scipy.optimize import brentq
    from scipy.special import ndtr, ndtri

    nodes, weights = np.polynomial.hermite_e.hermegauss(64)
    weights = weights / weights.sum()

    def together(z: float) -> float:
        held = ndtr(np.sqrt(2) * z + nodes) - ndtr(-np.sqrt(2) * z + nodes)
        return 1 - float(weights @ held**comparisons)

    low, high = -ndtri(level / 2), -ndtri(level / (2 * comparisons))
    return float(2 * ndtr(-brentq(lambda z: together(z) - level, 0.9 * low, 1.1 * high)))


def _level_at_last(passes: Sequence[int], last: int, alpha: float) -> float:
    """The level of the last look when one follows after every further pass."""
    return levels([*passes, *range(passes[-1] + 1, last + 1)], last, alpha)[-1]


def _different(found: Estimate, level: float, bounds: Bounds) -> tuple[np.ndarray, np.ndarray]:
    from scipy.special import stdtr

    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(found.error_apart > 0, found.log_ratio / found.error_apart, np.sign(found.log_ratio) * np.inf)
    sure = 2 * stdtr(found.df_apart, -np.abs(t)) <= level
    more = sure & (found.log_ratio > 0) & (found.log_ratio >= bounds.high)
    less = sure & (found.log_ratio < 0) & (found.log_ratio <= bounds.low)
    return (more, less) if bounds.better > 0 else (less, more)


def _same(found: Estimate, level: float, bounds: Bounds) -> np.ndarray:
    from scipy.special import stdtrit

    half_width = np.abs(stdtrit(found.df, level)) * found.error  # far beyond any sense, stdtrit turns its sign
    return (found.log_ratio + half_width < bounds.high) & (found.log_ratio - half_width > bounds.low)


def _hopeless(found: Estimate, done: int, level: float, bounds: Bounds) -> np.ndarray:
    """Whether neither a difference nor its absence is likely to be shown at the last look.

    The estimate there is predicted from what was seen (Spiegelhalter, Freedman & Blackburn, *Control. Clin. Trials* 7,
    1986): around the present one, with a variance of 1 / information now - 1 / information then; information grows with
    the passes. The bounds are those of the normal distribution, which is optimistic.
    """
    from scipy.special import ndtri, stdtr

    then = found.error_apart * np.sqrt(done / bounds.last)
    spread = np.sqrt(found.error_apart**2 - then**2)
    spread = np.maximum(spread, np.finfo(float).tiny)

    def above(limit: np.ndarray) -> np.ndarray:
        return stdtr(found.df_apart, (found.log_ratio - limit) / spread)

    reach = -ndtri(level / 2) * then
    margin = -ndtri(bounds.alpha / 2) * then
    high, low = np.maximum(bounds.high, reach), np.minimum(bounds.low, -reach)
    inside = np.maximum(above(bounds.low + margin) - above(bounds.high - margin), 0.0)
    return above(high) + 1 - above(low) + inside < HOPELESS
