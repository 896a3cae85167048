"""From records to verdict rows: known effects are found, and what may not be believed is never judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab.campaign import CONTROL
from lab.errors import InputError
from lab.judgement import capped_batches, judge
from lab.records import CLOSING, JUDGED, MATCHED, OPENING, SEARCH, SWEEP, TREATMENT
from lab.runs import Run
from tests.builders import CAPPED, TRIAL, RunBuilder, changed, lever_plan

KEYS = {
    "campaign", "run_id", "lever", "treatment", "verdict", "reason", "metric", "workload", "concurrency_offered",
    "concurrency_running", "concurrency_running_control", "effect_pct", "ci_low_pct", "ci_high_pct", "p_value",
    "p_adjusted", "effect_matched_batch_pct", "launches", "passes", "screened", "bound_tok_s", "bound_fraction",
    "bound_fraction_control", "predicted_effect_pct", "accuracy", "codes", "findings", "guards", "simulated",
}  # fmt: skip
MORE = {"gap_closed_pct", "proof", "structural_gap"}


def builder(folder: Path, *names: str, **values: Any) -> RunBuilder:
    return RunBuilder(folder, [lever_plan(name) for name in names], **values)


def row_of(build: RunBuilder, lever: str = "mtp") -> dict[str, Any]:
    return next(row for row in judge(build.run).rows if row["lever"] == lever)


def matched(tok_s: float, batch: int = 2, opened_s: float = 5000.0) -> dict[str, Any]:
    """A control's window at the batch that a capped treatment ran."""
    changes = {"concurrency": batch, "purpose": MATCHED, "metrics.output_tok_s": tok_s, "server.running": batch}
    changes |= {"window.opened_s": opened_s, "client.littles_law": batch, "client.peak_in_flight": batch}
    changes |= {"client.in_flight_bins": [batch] * len(TRIAL["client"]["in_flight_bins"])}
    return changed(TRIAL, changes)


def failed(kind: str = "out-of-memory") -> dict[str, Any]:
    return {"state": "failed", "failure": {"kind": kind, "reason": "12 GB asked, 8 GB free", "detail": ""}}


def test_rows_have_exactly_the_keys_of_the_contract(tmp_path: Path) -> None:
    absent = lever_plan("nccl", arms=(), not_applicable="one device")
    build = RunBuilder(tmp_path, [lever_plan("mtp"), lever_plan("graphs"), absent])
    build.passes(2, {"mtp": 120, "graphs": 100})
    rows = judge(build.run).rows
    assert [row["lever"] for row in rows] == ["mtp", "graphs", "nccl"]
    assert all(set(row) == KEYS | MORE for row in rows)


@pytest.mark.parametrize(("target", "closed"), [(None, None), (200, 20.0), (110, 200.0)])
def test_the_share_of_the_gap_to_the_target_is_told(tmp_path: Path, target: float | None, closed: float | None) -> None:
    build = builder(tmp_path, "mtp", rule={"target": target})
    build.passes(3, {"mtp": 120})
    assert row_of(build)["gap_closed_pct"] == (None if closed is None else pytest.approx(closed, rel=0.1))


