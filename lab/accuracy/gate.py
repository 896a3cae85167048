"""The paired test of right answers: did the treatment get worse by more than is allowed?

Without pairing, the luck of the items hides a drop of a few points; without the drop that could have been seen, "no
drop seen" on twenty items reads like proof.

Notation (pitfalls section 7): of n items that both arms answered, b were right in the control and wrong in the
treatment, c the reverse; d = (b + c) / n is the share of discordant items.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PASS, FAIL, UNDECIDED = "pass", "fail", "undecided"
# A treatment that keeps less than this share of the control's right answers does not answer any more.
BROKEN_SHARE = 0.5
# Normal quantile of a one-sided 95 % bound.
Z_ONE_SIDED = 1.645
# Of a drop that a two-sided 5 % test finds with 80 % power: 1.96 + 0.84.
Z_DETECTABLE = 2.8


@dataclass(frozen=True)
class Gate:
    """What the paired answers say; drops are in percentage points, positive when the treatment is worse.

    outcome         pass, fail or undecided
    items           items that both arms answered
    lost gained     b and c
    control_pct     share of the items that the control got right
    drop_pct        (b - c) / n
    se_pct          its standard error, sqrt(b + c - (b - c)^2 / n) / n
    low_pct high_pct   one-sided 95 % bounds of the drop
    p_value         exact McNemar test, two-sided
    detectable_pct  smallest drop that these items would have shown with 80 % power, 2.8 sqrt(d / n)
    same_protocol   whether both arms were asked the same, in the same way; else the figures mean nothing
    """

    outcome: str
    items: int
    lost: int
    gained: int
    control_pct: float
    drop_pct: float
    se_pct: float
    low_pct: float
    high_pct: float
    p_value: float
    detectable_pct: float
    same_protocol: bool

    def underpowered(self, max_drop_pct: float) -> bool:
        """Whether the allowed drop could not have been seen: too few items, or a control that is right too seldom."""
        return self.detectable_pct > max_drop_pct or self.control_pct <= max_drop_pct


def gate(control: Mapping[str, Any], treatment: Mapping[str, Any], max_drop_pct: float) -> Gate | None:
    """Non-inferiority of the treatment's answers; None when the arms have no item in common.

    `control`, `treatment`: records of the probe (`right` and `wrong`: ids of items, `protocol`: digest). `pass`: the
    upper bound of the drop is below `max_drop_pct`; `fail`: the lower bound is above zero and the drop exceeds it;
    `undecided`: neither, or another protocol.
    """
    known = (set(control["right"]) | set(control["wrong"])) & (set(treatment["right"]) | set(treatment["wrong"]))
    if not known:
        return None
    right, right_now = set(control["right"]) & known, set(treatment["right"]) & known
    n, lost, gained = len(known), len(right - right_now), len(right_now - right)
    same_protocol = control["protocol"] == treatment["protocol"]
    drop_pct = 100 * (lost - gained) / n
    low_pct, high_pct = drop_bounds_pct(lost, gained, n)
    outcome = UNDECIDED
    if same_protocol and high_pct < max_drop_pct:
        outcome = PASS
    elif same_protocol and low_pct > 0 and drop_pct > max_drop_pct:
        outcome = FAIL
    return Gate(
        outcome=outcome,
        items=n,
        lost=lost,
        gained=gained,
        control_pct=100 * len(right) / n,
        drop_pct=drop_pct,
        se_pct=standard_error_pct(lost, gained, n),
        low_pct=low_pct,
        high_pct=high_pct,
        p_value=mcnemar_p(lost, gained),
        detectable_pct=detectable_drop_pct(lost, gained, n),
        same_protocol=same_protocol,
    )


def state(tested: Gate, max_drop_pct: float) -> str:
    """The word of the verdict table: same, worse, broken (it hardly answers any more), or unknown."""
    if tested.outcome == FAIL:
        return "broken" if tested.control_pct - tested.drop_pct < BROKEN_SHARE * tested.control_pct else "worse"
    return "same" if tested.outcome == PASS and not tested.underpowered(max_drop_pct) else "unknown"


def standard_error_pct(lost: float, gained: float, items: float) -> float:
    """Standard error of the paired drop in percentage points (pitfalls section 7)."""
    return 100 * math.sqrt(lost + gained - (lost - gained) ** 2 / items) / items


def drop_bounds_pct(lost: int, gained: int, items: int) -> tuple[float, float]:
    """Lower and upper one-sided 95 % bound of the drop, percentage points.

    Half an item is added to each of the four cells (Agresti & Min 2005, Statistics in Medicine 24:729-740): with no
    discordant item the plain standard error is 0, and twenty items would prove that nothing changed.
    """
    lost_, gained_, items_ = lost + 0.5, gained + 0.5, items + 2
    drop_pct = 100 * (lost_ - gained_) / items_
    half_width = Z_ONE_SIDED * standard_error_pct(lost_, gained_, items_)
    return drop_pct - half_width, drop_pct + half_width


def mcnemar_p(lost: int, gained: int) -> float:
    """Exact two-sided McNemar test: the discordant items fall to either side like a fair coin.

    The binomial tail of the smaller count, twice, at most 1; that is `scipy.stats.binomtest(b, b + c)` without the
    second that importing scipy.stats takes.
    """
    from scipy.special import bdtr

    return min(1.0, 2 * float(bdtr(min(lost, gained), lost + gained, 0.5)))


def detectable_drop_pct(lost: int, gained: int, items: int) -> float:
    """The smallest drop found with 80 % power, percentage points; at least one discordant item is assumed."""
    return 100 * Z_DETECTABLE * math.sqrt(max(lost + gained, 1) / items / items)
