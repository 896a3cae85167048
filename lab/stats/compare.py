"""The effect of a treatment on a metric, from one value per launch.

Without it, two trials of one server would count as two observations, a machine that warms up would look like a lever,
and "+3 %" would be printed where the launches alone differ by 5 %.

* The **launch** is the unit: everything inside one server lifetime shares its memory layout, its clocks, its tuning.
* **Logarithms** make effects ratios, so that a lever and a drifting machine multiply instead of add.
* **All arms** in the frame take part: they show the drift and, where their spread agrees, the spread. See
  `lab.stats.design` and `lab.stats.spread`.

The interval is the t interval of the treatment-minus-control contrast (Draper & Smith, *Applied Regression Analysis*),
taken back through exp. It is for one look; `lab.stats.sequential` judges pass by pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lab.stats.design import Design, design, positions
from lab.stats.spread import estimate

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("order", "started_s", "arm", "value")
LARGEST_LOG_RATIO = 700.0  # exp stays finite, so that a boundless interval can still be written as JSON


@dataclass(frozen=True)
class Effect:
    """What `compare` found; None is unknown, never zero.

    effect_pct      treatment against control in percent: 100 * (ratio - 1)
    ci_low_pct      lower and
    ci_high_pct     upper end of the 1 - alpha interval; None while df is 0
    p_value         two-sided, for "no effect"; None while df is 0
    df              residual degrees of freedom, with a fraction where arms differ in spread; None if an arm is absent
    residual_cv_pct launch-to-launch spread of all arms pooled, a coefficient of variation in percent
    drift_pct       range of the fitted drift over the run in percent, negative when the low comes last; it
                    holds the noise of the launches at its knots; None without two controls
    launches        control and treatment launches used
    """

    effect_pct: float | None
    ci_low_pct: float | None
    ci_high_pct: float | None
    p_value: float | None
    df: float | None
    residual_cv_pct: float | None
    drift_pct: float | None
    launches: int


def compare(launches: pd.DataFrame, control: str, treatment: str, alpha: float = 0.05) -> Effect:
    """Estimate the treatment's effect against the control.

    `launches` holds one row per valid launch: order (int, global), started_s (seconds), arm (str), value
    (positive); other columns are ignored and rows may come in any order. Position is `started_s` when it is
    finite everywhere and rises with `order` (a monotonic clock starts again after a reboot), else `order`.

    Absent launches simply have no row. If the control or the treatment has none, every figure but `launches`
    is None. With no degrees of freedom left (a screening) the effect is an estimate without interval.

    Raises ValueError: a column is missing, a value is not a positive finite number (the row is named), the
    two arms are the same, or alpha is outside (0, 1).
    """
    check(launches, control, treatment, alpha)
    rows = launches.sort_values("order", kind="stable")
    arms = rows["arm"].to_numpy(dtype=object)
    used = int(np.sum((arms == control) | (arms == treatment)))
    if not (np.any(arms == control) and np.any(arms == treatment)):
        return Effect(None, None, None, None, None, None, None, launches=used)
    model = design(arms, positions(numbers(rows["order"]), numbers(rows["started_s"])), control, treatment)
    log_values = np.log(numbers(rows["value"]))
    drift_pct = _drift_pct(model, log_values)
    if model.df == 0:
        return Effect(percent(float(log_values @ model.weights)), None, None, None, 0, None, drift_pct, used)
    found = estimate(model, log_values)
    log_ratio, error, df = float(found.log_ratio), float(found.error), float(found.df)
    half_width = t_quantile(1 - alpha / 2, df) * error
    return Effect(
        effect_pct=percent(log_ratio),
        ci_low_pct=percent(log_ratio - half_width),
        ci_high_pct=percent(log_ratio + half_width),
        p_value=p_value(log_ratio, error, df),
        df=df,
        residual_cv_pct=100 * math.sqrt(math.expm1(min(float(found.variance), LARGEST_LOG_RATIO))),
        drift_pct=drift_pct,
        launches=used,
    )


def t_quantile(probability: float, df: float) -> float:
    """Quantile of Student's t."""
    from scipy.special import stdtrit

    return float(stdtrit(df, probability))


def percent(log_ratio: float) -> float:
    """A log ratio as a change in percent."""
    return 100 * math.expm1(min(log_ratio, LARGEST_LOG_RATIO))


def numbers(column: pd.Series) -> np.ndarray:
    """The column as floats, with NaN for everything missing."""
    return column.to_numpy(dtype=float, na_value=np.nan)


def check(launches: pd.DataFrame, control: str, treatment: str, alpha: float) -> None:
    """Raise ValueError for what `compare` cannot take."""
    missing = [name for name in COLUMNS if name not in launches.columns]
    if missing:
        raise ValueError(f"launches lack the column {missing[0]!r}")
    if control == treatment:
        raise ValueError(f"control and treatment are both {control!r}")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is {alpha}, outside (0, 1)")
    for label, value in zip(launches.index, numbers(launches["value"]), strict=True):
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"launches row {label}: value is {value}, not a positive finite number")


def _drift_pct(model: Design, log_values: np.ndarray) -> float | None:
    """Ratio of the drift's extremes, the later to the earlier, in percent."""
    if model.drift_maker is None:
        return None
    drift = log_values @ model.drift_maker
    lowest, highest = int(np.argmin(drift)), int(np.argmax(drift))
    height = float(drift[highest] - drift[lowest])
    return percent(height if highest >= lowest else -height)


def p_value(log_ratio: float, error: float, df: float) -> float:
    """Two-sided, that a log ratio with this standard error is no effect."""
    from scipy.special import stdtr

    if error == 0:
        return 1.0 if log_ratio == 0 else 0.0
    return float(2 * stdtr(df, -abs(log_ratio) / error))
