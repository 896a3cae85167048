"""What was expected of each treatment against what was measured.

Without it predictions are made and forgotten, and nobody learns for which levers the roofline is a guide.
"""

from __future__ import annotations

from typing import Any

from lab.expectations import PCT, SENTENCE
from lab.judgement import judge
from lab.plan import load_levers
from lab.row_bounds import PREDICTED_METRIC
from lab.runs import Run

AS_EXPECTED, MISSED, UNTOLD = "as expected", "missed", "not told from zero"


class PredictionTable:
    """`rows` (see `predictions`) that show themselves as a table in a notebook and as text in a terminal."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def __repr__(self) -> str:
        told = ("expected before", "at the batch that ran", "measured")
        lines = []
        for name, *figures, sign, arithmetic in map(_cells, self.rows):
            said = ", ".join(f"{what} {figure}" for what, figure in zip(told, figures, strict=True))
            lines.append(f"{name}: {said}: {sign} ({arithmetic})")
        return "\n".join(lines)

    def _repr_markdown_(self) -> str:
        from lab.report.table import escaped

        titles = ["lever", "expected before", "expected at the batch that ran", "measured", "sign", "arithmetic"]
        lines = [titles, ["---"] * len(titles), *([escaped(cell) for cell in _cells(row)] for row in self.rows)]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def predictions(run: Run) -> list[dict[str, Any]]:
    """One row per treatment: the effect expected in plan.json, before the first launch; that at the batches that ran;
    the measured one with its interval (all in percent); whether the sign was as expected; and the plan's sentence."""
    planned = {arm["name"]: arm for lever in load_levers(run.plan) for arm in lever.arms}
    arms = [name for lever in load_levers(run.plan) for name in [arm["name"] for arm in lever.arms] or [lever.name]]
    return [
        {
            "lever": row["lever"],
            "treatment": row["treatment"],
            "predicted_before_pct": planned.get(arm, {}).get(PCT),
            "predicted_at_batch_pct": row["predicted_effect_pct"],
            "effect_pct": row["effect_pct"],
            "ci_low_pct": row["ci_low_pct"],
            "ci_high_pct": row["ci_high_pct"],
            "sign": _sign(row, planned.get(arm, {}).get(PCT)),
            "expected": planned.get(arm, {}).get(SENTENCE, row["reason"]),
        }
        for arm, row in zip(arms, judge(run).rows, strict=True)
    ]


def _cells(row: dict[str, Any]) -> list[str]:
    from lab.report import words

    expected = (row["predicted_before_pct"], row["predicted_at_batch_pct"])
    figures = [words.MISSING if pct is None else f"{words.percent(pct, signed=True)} %" for pct in expected]
    return [words.lever_name(row), *figures, words.effect(row), row["sign"], row["expected"]]


def _sign(row: dict[str, Any], before_pct: float | None) -> str:
    """In words; the prediction at the batches that ran counts, else the one before."""
    at_batch = row["predicted_effect_pct"]
    expected = before_pct if at_batch is None else at_batch
    low, high = row["ci_low_pct"], row["ci_high_pct"]
    if row["effect_pct"] is None:
        return "not measured"
    if row["metric"] != PREDICTED_METRIC:
        return f"not compared: {PREDICTED_METRIC} is predicted, {row['metric']} was judged"
    if not expected:
        return "nothing was predicted"
    if low is None or high is None or low <= 0 <= high:
        return UNTOLD
    if (expected > 0) == (low > 0):
        return AS_EXPECTED
    finding = " (finding expected-sign-missed)" if "expected-sign-missed" in row["findings"] else ""
    return f"{MISSED}: the whole interval lies on the other side of zero{finding}"
