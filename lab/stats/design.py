"""The model of a campaign as a regression: which launch says how much about which arm, and about the drift.

Without one design for the estimate, its spread and the plan of further passes, each would adjust for a drifting machine
in its own way.

    log(value) = level of the arm + drift(position) + noise

Drift is piecewise linear and continuous, with its knots at control launches, so that a treatment is set against the
controls around it: a straight line in a small campaign, a bend for every `LAUNCHES_PER_KNOT` launches in a larger one,
the first after twice as many. Only counts decide this, never the values: choosing the drift by how well it fits would
make the interval too narrow. A bend that the line does not follow widens the interval, since treatments alternate with
controls.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LAUNCHES_PER_KNOT = 8


@dataclass(frozen=True)
class Group:
    """Launches that share one spread: `index` into the launches, `trace` of the residual maker's block (what their
    squared residuals add up to, per unit of variance), `df` of that sum (Satterthwaite's), `weight` their part of the
    contrast's variance."""

    index: np.ndarray
    trace: float
    df: float
    weight: float


@dataclass(frozen=True)
class Design:
    """Arms and positions of n launches, worked out for one contrast, treatment minus control.

    weights [n]: the log ratio is `values @ weights`; residual_maker [n, n]: residuals are `values @ residual_maker`;
    df: degrees of freedom of all residuals; drift_maker [n, n] or None: `values @ drift_maker` is the fitted drift;
    groups: treatment, control, all other arms.
    """

    weights: np.ndarray
    residual_maker: np.ndarray
    df: int
    drift_maker: np.ndarray | None
    treatment: Group
    control: Group
    others: Group


def design(arms: np.ndarray, position: np.ndarray, control: str, treatment: str) -> Design:
    """Work out the model for launches in order; `position` in [0, 1], both arms present."""
    names = sorted(set(arms))
    levels = (arms[:, None] == np.array(names, dtype=object)[None, :]).astype(float)
    hinges = _hinges(position, _knots(np.unique(position[arms == control]), len(arms) - len(names)))
    matrix = np.hstack([levels, hinges])
    solver = np.linalg.pinv(matrix)
    contrast = np.zeros(matrix.shape[1])
    contrast[names.index(treatment)], contrast[names.index(control)] = 1.0, -1.0
    weights = contrast @ solver
    residual_maker = np.eye(len(arms)) - matrix @ solver
    chosen = [np.flatnonzero(arms == name) for name in (treatment, control)]
    others = np.flatnonzero((arms != treatment) & (arms != control))
    groups = [_group(index, weights, residual_maker) for index in (*chosen, others)]
    drift_maker = solver[-hinges.shape[1] :].T @ hinges.T if hinges.shape[1] else None
    return Design(weights, residual_maker, len(arms) - matrix.shape[1], drift_maker, *groups)


def positions(order: np.ndarray, started_s: np.ndarray) -> np.ndarray:
    """Place of each launch in the run, 0 for the first and 1 for the last: by time where all starts are known and rise
    (a monotonic clock starts again after a reboot), else by order."""
    timed = np.all(np.isfinite(started_s)) and np.all(np.diff(started_s) > 0)
    axis = started_s if timed else order
    span = axis[-1] - axis[0]
    return (axis - axis[0]) / span if span > 0 else np.zeros(len(axis))


def error_per_spread(model: Design) -> float:
    """Standard error of the log ratio for launches that scatter by 1 (log scale), all arms alike."""
    return float(np.linalg.norm(model.weights))


def _group(index: np.ndarray, weights: np.ndarray, residual_maker: np.ndarray) -> Group:
    block = residual_maker[np.ix_(index, index)]
    trace, squares = float(np.trace(block)), float((block**2).sum())
    return Group(index, trace, trace**2 / squares if trace > 1e-9 else 0.0, float((weights[index] ** 2).sum()))


def _knots(controls: np.ndarray, spare: int) -> np.ndarray:
    """The control positions that bear the drift, given `spare` = launches minus arms; [] for no drift."""
    if len(controls) < 2:
        return controls[:0]
    count = min(len(controls), max(2, 1 + spare // LAUNCHES_PER_KNOT))
    return controls[np.linspace(0, len(controls) - 1, count).round().astype(int)]


def _hinges(position: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """Columns that span the continuous piecewise-linear functions with these knots, less the constant.

    The first and last piece extend beyond the outer knots, so a treatment outside its controls is extrapolated.
    """
    if len(knots) == 0:
        return np.empty((len(position), 0))
    bends = np.maximum(0.0, position[:, None] - knots[None, 1:-1])
    return np.hstack([position[:, None], bends])
