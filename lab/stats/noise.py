"""What a machine's launches differ by when nothing is changed, and what a campaign on it can tell.

Without it a rule asks for 3 % on a machine whose identical launches differ by 5 %, and every lever stays inconclusive.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from lab.stats.compare import compare, percent
from lab.stats.design import design
from lab.stats.looks import ADOPT, LABELS, Bounds, ending
from lab.stats.spread import estimate

PASSES = range(2, 13)
POWER = 0.8
CAMPAIGNS = 2_000
MOST_SIMULATED = 16
"""Beyond so many passes the gain is taken to fall with their square root, as its standard error does."""
UNIT = 1e6
"""Simulated launches scatter by this little of a unit, so that no gain is beyond what a log ratio may be."""


@dataclass(frozen=True)
class Noise:
    """Spread of identical launches; None is unknown.

    launch_cv_pct: from launch to launch, drift taken out; window_cv_pct: from window to window inside a launch;
    drift_pct: over the run; launches: how many it rests on; resolved_pct: by the most passes, the smallest true gain
    that the sequential rule adopts four times in five.
    """

    launch_cv_pct: float | None
    window_cv_pct: float | None
    drift_pct: float | None
    launches: int
    resolved_pct: Mapping[int, float | None]


def noise(
    launches: Sequence[Mapping[str, Any]],
    control: str,
    again: str,
    repeats: Sequence[tuple[float, float]],
    alpha: float,
) -> Noise:
    """Of launches of one arm under two names (one row each, as for `compare`); repeats: two windows of one launch."""
    import pandas

    found = compare(pandas.DataFrame(launches), control, again, alpha)
    ratios = np.array([math.log(one / two) for one, two in repeats])
    window = math.sqrt(float(np.mean(ratios**2)) / 2) if len(ratios) else None
    spread = found.residual_cv_pct
    return Noise(
        launch_cv_pct=spread,
        window_cv_pct=None if window is None else 100 * math.sqrt(math.expm1(window**2)),
        drift_pct=found.drift_pct,
        launches=found.launches,
        resolved_pct={passes: None if spread is None else resolved_pct(spread, passes, alpha) for passes in PASSES},
    )


def resolved_pct(launch_cv_pct: float, passes: int, alpha: float) -> float | None:
    """The smallest true gain that the sequential rule adopts with `POWER` in at most so many passes; None for one."""
    if passes < 2:
        return None
    spread = math.sqrt(math.log1p((launch_cv_pct / 100) ** 2))
    simulated = min(passes, MOST_SIMULATED)
    return percent(_resolved_spreads(simulated, alpha) * math.sqrt(simulated / passes) * spread)


@cache
def _resolved_spreads(passes: int, alpha: float) -> float:
    """That gain as a log ratio in launch spreads, from simulated campaigns of one lever between controls."""
    from scipy.optimize import bisect

    arms = np.array(["control", "lever"] * passes + ["control"], dtype=object)
    looks = list(range(2, passes + 1))
    models = [design(arms[: 2 * done + 1], np.linspace(0, 1, 2 * done + 1), "control", "lever") for done in looks]
    values = np.random.default_rng(1).standard_normal((CAMPAIGNS, len(arms))) / UNIT
    bounds = Bounds(last=passes, alpha=alpha, low=0.0, high=0.0, better=1)

    def lacking(gain: float) -> float:
        raised = values + (arms == "lever") * gain / UNIT
        found = [estimate(model, raised[:, : 2 * done + 1]) for model, done in zip(models, looks, strict=True)]
        return float(np.mean(ending(looks, found, bounds).label == LABELS.index(ADOPT))) - POWER

    most = 1.0
    while lacking(most) < 0:
        most *= 2
    return float(bisect(lacking, most / 2 if most > 1 else 0.0, most, xtol=0.02))
