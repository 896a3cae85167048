"""Figures of a verdict row that follow from the comparison and the trials behind it: pure arithmetic.

Without them apart, the judgement would bury the order of its reasons under averages.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from lab.campaign import Rule
from lab.context import Audited
from lab.records import Launch, Trial
from lab.stats.compare import Effect

# A drift of the machine over the run worth telling; passes cancel it, so it never changes a verdict.
DRIFT_FINDING_PCT = 5.0
DRIFT_FINDING_SPREADS = 3.0


def gap_closed_pct(rule: Rule, controls: Sequence[Audited], measured: Effect | None) -> float | None:
    """The share of the way from the control to the rule's target that the lever goes, in percent."""
    start, target = mean(entry.value(rule.metric) for entry in controls), rule.target
    if target is None or start is None or start == target or measured is None or measured.effect_pct is None:
        return None
    return start * measured.effect_pct / (target - start)


def with_throughput(entries: Sequence[Audited]) -> list[Trial]:
    """The trials whose throughput stands."""
    return [entry.trial for entry in entries if entry.value("output_tok_s") is not None]


def mean(values: Iterable[float | None]) -> float | None:
    """Of what is known."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def interval(measured: Effect | None) -> dict[str, float | None]:
    """Effect, its interval and p-value under the row's keys."""
    names = ("effect_pct", "ci_low_pct", "ci_high_pct", "p_value")
    return {name: getattr(measured, name) if measured else None for name in names}


def proof(launches: Sequence[Launch]) -> str | None:
    """What showed, or failed to show, the lever on the server of the last launch that was asked."""
    proofs = [launch.record["proof"]["text"] for launch in launches if launch.record["proof"]]
    return proofs[-1] if proofs else None


def drifts(measured: Effect | None) -> bool:
    """Whether the drift is large, and larger than the launch noise that its own estimate holds."""
    if measured is None or measured.drift_pct is None or measured.residual_cv_pct is None:
        return False
    return abs(measured.drift_pct) >= max(DRIFT_FINDING_PCT, DRIFT_FINDING_SPREADS * measured.residual_cv_pct)


def adjust(rows: list[dict[str, Any]]) -> None:
    """Holm's step-down adjustment over the campaign (1979, Scand. J. Statist. 6:65-70): a column, not the verdict."""
    tested = sorted((row for row in rows if row["p_value"] is not None), key=lambda row: row["p_value"])
    running = 0.0
    for index, row in enumerate(tested):
        running = max(running, min(1.0, (len(tested) - index) * row["p_value"]))
        row["p_adjusted"] = running
