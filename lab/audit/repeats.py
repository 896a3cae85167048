"""Is the evidence of several launches what it claims to be: measured afresh, in a fair order, against a known noise?

Without it a file read twice counts as two launches, a machine that warms up favours the arm that came last, and the
best of twenty equal candidates is "found".
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from lab.audit.base import INVALID, WARNING, Code, Context, check
from lab.audit.thresholds_comparison import (
    FRESH_LAUNCHES,
    NULL_CONTROLS,
    ORDER_DRIFT_LAUNCHES,
    ORDER_DRIFT_SHARE,
    SEARCHED_CANDIDATES,
)
from lab.records import JUDGED, TREATMENT, Trial


@check("repeat-not-measured")
def repeat_not_measured(trial: Trial, context: Context) -> Code | None:
    """Another trial of the run has the same request table, the same opening of the window, or the same launch number:
    one measurement read twice."""
    others = [*context.repeats, *([context.control] if context.control else [])]
    for other in others:
        same = [name for name, value in _marks(trial).items() if value is not None and value == _marks(other)[name]]
        if same:
            text = f"the same {' and '.join(same)} as {other.id}: one measurement counted twice"
            return Code("repeat-not-measured", INVALID, text, {"other": other.id, "same": ", ".join(same)})
    return None


@check("order-drift")
def order_drift(trial: Trial, context: Context) -> Code | None:
    """The arm's own launches rise or fall over the run: its first half against its second."""
    trials = sorted([*context.repeats, trial], key=lambda each: each.launch.record["order"])
    values = [each.metrics["output_tok_s"] for each in trials if each.metrics["output_tok_s"]]
    if len(values) < ORDER_DRIFT_LAUNCHES:
        return None
    half = len(values) // 2
    first, second = statistics.fmean(values[:half]), statistics.fmean(values[-half:])
    change = second / first - 1
    if abs(change) <= ORDER_DRIFT_SHARE:
        return None
    text = f"the arm's own launches drift: first half {first:.1f} tok/s, second {second:.1f} ({change:+.1%})"
    return Code("order-drift", WARNING, text, {"first": first, "second": second, "launches": len(values)})


def not_counterbalanced(treatments: Sequence[int], controls: Sequence[int]) -> Code | None:
    """`order-drift` of a verdict row: several launches of both arms, and all of one came before all of the other.

    `treatments`, `controls`: places of the launches in the run. Then a machine that warms up is a lever.
    """
    if len(treatments) < 2 or len(controls) < 2:
        return None
    if min(treatments) < max(controls) and min(controls) < max(treatments):
        return None
    first = "controls" if max(controls) < min(treatments) else "treatments"
    text = f"order not counterbalanced: all {first} came first, so a drift of the machine looks like the lever"
    orders = {"treatments": ", ".join(map(str, treatments)), "controls": ", ".join(map(str, controls))}
    return Code("order-drift", WARNING, text, orders)


@check("no-null")
def no_null(trial: Trial, context: Context) -> Code | None:
    """Nobody knows how far identical arms differ here: no A/A floor, and too few control launches to show it.

    Without any control nothing is compared at all.
    """
    compared = trial.launch.role == TREATMENT and trial.purpose == JUDGED and context.controls
    if not compared or context.floor is not None or context.controls >= NULL_CONTROLS:
        return None
    text = (
        f"no A/A floor is known and only {context.controls} valid control launches show how far equal launches differ; "
        f"{NULL_CONTROLS} are needed"
    )
    return Code("no-null", WARNING, text, {"controls": context.controls, "needed": NULL_CONTROLS})


@check("winners-curse")
def winners_curse(trial: Trial, context: Context) -> Code | None:
    """The best of many candidates is partly luck, until it is measured afresh."""
    if context.candidates <= SEARCHED_CANDIDATES or context.fresh >= FRESH_LAUNCHES:
        return None
    text = (
        f"chosen as the best of {context.candidates} candidates and launched afresh {context.fresh} times; "
        f"{FRESH_LAUNCHES} fresh launches are needed"
    )
    return Code("winners-curse", WARNING, text, {"candidates": context.candidates, "fresh": context.fresh})


def _marks(trial: Trial) -> dict[str, str | int | None]:
    """What no two measurements share."""
    files = trial.launch.record.get("files", {})
    window = trial.window
    return {
        "request table": files.get(f"trials/{trial.folder.name}/requests.parquet"),
        "window opening": f"{window['opened_s']} {window['opened_at']}",
        "launch number": trial.launch.record["launch"],
    }
