"""Expected against measured: both predictions, and whether the sign was as expected."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import lab
from lab.prediction_table import predictions
from tests.builders import CAPPED, RunBuilder, lever_plan

WIDER = {"facts": {"kv_dtype_k": "f32", "kv_dtype_v": "f32"}}


def planned(name: str, pct: float | None) -> Any:
    plan = lever_plan(name)
    return replace(plan, arms=({**plan.arms[0], "predicted_pct": pct, "prediction": f"of {name}"},))


def build(folder: Path, name: str, pct: float | None, tok_s: float, **treatment: Any) -> dict[str, Any]:
    made = RunBuilder(folder, [planned(name, pct)])
    made.levers = {name: lever_plan(name)}
    made.passes(2, {name: tok_s}, treatments={name: treatment})
    (row,) = predictions(made.run)
    return row


def test_a_sign_as_expected(tmp_path: Path) -> None:
    row = build(tmp_path, "slots", -49.6, 50, **CAPPED)
    assert (row["lever"], row["predicted_before_pct"], row["expected"]) == ("slots", -49.6, "of slots")
    assert row["predicted_at_batch_pct"] < 0 and row["ci_high_pct"] < 0
    assert row["sign"] == "as expected"


def test_a_missed_sign_names_the_finding(tmp_path: Path) -> None:
    row = build(tmp_path, "kv", None, 120, **WIDER)
    assert row["predicted_at_batch_pct"] < 0 < row["ci_low_pct"]
    assert row["sign"] == "missed: the whole interval lies on the other side of zero (finding expected-sign-missed)"


def test_an_effect_that_holds_zero_tells_no_sign(tmp_path: Path) -> None:
    assert build(tmp_path, "kv", 5.0, 100.05)["sign"] == "not told from zero"


def test_nothing_predicted_is_not_a_hit(tmp_path: Path) -> None:
    row = build(tmp_path, "mtp", None, 120)
    assert row["sign"] == "nothing was predicted"


def test_a_plan_without_predictions_and_a_lever_that_cannot_exist_have_rows_too(tmp_path: Path) -> None:
    absent = lever_plan("nccl", arms=(), not_applicable="one device")
    made = RunBuilder(tmp_path, [lever_plan("mtp"), absent])
    made.passes(2, {"mtp": 120})
    shown = lab.summary(run=str(made.run.path)).predictions()
    assert [row["lever"] for row in shown.rows] == ["mtp", "nccl"]
    assert [row["predicted_before_pct"] for row in shown.rows] == [None, None]
    assert [row["sign"] for row in shown.rows] == ["nothing was predicted", "not measured"]
    assert "| nccl | – | – | – | not measured | one device |" in shown._repr_markdown_()
    assert "nccl: expected before –, at the batch that ran –, measured –: not measured (one device)" in repr(shown)


@pytest.mark.parametrize("metric", ["tpot_p50_ms"])
def test_a_rule_on_another_metric_is_not_compared(tmp_path: Path, metric: str) -> None:
    made = RunBuilder(tmp_path, [lever_plan("mtp")], rule={"metric": metric})
    made.passes(2, {"mtp": 120}, treatments={"mtp": WIDER})
    (row,) = predictions(made.run)
    assert row["sign"] == f"not compared: output_tok_s is predicted, {metric} was judged"
