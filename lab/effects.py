"""The comparisons behind a verdict row: the effect on the rule's metric, at equal batch, and on every guard.

Without one way from trials to launch-level values, a withdrawn figure would leave the effect and stay in the guard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lab.campaign import CONTROL, Rule
from lab.context import Audited
from lab.records import MATCHED
from lab.stats.compare import Effect, compare
from lab.stats.scale import ratio_value
from lab.stats.sequential import Judgement, judge

if TYPE_CHECKING:
    import pandas

TRADED = {"output_tok_s": True, "ttft_p50_ms": False, "tpot_p50_ms": False, "kv_tokens": True}
"""What a lever may gain or lose besides the rule's metric, and whether more of it is better: throughput, time to the
first token, speed of one stream, room in the cache."""


def judged(entries: Sequence[Audited], arm: str, rule: Rule, treatments: int = 1) -> Judgement | None:
    """What the sequential rule says of its metric over all valid judged trials of the run; None without both arms.

    treatments: how many of the lever share the controls.
    """
    frame = _frame([entry for entry in entries if entry.judged and entry.valid], arm, rule.metric)
    return None if frame is None else judge(frame, CONTROL, arm, rule, treatments)


def effect(entries: Sequence[Audited], arm: str, metric: str, rule: Rule) -> Effect | None:
    """The launch-level comparison of one metric over all valid judged trials of the run; None without both arms."""
    return _compare([entry for entry in entries if entry.judged and entry.valid], arm, metric, rule)


def matched_effect(entries: Sequence[Audited], arm: str, batch: float | None, rule: Rule) -> Effect | None:
    """The treatment's capped windows against control windows at the batch it ran; None when it ran the whole load."""
    if batch is None or round(batch) >= rule.concurrency:
        return None
    chosen = [
        entry
        for entry in entries
        if entry.valid
        and (
            (entry.judged and entry.trial.launch.arm == arm)
            or (entry.trial.purpose == MATCHED and entry.trial.launch.ok and entry.trial.concurrency == round(batch))
        )
    ]
    return _compare(chosen, arm, rule.metric, rule)


def guard(entries: Sequence[Audited], arm: str, metric: str, rule: Rule) -> str:
    """held, broken or unknown: where the interval of a second metric lies against its limit."""
    limits, found = rule.guards[metric], effect(entries, arm, metric, rule)
    if found is None or found.ci_low_pct is None or found.ci_high_pct is None:
        return "unknown"
    if limits.max_increase_pct is not None:
        low, high, limit = found.ci_low_pct, found.ci_high_pct, limits.max_increase_pct
    else:
        low, high, limit = -found.ci_high_pct, -found.ci_low_pct, limits.max_decrease_pct or 0.0
    return "broken" if low > limit else "held" if high <= limit else "unknown"


def traded(entries: Sequence[Audited], arm: str, rule: Rule) -> dict[str, tuple[Effect, bool]]:
    """Metrics beside the rule's that the lever surely changes, by at least the least effect that counts, and whether
    for the better; those with a guard are left to it."""
    found = {}
    for metric, more_is_better in TRADED.items():
        if metric == rule.metric or metric in rule.guards:
            continue
        other = effect(entries, arm, metric, rule)
        if other is None or other.effect_pct is None or other.ci_low_pct is None or other.ci_high_pct is None:
            continue
        if abs(other.effect_pct) >= rule.min_effect_pct and (other.ci_low_pct > 0 or other.ci_high_pct < 0):
            found[metric] = (other, (other.effect_pct > 0) == more_is_better)
    return found


def launch_row(entry: Audited, metric: str) -> dict[str, Any] | None:
    """The row of `lab.stats` for the launch of this trial; None without a value."""
    value = ratio_value(metric, entry.value(metric), entry.trial.window["seconds"])
    if value is None:
        return None
    launch = entry.trial.launch
    return {
        "pass": launch.pass_number,
        "order": launch.record["order"],
        "started_s": entry.trial.window["opened_s"],
        "arm": launch.arm,
        "value": value,
    }


def _compare(entries: Sequence[Audited], arm: str, metric: str, rule: Rule) -> Effect | None:
    frame = _frame(entries, arm, metric)
    return None if frame is None else compare(frame, CONTROL, arm, rule.alpha)


def _frame(entries: Sequence[Audited], arm: str, metric: str) -> pandas.DataFrame | None:
    """One row per launch for `lab.stats`; None without both arms."""
    import pandas

    rows = [row for entry in entries if (row := launch_row(entry, metric)) is not None]
    if not {arm, CONTROL} <= {row["arm"] for row in rows}:
        return None
    return pandas.DataFrame(rows).sort_values("order", ignore_index=True)
