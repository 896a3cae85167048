"""The effect of a treatment on a metric, from one value per launch.

Without it, two trials of one server would count as two observations, a machine that warms up would
look like a lever, and "+3 %" would be printed where the launches alone differ by 5 %.

The model is ordinary least squares on launches:

    log(value) = level of the arm + drift(position) + noise,   noise independent, equal spread in all arms

* The **launch** is the unit: everything inside one server lifetime shares its memory layout, its clocks,
  its tuning.
* **Logarithms** make effects ratios, so that a lever and a drifting machine multiply instead of add.
* **Drift** is piecewise linear and continuous, with its knots at control launches, so that a treatment is
  set against the controls around it. With few launches the knots are thinned out, evenly, to the largest
  number that leaves `FULL_DF` residual degrees of freedom; a straight line stays as long as there are two
  controls, since the plan promises that adjustment. Only counts decide this, never the values: choosing the
  drift by how well it fits would make the interval too narrow.
* **All arms** in the frame take part. Their levels are their own; drift and spread are common. That is what
  makes two passes enough, and its price: in a campaign of several levers, where one treatment's launches
  scatter twice as much as the rest, its 95 % interval covers 85 to 90 %.

The interval is the t interval of the treatment-minus-control contrast (Draper & Smith, *Applied Regression
Analysis*), taken back through exp.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("order", "started_s", "arm", "value")
FULL_DF = 4  # below this the t quantile grows so fast (12.7 at 1) that a finer drift costs more than it saves
LARGEST_LOG_RATIO = 700.0  # exp stays finite, so that a boundless interval can still be written as JSON


@dataclass(frozen=True)
class Effect:
    """What `compare` found; None is unknown, never zero.

    effect_pct      treatment against control in percent: 100 * (ratio - 1)
    ci_low_pct      lower and
    ci_high_pct     upper end of the 1 - alpha interval; None while df is 0
    p_value         two-sided, for "no effect"; None while df is 0
    df              residual degrees of freedom; None if an arm is absent
    residual_cv_pct launch-to-launch spread of all arms pooled, a coefficient of variation in percent
    drift_pct       range of the fitted drift over the run in percent, negative when the low comes last; it
                    holds the noise of the launches at its knots; None without two controls
    launches        control and treatment launches used
    """

    effect_pct: float | None
    ci_low_pct: float | None
    ci_high_pct: float | None
    p_value: float | None
    df: int | None
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
    _check(launches, control, treatment, alpha)
    rows = launches.sort_values("order", kind="stable")
    arms = rows["arm"].to_numpy(dtype=object)
    used = int(np.sum((arms == control) | (arms == treatment)))
    if not (np.any(arms == control) and np.any(arms == treatment)):
        return Effect(None, None, None, None, None, None, None, launches=used)

    position = _position(_numbers(rows["order"]), _numbers(rows["started_s"]))
    design, contrast, drift = design_matrix(arms, position, control, treatment)
    log_value = np.log(_numbers(rows["value"]))

    orthogonal, triangle = np.linalg.qr(design)
    coefficients = np.linalg.solve(triangle, orthogonal.T @ log_value)
    log_ratio = float(contrast @ coefficients)
    residuals = log_value - design @ coefficients
    df = len(log_value) - design.shape[1]
    drift_pct = _drift_pct(drift @ coefficients[-drift.shape[1] :]) if drift.shape[1] else None
    if df == 0:
        return Effect(_percent(log_ratio), None, None, None, 0, None, drift_pct, used)

    variance = float(residuals @ residuals) / df
    error = math.sqrt(variance) * contrast_error(triangle, contrast)
    half_width = t_quantile(1 - alpha / 2, df) * error
    return Effect(
        effect_pct=_percent(log_ratio),
        ci_low_pct=_percent(log_ratio - half_width),
        ci_high_pct=_percent(log_ratio + half_width),
        p_value=_p_value(log_ratio, error, df),
        df=df,
        residual_cv_pct=100 * math.sqrt(math.expm1(min(variance, LARGEST_LOG_RATIO))),
        drift_pct=drift_pct,
        launches=used,
    )


def design_matrix(
    arms: np.ndarray, position: np.ndarray, control: str, treatment: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The model as a regression: design [launch, parameter], contrast [parameter], drift [launch, k].

    The design's last k columns are the drift; k is 0 with fewer than two controls at different positions.
    `position` is in [0, 1].
    """
    names = sorted(set(arms))
    levels = (arms[:, None] == np.array(names, dtype=object)[None, :]).astype(float)
    drift = _hinges(position, _knots(np.unique(position[arms == control]), len(arms) - len(names)))
    contrast = np.zeros(len(names) + drift.shape[1])
    contrast[names.index(treatment)] = 1.0
    contrast[names.index(control)] = -1.0
    return np.hstack([levels, drift]), contrast, drift


