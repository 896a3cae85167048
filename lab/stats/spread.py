"""How far launches of one arm scatter, and with it how far a log ratio may be off.

Without it a treatment whose launches scatter five times as much as its control's borrows the control's calm, and three
lucky launches pass for an effect. Everything is vectorised over campaigns: `values` is [..., launches].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lab.stats.design import Design, Group

DISAGREE_LEVEL = 0.1
"""Spreads are pooled unless a two-sided F test at this level tells them apart."""
CAUTION, CAUTION_BESIDE_MANY = 0.85, 0.96
"""Level of the one-sided bounds on the ratio of two spreads within which the degrees of freedom are the least; the
second where all other arms together know their spread `MANY` times better than the treatment does its own, since their
certainty must not pass for the treatment's."""
MANY = 2.5
ROUND_OFF = 1e-12
"""Smaller log ratios are arithmetic: launches all alike would differ by nothing, surely."""


@dataclass(frozen=True)
class Estimate:
    """The log ratio of treatment and control for each campaign, arrays of one shape.

    error, df: standard error and degrees of freedom, from the spread of all arms pooled where the spreads agree, per
    arm otherwise; error_apart, df_apart: per arm in any case, with the fewest degrees of freedom that the ratio of the
    spreads may mean (`CAUTION`); variance: that of one launch, pooled.
    """

    log_ratio: np.ndarray
    error: np.ndarray
    df: np.ndarray
    error_apart: np.ndarray
    df_apart: np.ndarray
    variance: np.ndarray


def estimate(model: Design, values: np.ndarray) -> Estimate:
    """Estimate every campaign of `values` (log scale) under one design with at least one residual degree of freedom.

    Per arm: variances from the arm's own residuals, Satterthwaite's degrees of freedom (*Biometrics Bulletin* 2, 1946).
    Those assume that the ratio of the variances is as estimated, and promise too much after few launches: `df_apart`
    takes the least within the one-sided F bounds on that ratio. Arms without residuals of their own take the pooled
    variance.
    """
    log_ratio, residuals = _exact(values @ model.weights), _exact(values @ model.residual_maker)
    pooled = (residuals**2).sum(-1) / model.df
    total = float(model.weights @ model.weights)
    treatment, rest, rest_df, rest_weighted = _sides(model, residuals, pooled)
    mine = model.treatment.weight * treatment
    apart = np.sqrt(mine + rest_weighted)
    own_df = model.treatment.df
    df = np.full(pooled.shape, float(model.df))
    if not own_df:
        error = np.sqrt(pooled * total)
        return Estimate(log_ratio, error, df, error, df, pooled)
    from scipy.special import fdtri

    plain = _satterthwaite(mine, rest_weighted, own_df, rest_df)
    level = np.where(rest_df > MANY * own_df + 1e-6, CAUTION_BESIDE_MANY, CAUTION)
    more, less = fdtri(rest_df, own_df, level), fdtri(own_df, rest_df, level)
    least = np.minimum(
        _satterthwaite(mine * more, rest_weighted, own_df, rest_df),
        _satterthwaite(mine, rest_weighted * less, own_df, rest_df),
    )
    agree = _agree(treatment, rest, own_df, rest_df)
    return Estimate(
        log_ratio,
        np.where(agree, np.sqrt(pooled * total), apart),
        np.where(agree, df, plain),
        apart,
        np.minimum(plain, least),
        pooled,
    )


def _exact(values: np.ndarray) -> np.ndarray:
    """The values, with 0 for what is only rounding."""
    return np.where(np.abs(values) < ROUND_OFF, 0.0, values)


def _sides(
    model: Design, residuals: np.ndarray, pooled: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Variance of the treatment's launches; of the control's, with the other arms' where they agree; the latter's
    degrees of freedom; and its part of the contrast's variance."""
    treatment = _variance(model.treatment, residuals, pooled)
    control, others = _variance(model.control, residuals, pooled), _variance(model.others, residuals, pooled)
    one, two = model.control, model.others
    alone = np.full(pooled.shape, one.df or float(model.df))
    if not two.df:
        return treatment, control, alone, (one.weight + two.weight) * control
    both = (control * one.trace + others * two.trace) / (one.trace + two.trace)
    agree = _agree(control, others, one.df, two.df) if one.df else np.ones(pooled.shape, bool)
    rest = np.where(agree, both, control)
    df = np.where(agree, one.df + two.df, alone)
    return (
        treatment,
        rest,
        df,
        np.where(agree, (one.weight + two.weight) * both, one.weight * control + two.weight * others),
    )


def _variance(group: Group, residuals: np.ndarray, pooled: np.ndarray) -> np.ndarray:
    return (residuals[..., group.index] ** 2).sum(-1) / group.trace if group.df else pooled


def _agree(one: np.ndarray, two: np.ndarray, df_one: float, df_two: np.ndarray | float) -> np.ndarray:
    """Whether an F test does not tell two variances apart."""
    from scipy.special import fdtr

    with np.errstate(divide="ignore", invalid="ignore"):
        below = fdtr(df_one, df_two, np.where(two > 0, one / two, np.where(one > 0, np.inf, 1.0)))
    return 2 * np.minimum(below, 1 - below) >= DISAGREE_LEVEL


def _satterthwaite(one: np.ndarray, two: np.ndarray, df_one: float, df_two: np.ndarray | float) -> np.ndarray:
    """Degrees of freedom of a sum of two independent variance estimates; of two that are 0 as of two alike."""
    largest = np.maximum(one, two)
    one, two = (np.where(largest > 0, part / np.where(largest > 0, largest, 1.0), 1.0) for part in (one, two))
    return (one + two) ** 2 / (one**2 / df_one + two**2 / df_two)
