"""Judge a lever pass by pass: as soon as its effect, or its absence, is shown, no further launch is spent on it.

Without one rule that knows how often it looks, "stop when it is significant" adopts noise, and a fixed number of passes
spends hours on what the second one has settled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lab.metrics import HIGHER_IS_BETTER
from lab.stats.boundary import levels
from lab.stats.compare import Effect, check, compare, numbers, p_value, percent, t_quantile
from lab.stats.design import design, error_per_spread, positions
from lab.stats.looks import ADOPT, INCONCLUSIVE, LABELS, REJECT, SPENT_SHARE, Bounds, ending, shared_level
from lab.stats.spread import Estimate, estimate
from lab.stats.stopped import corrected

if TYPE_CHECKING:
    import pandas as pd

    from lab.campaign import Rule

LARGEST_LOSS_PCT = 99.999


@dataclass(frozen=True)
class Judgement:
    """What the sequential rule says.

    label: adopt, reject, no-effect or inconclusive; passes_used: passes it rests on; effect: as of that
    look, corrected for an early end; settled: no further pass is owed; hopeless: settled because a decision by
    `passes.max` is improbable; looks: how often it was judged.
    """

    label: str
    passes_used: int
    effect: Effect
    settled: bool
    hopeless: bool = False
    looks: int = 0


def judge(launches: pd.DataFrame, control: str, treatment: str, rule: Rule, treatments: int = 1) -> Judgement:
    """Apply the sequential rule pass by pass, from `rule.passes.min` to `rule.passes.max`, up to the first decision.

    `launches` as for `compare`, with the column pass; a look is taken after every pass that brought a launch of the
    treatment, and sees the launches up to that pass; a block counts as one pass for each launch of the treatment.
    `treatments`: how many of one lever share the controls (Dunnett). Before the first look the label
    is inconclusive and the effect that of `compare`. Raises ValueError as `compare` does.
    """
    check(launches, control, treatment, rule.alpha)
    if "pass" not in launches.columns:
        raise ValueError("launches lack the column 'pass'")
    taken = _looks(launches, control, treatment, rule)
    if not taken:
        effect = compare(launches, control, treatment, rule.alpha)
        mine = launches.loc[launches["arm"] == treatment, "pass"]
        used = max(len(mine), int(mine.max())) if len(mine) else 0
        return Judgement(INCONCLUSIVE, used, effect, settled=used >= rule.passes.max)
    bounds = bounds_of(rule)
    end = ending([look.passes for look in taken], [look.found for look in taken], bounds, treatments)
    seen = taken[: int(end.look[0]) + 1]
    done, label, hopeless = seen[-1].passes, LABELS[int(end.label[0])], bool(end.hopeless[0])
    plain = compare(seen[-1].launches, control, treatment, rule.alpha)
    found = seen[-1].found
    error, df = float(found.error[0]), float(found.df[0])
    if label in (ADOPT, REJECT):
        error, df = float(found.error_apart[0]), float(found.df_apart[0])
        plain = _with_spread(plain, float(found.log_ratio[0]), error, df, rule.alpha)
    effect = _effect(plain, error, df, seen, bounds, treatments)
    settled = label != INCONCLUSIVE or hopeless or done >= rule.passes.max
    return Judgement(label, done, effect, settled, hopeless, looks=len(seen))


def bounds_of(rule: Rule) -> Bounds:
    """What a campaign's rule asks, on the log scale."""
    least = rule.min_effect_pct
    return Bounds(
        last=rule.passes.max,
        alpha=rule.alpha,
        low=math.log1p(-min(least, LARGEST_LOSS_PCT) / 100),
        high=math.log1p(least / 100),
        better=1 if HIGHER_IS_BETTER[rule.metric] else -1,
    )


@dataclass(frozen=True)
class Look:
    """What one look sees: passes so far, all launches up to that pass, and the estimate."""

    passes: int
    launches: pd.DataFrame
    found: Estimate
    error_per_spread: float


def _looks(launches: pd.DataFrame, control: str, treatment: str, rule: Rule) -> list[Look]:
    rows = launches.sort_values("order", kind="stable")
    taken: list[Look] = []
    for number in sorted(set(rows.loc[rows["arm"] == treatment, "pass"])):
        frame = rows[rows["pass"] <= number]
        arms = frame["arm"].to_numpy(dtype=object)
        done = max(int(number), int(np.sum(arms == treatment)))
        if not max(2, rule.passes.min) <= done <= rule.passes.max or not np.any(arms == control):
            continue
        model = design(arms, positions(numbers(frame["order"]), numbers(frame["started_s"])), control, treatment)
        if model.df > 0:
            found = estimate(model, np.log(numbers(frame["value"]))[None, :])
            taken.append(Look(done, frame, found, error_per_spread(model)))
    return taken


def _with_spread(plain: Effect, log_ratio: float, error: float, df: float, alpha: float) -> Effect:
    """The effect with the spread per arm on which a difference was found: one from the pooled spread could hold 0."""
    half_width = t_quantile(1 - alpha / 2, df) * error
    return replace(
        plain,
        ci_low_pct=percent(log_ratio - half_width),
        ci_high_pct=percent(log_ratio + half_width),
        p_value=p_value(log_ratio, error, df),
        df=df,
    )


def _effect(plain: Effect, error: float, df: float, seen: list[Look], bounds: Bounds, treatments: int) -> Effect:
    """The plain effect of the last look, corrected for having got there only because no earlier look decided.

    The spread is taken as known from the last look: an early look decided beyond its t quantile times its own error,
    which after few launches is far out, and beyond the least effect that counts. Where launches happened to agree, the
    bound of the normal distribution stands in, so that what was adopted keeps an interval without 0.
    """
    from scipy.special import ndtri

    log_ratio = float(seen[-1].found.log_ratio[0])
    if len(seen) == 1 or error == 0:
        return plain
    passes = [look.passes for look in seen]
    asked = levels(passes, bounds.last, SPENT_SHARE * bounds.alpha)
    early = []
    for level, look in zip(asked, seen[:-1], strict=False):
        level = shared_level(level, treatments)
        unit = error * look.error_per_spread / seen[-1].error_per_spread
        reach = -t_quantile(level / 2, float(look.found.df_apart[0])) * float(look.found.error_apart[0])
        reach = max(reach, -float(ndtri(level / 2)) * unit)
        early.append((min(bounds.low, -reach) / unit, max(bounds.high, reach) / unit))
    better = corrected(passes, early, log_ratio / error, bounds.alpha)
    wide = t_quantile(1 - bounds.alpha / 2, df) / -float(ndtri(bounds.alpha / 2))
    return replace(
        plain,
        effect_pct=percent(better.z * error),
        ci_low_pct=percent((better.z + (better.low - better.z) * wide) * error),
        ci_high_pct=percent((better.z + (better.high - better.z) * wide) * error),
        p_value=max(better.p_value, plain.p_value or 0.0),
    )