def contrast_error(triangle: np.ndarray, contrast: np.ndarray) -> float:
    """Standard error of a contrast per unit of noise, from the R of the design's QR: sqrt(c' (X'X)^-1 c)."""
    return float(np.linalg.norm(np.linalg.solve(triangle.T, contrast)))


def t_quantile(probability: float, df: float) -> float:
    """Quantile of Student's t."""
    from scipy.special import stdtrit

    return float(stdtrit(df, probability))


def _check(launches: pd.DataFrame, control: str, treatment: str, alpha: float) -> None:
    missing = [name for name in COLUMNS if name not in launches.columns]
    if missing:
        raise ValueError(f"launches lack the column {missing[0]!r}")
    if control == treatment:
        raise ValueError(f"control and treatment are both {control!r}")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is {alpha}, outside (0, 1)")
    for label, value in zip(launches.index, _numbers(launches["value"]), strict=True):
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"launches row {label}: value is {value}, not a positive finite number")


def _numbers(column: pd.Series) -> np.ndarray:
    """The column as floats, with NaN for everything missing."""
    return column.to_numpy(dtype=float, na_value=np.nan)


def _position(order: np.ndarray, started_s: np.ndarray) -> np.ndarray:
    """Place of each launch in the run, 0 for the first and 1 for the last."""
    timed = np.all(np.isfinite(started_s)) and np.all(np.diff(started_s) > 0)
    axis = started_s if timed else order
    span = axis[-1] - axis[0]
    return (axis - axis[0]) / span if span > 0 else np.zeros_like(axis)


def _knots(controls: np.ndarray, spare: int) -> np.ndarray:
    """The control positions that bear the drift, given `spare` = launches minus arms; [] for no drift."""
    if len(controls) < 2:
        return controls[:0]
    count = min(len(controls), max(2, spare - FULL_DF + 1))
    return controls[np.linspace(0, len(controls) - 1, count).round().astype(int)]


def _hinges(position: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """Columns that span the continuous piecewise-linear functions with these knots, less the constant.

    The first and last piece extend beyond the outer knots, so a treatment outside its controls is
    extrapolated.
    """
    if len(knots) == 0:
        return np.empty((len(position), 0))
    bends = np.maximum(0.0, position[:, None] - knots[None, 1:-1])
    return np.hstack([position[:, None], bends])


def _drift_pct(drift: np.ndarray) -> float:
    """Ratio of the drift's extremes, the later to the earlier, in percent."""
    lowest, highest = int(np.argmin(drift)), int(np.argmax(drift))
    height = float(drift[highest] - drift[lowest])
    return _percent(height if highest >= lowest else -height)


def _p_value(log_ratio: float, error: float, df: int) -> float:
    from scipy.special import stdtr

    if error == 0:
        return 1.0 if log_ratio == 0 else 0.0
    return float(2 * stdtr(df, -abs(log_ratio) / error))


def _percent(log_ratio: float) -> float:
    return 100 * math.expm1(min(log_ratio, LARGEST_LOG_RATIO))
