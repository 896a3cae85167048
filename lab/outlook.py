"""What the next pass of a run is, what it costs, and what the passes that are left can still tell.

Without it nobody sees until the end of the night that the machine scatters too much for what the rule asks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lab.campaign import Campaign
from lab.plan import NOTEBOOK_SECONDS, LeverPlan, launch_parts, lever_order
from lab.records import Launch
from lab.stats.noise import resolved_pct


@dataclass(frozen=True)
class Outlook:
    """The next pass and what lies behind it.

    pass_number of at most passes; levers: who launches, in this order, between two controls; pass_seconds: what the
    pass takes; hours_left: of `budget.hours`, None without; passes_left: as many as plan and budget admit, this one
    included; launch_cv_pct: how far identical launches differ, as far as is known; resolved_pct: the smallest true gain
    that the whole run can still be expected to adopt (see `lab.stats.noise`); too_small: levers of which less is
    predicted, with the prediction in percent.
    """

    pass_number: int
    passes: int
    levers: tuple[str, ...]
    pass_seconds: float
    hours_left: float | None
    passes_left: int
    launch_cv_pct: float | None
    resolved_pct: float | None
    too_small: Mapping[str, float]


def outlook(
    campaign: Campaign,
    levers: Sequence[LeverPlan],
    pass_number: int,
    passes: int,
    launches: Sequence[Launch],
    launch_cv_pct: float | None = None,
    predicted_pct: Mapping[str, float | None] | None = None,
    over_budget: bool = False,
) -> Outlook:
    """Of the `levers` that are still open, after `launches`; predicted_pct: by lever, where something is predicted;
    over_budget: as if the campaign had no budget."""
    start, trial = launch_parts(campaign, launches)
    arms = sum(len(lever.arms) for lever in levers)
    seconds = (arms + 1) * (start + trial + NOTEBOOK_SECONDS)
    left = None if over_budget else _hours_left(campaign, launches)
    fit = passes - pass_number + 1
    if left is not None:
        fit = min(fit, max(0, math.floor(left * 3600 / seconds)))
    whole = pass_number - 1 + fit
    least = None if launch_cv_pct is None else resolved_pct(launch_cv_pct, whole, campaign.rule.alpha)
    small = {name: value for name, value in (predicted_pct or {}).items() if _below(value, least)}
    names = tuple(lever_order([lever.name for lever in levers], pass_number))
    return Outlook(pass_number, passes, names, seconds, left, fit, launch_cv_pct, least, small)


def describe(seen: Outlook) -> str:
    """One line."""
    parts = [
        f"pass {seen.pass_number} of at most {seen.passes}: control, {', '.join(seen.levers)}, control",
        f"about {seen.pass_seconds / 60:.1f} min",
    ]
    if seen.hours_left is not None:
        parts.append(f"{60 * seen.hours_left:.0f} min of the budget left, {seen.passes_left} such passes fit")
    if seen.launch_cv_pct is not None and seen.resolved_pct is not None:
        parts.append(f"launches differ by {seen.launch_cv_pct:.1f} %, gains from {seen.resolved_pct:.1f} % can be told")
    parts += [f"of {name} only {value:+.1f} % is predicted" for name, value in seen.too_small.items()]
    return " · ".join(parts)


def _hours_left(campaign: Campaign, launches: Sequence[Launch]) -> float | None:
    """Of the budget, less what all launches on record took, in whatever sitting."""
    if campaign.budget is None:
        return None
    spent = sum(launch.record["timings"]["seconds"] + NOTEBOOK_SECONDS for launch in launches)
    return campaign.budget.hours - spent / 3600


def _below(predicted: float | None, least: float | None) -> bool:
    return predicted is not None and least is not None and abs(predicted) < least