def test_known_effects_are_found(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp", "graphs", "slots")
    build.passes(3, {"mtp": 120, "graphs": 100, "slots": 70})
    rows = {row["lever"]: row for row in judge(build.run).rows}
    assert {name: row["verdict"] for name, row in rows.items()} == {
        "mtp": "adopt",
        "graphs": "no-effect",
        "slots": "reject",
    }
    for name, truth in {"mtp": 20.0, "graphs": 0.0, "slots": -30.0}.items():
        assert rows[name]["effect_pct"] == pytest.approx(truth, abs=1.0)
        assert rows[name]["ci_low_pct"] < rows[name]["effect_pct"] < rows[name]["ci_high_pct"]


def test_a_row_says_what_it_rests_on(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp", "graphs")
    build.passes(3, {"mtp": 120, "graphs": 100})
    row = row_of(build)
    assert (row["campaign"], row["run_id"], row["treatment"]) == ("small", build.run.run_id, "mtp on")
    assert (row["metric"], row["workload"], row["concurrency_offered"]) == ("output_tok_s", "chat", 4)
    assert (row["launches"], row["passes"], row["screened"]) == (3 + 4, 3, False)
    assert (row["concurrency_running"], row["concurrency_running_control"]) == (3.98, 3.98)
    assert (row["accuracy"], row["codes"], row["findings"], row["simulated"]) == ("not-tested", [], [], False)


def test_a_drift_of_the_machine_does_not_become_an_effect(tmp_path: Path) -> None:
    build = builder(tmp_path, "a", "b")
    speed = iter([100 * 0.98**n for n in range(20)])
    build.launch(CONTROL, 0, OPENING, next(speed))
    for number, order in ((1, "ab"), (2, "ba"), (3, "ab")):
        for name in order:
            build.launch(name, number, TREATMENT, next(speed))
        build.launch(CONTROL, number, CLOSING, next(speed))
    for row in judge(build.run).rows:
        assert row["verdict"] == "no-effect"
        assert row["effect_pct"] == pytest.approx(0, abs=1.0)
        assert row["findings"] == ["drift"]


def test_a_steady_machine_has_no_drift_to_tell(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp")
    build.passes(3, {"mtp": 100})
    assert row_of(build)["findings"] == []


def test_one_pass_is_a_screening(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp")
    build.passes(1, {"mtp": 120})
    row = row_of(build)
    assert (row["verdict"], row["screened"], row["passes"]) == ("inconclusive", True, 1)
    assert row["reason"].startswith("screened only: one launch")


def test_a_block_by_hand_rests_on_two_launches(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp", mode="block")
    for name, role in ((CONTROL, OPENING), ("mtp", TREATMENT), ("mtp", TREATMENT), (CONTROL, CLOSING)):
        build.launch(name, 1, role, 150 if name == "mtp" else 100)
    row = row_of(build)
    assert (row["verdict"], row["screened"], row["launches"], row["passes"]) == ("adopt", False, 4, 1)


def test_nothing_launched_yet_is_inconclusive_with_nothing_made_up(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp")
    row = row_of(build)
    assert (row["verdict"], row["launches"], row["passes"], row["screened"]) == ("inconclusive", 0, 0, False)
    figures = [key for key in KEYS if key.endswith(("_pct", "_s", "fraction", "control"))]
    assert figures and all(row[key] is None for key in [*figures, "p_value", "p_adjusted", "concurrency_running"])


def test_a_lever_that_does_not_apply_says_why(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path, [lever_plan("nccl", arms=(), not_applicable="one device: no collectives")])
    build.passes(1, {})
    row = row_of(build, "nccl")
    assert (row["verdict"], row["reason"], row["treatment"]) == ("not-applicable", "one device: no collectives", None)


def test_a_lever_with_two_treatments_has_two_rows(tmp_path: Path) -> None:
    arms = tuple({**lever_plan("kv").arms[0], "name": f"kv-{t}", "treatment": t} for t in ("q8", "q4"))
    build = RunBuilder(tmp_path, [lever_plan("kv", arms=arms)])
    assert [(row["lever"], row["treatment"]) for row in judge(build.run).rows] == [("kv", "q8"), ("kv", "q4")]


def test_a_cap_that_the_lever_causes_is_an_outcome(tmp_path: Path) -> None:
    build = builder(tmp_path, "slots")
    build.passes(2, {"slots": 60}, treatments={"slots": CAPPED})
    row = row_of(build, "slots")
    assert row["verdict"] == "reject"
    assert row["findings"] == ["capacity-limited"]
    assert row["codes"] == []
    assert (row["concurrency_running"], row["concurrency_running_control"]) == (2.0, 3.98)
    assert row["reason"].startswith("capacity-limited: asked 4, ran 2.0")


def test_the_batch_of_a_capped_treatment_is_asked_of_the_controls(tmp_path: Path) -> None:
    build = builder(tmp_path, "slots", "mtp")
    assert capped_batches(build.run) == []
    build.passes(1, {"slots": 60, "mtp": 120}, treatments={"slots": CAPPED})
    assert capped_batches(build.run) == [2]


def test_the_effect_at_equal_batch_is_that_against_the_matched_windows(tmp_path: Path) -> None:
    build = builder(tmp_path, "slots")
    build.launch(CONTROL, 0, OPENING)
    for number in (1, 2):
        build.launch("slots", number, TREATMENT, 60, **CAPPED)
        build.launch(CONTROL, number, CLOSING, more=[matched(50.0, opened_s=5000.0 + number)])
    row = row_of(build, "slots")
    assert row["effect_pct"] == pytest.approx(-40, abs=1)
    assert row["effect_matched_batch_pct"] == pytest.approx(20, abs=1)
    assert "at equal batch of 2: +" in row["reason"]


def test_windows_at_another_batch_do_not_match(tmp_path: Path) -> None:
    build = builder(tmp_path, "slots")
    build.launch(CONTROL, 0, OPENING)
    build.launch("slots", 1, TREATMENT, 60, **CAPPED)
    build.launch(CONTROL, 1, CLOSING, more=[matched(50.0, batch=3)])
    assert row_of(build, "slots")["effect_matched_batch_pct"] is None


def test_arms_of_equal_batch_have_no_matched_effect(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp")
    build.launch(CONTROL, 0, OPENING, more=[matched(50.0)])
    build.launch("mtp", 1, TREATMENT, 120)
    build.launch(CONTROL, 1, CLOSING, more=[matched(50.0)])
    assert row_of(build)["effect_matched_batch_pct"] is None


def test_a_control_that_is_capped_makes_every_row_invalid(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp", "graphs")
    build.passes(2, {"mtp": 120, "graphs": 100}, control=CAPPED, treatments={"mtp": CAPPED, "graphs": CAPPED})
    for row in judge(build.run).rows:
        assert (row["verdict"], row["codes"]) == ("invalid", ["batch-cap"])
        assert row["reason"].startswith("batch-cap: asked 4, ran 2.0")
        assert row["effect_pct"] is None


def test_an_opening_control_that_is_capped_is_enough_for_every_row_to_carry_the_code(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp")
    build.launch(CONTROL, 0, OPENING, **CAPPED)
    row = row_of(build)
    assert (row["verdict"], row["codes"], row["launches"]) == ("invalid", ["batch-cap"], 0)


def test_a_cap_that_one_control_had_too_is_not_of_the_levers_making(tmp_path: Path) -> None:
    build = builder(tmp_path, "slots")
    build.launch(CONTROL, 0, OPENING)
    build.launch("slots", 1, TREATMENT, 60, **CAPPED)
    build.launch(CONTROL, 1, CLOSING, **CAPPED)
    row = row_of(build, "slots")
    assert (row["verdict"], row["codes"]) == ("invalid", ["batch-cap"])


def test_a_code_that_recurs_in_an_arm_makes_it_invalid(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp", "graphs")
    busy = {"changes": {"server.idle_running_max": 1.0}}
    build.passes(3, {"mtp": 120, "graphs": 100}, treatments={"mtp": busy})
    assert (row_of(build)["verdict"], row_of(build)["codes"]) == ("invalid", ["foreign-traffic"])
    assert row_of(build, "graphs")["verdict"] == "no-effect"


def test_a_code_that_occurs_once_costs_one_launch_and_no_verdict(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp")
    build.launch(CONTROL, 0, OPENING)
    for number in (1, 2, 3):
        changes = {"server.idle_running_max": 1.0} if number == 2 else {}
        build.launch("mtp", number, TREATMENT, 500 if number == 2 else 120, changes=changes)
        build.launch(CONTROL, number, CLOSING)
    row = row_of(build)
    assert (row["verdict"], row["codes"], row["launches"]) == ("adopt", [], 2 + 4)
    assert row["effect_pct"] == pytest.approx(20, abs=1)


def test_the_only_trial_of_an_arm_being_invalid_makes_it_invalid(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp")
    build.passes(1, {"mtp": 120}, treatments={"mtp": {"proof": {"applied": False, "text": "nothing drafted"}}})
    row = row_of(build)
    assert (row["verdict"], row["reason"]) == ("invalid", "lever-not-applied: nothing drafted")
    assert row["codes"] == ["lever-not-applied"]


def test_a_warning_that_recurs_is_shown_and_changes_nothing(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp")
    build.passes(2, {"mtp": 120}, treatments={"mtp": {"changes": {"client.drained": False}}})
    row = row_of(build)
    assert (row["verdict"], row["codes"]) == ("adopt", ["count-mismatch"])


def test_an_arm_that_does_not_start_is_failed(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp", "graphs")
    build.passes(2, {"mtp": 0, "graphs": 100}, treatments={"mtp": failed()})
    row = row_of(build)
    assert (row["verdict"], row["reason"]) == ("failed", "out-of-memory: 12 GB asked, 8 GB free")
    assert row["effect_pct"] is None
    assert row_of(build, "graphs")["verdict"] == "no-effect"


def test_a_launch_that_died_once_is_left_out(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp")
    build.launch(CONTROL, 0, OPENING)
    for number in (1, 2, 3):
        died = {**failed("crashed"), "state": "died"} if number == 1 else {}
        build.launch("mtp", number, TREATMENT, 10 if number == 1 else 120, **died)
        build.launch(CONTROL, number, CLOSING)
    row = row_of(build)
    assert (row["verdict"], row["launches"]) == ("adopt", 6)
    assert row["effect_pct"] == pytest.approx(20, abs=1)


def test_a_notebook_that_failed_before_any_launch_is_the_reason(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp")
    build.launch(CONTROL, 0, OPENING)
    build.run.note_notebook_failure("mtp", "papermill ended with code 1")
    assert (row_of(build)["verdict"], row_of(build)["reason"]) == ("failed", "papermill ended with code 1")


def test_a_notebook_that_failed_after_its_launches_does_not_hide_them(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp")
    build.passes(2, {"mtp": 120})
    build.run.note_notebook_failure("mtp", "papermill ended with code 1")
    assert row_of(build)["verdict"] == "adopt"


def test_search_launches_are_never_judged(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp", passes=2)
    build.launch(CONTROL, 0, OPENING)
    for tok_s in (300, 10, 200):
        build.launch("mtp", 1, SEARCH, tok_s)
    assert (row_of(build)["launches"], row_of(build)["effect_pct"]) == (0, None)
    for number in (1, 2):
        build.launch("mtp", number, TREATMENT, 120)
        build.launch(CONTROL, number, CLOSING)
    row = row_of(build)
    assert (row["verdict"], row["launches"]) == ("adopt", 2 + 3)
    assert row["effect_pct"] == pytest.approx(20, abs=1)


def test_other_levels_than_the_judged_one_do_not_count(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp")
    sweep = changed(TRIAL, {"concurrency": 1, "purpose": SWEEP, "metrics.output_tok_s": 1e6})
    build.launch(CONTROL, 0, OPENING)
    for number in (1, 2):
        build.launch("mtp", number, TREATMENT, 120, more=[sweep] if number == 1 else [])
        build.launch(CONTROL, number, CLOSING)
    assert row_of(build)["effect_pct"] == pytest.approx(20, abs=1)


def test_a_damaged_launch_is_not_judged(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp")
    build.passes(3, {"mtp": 120})
    path = build.run.launches()[1].folder / "trials" / "chat-c4" / "trial.json"
    path.write_text(path.read_text().replace('"chat"', '"talk"'))
    assert row_of(build)["launches"] == 2 + 4


def test_only_judged_windows_ask_for_matched_batches(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp")
    build.launch(CONTROL, 0, OPENING)
    build.launch("mtp", 1, SEARCH, 60, **CAPPED)
    assert capped_batches(build.run) == []
    build.launch("mtp", 1, TREATMENT, 60, changes={**CAPPED["changes"], "purpose": SWEEP}, facts=CAPPED["facts"])
    assert capped_batches(build.run) == []
    assert TRIAL["purpose"] == JUDGED


def test_a_rule_that_was_edited_after_the_run_began_is_refused(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp")
    build.passes(2, {"mtp": 120})
    path = build.run.path / "campaign.json"
    record = json.loads(path.read_text())
    record["file"]["rule"]["min_effect_pct"] = 90.0
    path.write_text(json.dumps(record))
    with pytest.raises(InputError, match="its rule was changed after the run began"):
        judge(Run(build.run.path))
