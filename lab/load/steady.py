"""Was the server in one state during the window, or did it move?

Without this judgement the mean of a window in which the server slowed down describes no state it was ever in, and a
warm-up that was too short reads as an effect of the lever.

Pure: the same token arrivals give the same answer. The window is never chosen, and the answer depends neither on the
level of the throughput nor on the time of day: token counts times a constant, or shifted times, change nothing.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

FOUND, DRIFTING, TOO_SHORT = "found", "drifting", "too-short"
# A trend is real at this p-value and matters from this end-to-end change on (contract, section 7). A false one costs a
# launch. Simulated clean windows, 20,000 of each kind, were called drifting: 0.01 % with white noise of 3 or 10 %,
# none with steps of a whole batch and pauses for prompts over 6 s, 0.01 % with step times that vary by 10 % for seconds
# over 60 s, 0.2 % (12 bins) and 0.3 % (30 bins) with noise of 5 % and an autocorrelation of 0.5 between bins. A linear
# slow-down of 15 % over 60 s is found in all windows with 1 % of noise per 5 s, and in 93 % with 2 %.
TREND_P = 2e-4
TREND_PCT = 5.0
# A staircase or a ramp that levels off is correlated around a straight line, so the correction hides it. It counts when
# it is surer still without correction, and many times what remains around the best monotone line.
PLAIN_P = 1e-5
RESIDUALS = 8.0
# A step is seen by its size, since a rank test of 20 bins cannot be surer of one than 4e-4 when they split 10 to 10. It
# has three bins or more on either side, and at least TREND_PCT of the mean between its levels. It stands out from what
# remains around them by STEP_RESIDUALS + STEP_RESIDUALS_OF_FEW / bins standard deviations (10 with 12 bins, 7.6 with
# 20, 6.4 with 30, 5.2 with 60): few bins, and noise that lasts, make levels by chance. Of 100,000 simulated clean
# windows of each kind it finds none with white noise of up to 10 %, 0.002 % at most with steps of a whole batch over
# 6 s, and with noise of 5 % and an autocorrelation of 0.5 between bins 0.01 % (12 bins) or less. With 1 % of noise it
# finds every step of 30 % that leaves three whole bins on either side.
STEP_SIDE = 3
STEP_RESIDUALS, STEP_RESIDUALS_OF_FEW = 4.0, 72.0
# It is also more than one token of the whole batch more or less in each bin, as a slow server may have for seconds.
BATCH_STEP_S = 0.125
# The throughput is known to a burst of tokens more or less, evenly between: with fewer bursts than this in a window its
# standard deviation is above 3.6 % of the whole from that alone, which is no measurement.
BURST_MOST = 1 / 8
# A sum of squares below this, in units of the level, is rounding.
ROUNDING = 1e-14
# A window of exactly the length asked for is a difference of two clock readings, and may come out a trifle shorter.
CLOCK_ROUNDING = 1e-6
# The estimate of the autocorrelation is held below this: at 1 the effective number of bins would be zero.
CORRELATION_MOST = 0.95


@dataclass(frozen=True)
class Trend:
    """change_pct: end to end over the series, in percent of its median (Theil–Sen slope). p_value: two-sided, corrected
    for autocorrelation; plain_p_value: not corrected. residual_pct: standard deviation around the best monotone line.
    """

    change_pct: float
    p_value: float
    plain_p_value: float
    residual_pct: float

    @property
    def moves(self) -> bool:
        """Significant and large enough to matter."""
        size = abs(self.change_pct)
        sure = self.p_value <= TREND_P
        plain = self.plain_p_value <= PLAIN_P and size >= RESIDUALS * self.residual_pct
        return size >= TREND_PCT and (sure or plain)


@dataclass(frozen=True)
class Step:
    """The best two levels of a series, in its unit. position: the bin between them, which belongs to neither.
    residual: standard deviation around them.
    """

    before: float
    after: float
    position: int
    residual: float


@dataclass(frozen=True)
class Steady:
    """outcome: `found`, `drifting` or `too-short`, with a reason; the figures are those of the trend, also where the
    reason is a step, and None where there is no series. burst_pct: what one burst brings of the window's tokens.
    """

    outcome: str
    reason: str
    seconds: float
    bins: int
    trend_pct: float | None = None
    p_value: float | None = None
    cv_pct: float | None = None
    burst_pct: float | None = None

    def record(self) -> dict[str, Any]:
        """As it stands in trial.json."""
        return asdict(self)


def steadiness(
    bins_tok_s: np.ndarray | None, seconds: float, min_steady_seconds: float, burst_share: float = 0.0
) -> Steady:
    """Judge equal time bins of a window of `seconds`; the bins hold tokens per second (any constant factor will do);
    `burst_share` of all tokens arrive in one instant. A window of too few bursts is too short to tell.

    Raises ValueError without token counts: steadiness of an unknown throughput is not guessed.
    """
    bins = np.asarray(bins_tok_s if bins_tok_s is not None else [], dtype=np.float64)
    if not len(bins) or np.isnan(bins).any():
        raise ValueError("steadiness needs a token count for every bin of the window")
    if seconds < min_steady_seconds * (1 - CLOCK_ROUNDING):
        reason = f"the window of {seconds:g} s is shorter than the {min_steady_seconds:g} s asked for"
        return Steady(TOO_SHORT, reason, seconds, len(bins))
    if not bins.any():
        return Steady(TOO_SHORT, "no token arrived in the window", seconds, len(bins))
    judged = _judged(bins, seconds)
    if judged.outcome == FOUND and burst_share > BURST_MOST:
        longer_s = seconds * burst_share / BURST_MOST
        reason = (
            f"tokens arrive in bursts of {burst_share:.0%} of all in the window: the throughput may be off by as much; "
            f"{longer_s:.0f} s would bring it below {BURST_MOST:.0%}"
        )
        judged = replace(judged, outcome=TOO_SHORT, reason=reason)
    return replace(judged, burst_pct=100 * burst_share)


def _judged(bins: np.ndarray, seconds: float) -> Steady:
    """Whether there is a trend or a step."""
    found = trend(bins)
    cv_pct = 100 * float(bins.std(ddof=1) / bins.mean())
    over = f"over {len(bins)} bins of {seconds / len(bins):.3g} s"
    stepped = step(bins)
    if stepped and _stands_out(stepped, bins, seconds):
        moved_pct = 100 * (stepped.after / stepped.before - 1) if stepped.before else math.inf
        reason = (
            f"throughput made a step from {stepped.before:.4g} to {stepped.after:.4g} tok/s ({moved_pct:+.1f} %) about "
            f"{(stepped.position + 0.5) / len(bins) * seconds:.3g} s into the window, {over}"
        )
        return Steady(DRIFTING, reason, seconds, len(bins), found.change_pct, found.p_value, cv_pct)
    if found.moves:
        reason = f"throughput moved by {found.change_pct:+.1f} % {over} (p = {found.p_value:.2g})"
        return Steady(DRIFTING, reason, seconds, len(bins), found.change_pct, found.p_value, cv_pct)
    reason = f"no trend {over} ({found.change_pct:+.1f} %, p = {found.p_value:.2g})"
    return Steady(FOUND, reason, seconds, len(bins), found.change_pct, found.p_value, cv_pct)


def step(values: np.ndarray) -> Step | None:
    """The two levels, and the bin between them, that leave the least squares; None with fewer than seven values.

    What remains is robust against one pause (the worst bin of the longer side is left out), and not against an end of
    the series that is no level: it is never less than the scatter of the shorter side alone.
    """
    places = range(STEP_SIDE, len(values) - STEP_SIDE)
    if not places:
        return None
    place = min(places, key=lambda place: _squares(values[:place]).sum() + _squares(values[place + 1 :]).sum())
    sides = values[:place], values[place + 1 :]
    short, long = sorted((_squares(side) for side in sides), key=len)
    # Two means, the bin between them and the one left out cost a degree of freedom each.
    all_but_worst = (short.sum() + np.sort(long)[:-1].sum()) / (len(values) - 4)
    residual = math.sqrt(max(all_but_worst, short.sum() / (len(short) - 1)))
    return Step(float(sides[0].mean()), float(sides[1].mean()), place, residual)


def _squares(values: np.ndarray) -> np.ndarray:
    return (values - values.mean()) ** 2


def _stands_out(stepped: Step, bins: np.ndarray, seconds: float) -> bool:
    """Whether a step is large enough to matter, and no product of noise or of the few batches in a bin."""
    size = abs(stepped.after - stepped.before)
    least = max(TREND_PCT / 100, BATCH_STEP_S * len(bins) / seconds)
    sure = STEP_RESIDUALS + STEP_RESIDUALS_OF_FEW / len(bins)
    return size >= least * bins.mean() and size >= sure * stepped.residual


def trend(values: np.ndarray) -> Trend:
    """The Mann–Kendall test of a series of eight or more, with the Theil–Sen slope.

    The statistic is weakened for autocorrelation by the effective sample size of a first-order process (S. Yue and
    C. Wang, *The Mann-Kendall test modified by effective sample size to detect trend in serially correlated
    hydrological series*, Water Resources Management 18 (2004) 201-218). The correction of K. H. Hamed and A. R. Rao
    (Journal of Hydrology 204 (1998) 182-196) uses significant autocorrelations only; over so few bins these are seldom
    significant, and noise of 5 % that lasts two bins was called a trend five times as often.
    """
    from scipy import stats

    size = len(values)
    positions = np.arange(size)
    level = abs(float(np.median(values))) or abs(float(values.mean()))
    if not level or np.ptp(values) == 0:
        return Trend(0.0, 1.0, 1.0, 0.0)
    # To a billionth of the level: what is smaller is rounding, and would break ties.
    values = np.round(values / level, 9)
    first, second = np.triu_indices(size, 1)
    slope = float(np.median((values[second] - values[first]) / (second - first)))
    plain = float(stats.kendalltau(positions, values).pvalue)
    inflation = _variance_inflation(values - slope * positions)
    p_value = float(2 * stats.norm.sf(stats.norm.isf(plain / 2) / math.sqrt(inflation)))
    return Trend(100 * slope * (size - 1), p_value, plain, 100 * _residual(values))


def _residual(values: np.ndarray) -> float:
    """The standard deviation around the better of the best rising and the best falling line."""
    from scipy import optimize

    squares = [((side - optimize.isotonic_regression(side).x) ** 2).sum() for side in (values, -values)]
    return math.sqrt(min(squares) / (len(values) - 1))


def _variance_inflation(detrended: np.ndarray) -> float:
    """The number of values over the effective number, from the detrended series; at least 1.

    The lag-one autocorrelation r of a series whose mean and trend were taken out is low by (2 + 4 r) / n on average
    (N. P. A. van Giersbergen, Economics Letters 89 (2005) 75-82), so (n r + 2) / (n - 4) stands for it. A negative one
    counts as none: steps of a whole batch that fall into one bin or the next do not make a trend surer.
    """
    size = len(detrended)
    centred = detrended - detrended.mean()
    power = float(centred @ centred)
    if power < ROUNDING:
        return 1.0
    measured = float(centred[1:] @ centred[:-1]) / power
    correlation = min(CORRELATION_MOST, max(0.0, (size * measured + 2) / (size - 4)))
    lags = np.arange(1, size)
    return 1 + 2 * float(((1 - lags / size) * correlation**lags).sum())
