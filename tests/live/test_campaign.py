"""A whole campaign through the command line: papermill, real servers, records, verdicts, MLflow, summary."""

from __future__ import annotations

import json
from datetime import datetime

import pandas
import pytest

from lab.records import CLOSING, MATCHED, OPENING, TREATMENT

LEVERS = {
    "nccl_ll_ring": {},
    "kv_cache_dtype": {"dtype": "q8_0"},
    "fewer_slots": {"custom": {"title": "Half the slots", "treatment": {"flags": {"n_parallel": 2}}}},
    "refused_kv": {
        "custom": {"title": "A KV type that cannot be", "treatment": {"flags": {"cache_type_k": "q4_k"}}},
    },
}


@pytest.fixture(scope="module")
def finished(shared_lab):
    """One campaign of two passes, with a lever that cannot exist and one that cannot start."""
    path = shared_lab.campaign(
        levers=LEVERS, rule={"workload": "chat", "concurrency": 4, "passes": {"min": 2, "max": 2}}
    )
    answer = shared_lab.run("run", path)
    assert answer.returncode == 0, answer.stderr
    return shared_lab, answer


def test_the_table_and_the_way_to_the_dashboards_are_printed(finished):
    _, answer = finished
    assert "python -m lab ui" in answer.stderr
    for lever in LEVERS:
        assert lever in answer.stdout
    assert "Q4_1" in answer.stdout


def test_every_lever_has_a_row_with_its_own_kind_of_answer(finished):
    lab, _ = finished
    rows = lab.rows()
    assert list(rows) == list(LEVERS)
    assert rows["nccl_ll_ring"]["verdict"] == "not-applicable"
    assert rows["refused_kv"]["verdict"] == "failed"
    assert "block size" in rows["refused_kv"]["reason"]
    for lever in ("kv_cache_dtype", "fewer_slots"):
        row = rows[lever]
        assert row["verdict"] in ("adopt", "reject", "no-effect", "inconclusive"), row["reason"]
        assert row["passes"] == 2
        assert row["launches"] == 5
        assert row["effect_pct"] is not None
        assert 0 < row["bound_fraction"] < 1
        assert row["simulated"] is False


def test_half_the_slots_is_capacity_limited_with_the_count_that_really_ran(finished):
    lab, _ = finished
    row = lab.rows()["fewer_slots"]
    assert "capacity-limited" in row["findings"]
    assert row["concurrency_offered"] == 4
    assert row["concurrency_running"] == pytest.approx(2, abs=0.2)
    assert row["concurrency_running_control"] > 3.2
    assert row["effect_matched_batch_pct"] is not None
    assert "equal batch of 2" in row["reason"]


def test_passes_stand_between_controls_in_a_counterbalanced_order(finished):
    lab, _ = finished
    launches = lab.latest().launches()
    assert [x.role for x in launches if x.arm == "control"] == [OPENING, CLOSING, CLOSING]
    order = {n: [x.arm for x in launches if x.pass_number == n and x.role == TREATMENT] for n in (1, 2)}
    assert order[1] == ["kv_cache_dtype", "fewer_slots", "refused_kv"]
    assert order[2] == ["fewer_slots", "kv_cache_dtype"]


def test_records_hold_what_was_resolved_and_what_proves_the_lever(finished):
    lab, _ = finished
    run = lab.latest()
    assert run.damaged() == []
    launches = {launch.arm: launch for launch in run.launches()}
    kv, slots, control = (launches[name] for name in ("kv_cache_dtype", "fewer_slots", "control"))
    assert kv.record["proof"]["applied"] and kv.effective["kv_dtype_k"] == "q8_0"
    assert kv.effective["kv_bytes"] < control.effective["kv_bytes"]
    assert slots.effective["n_slots"] == 2 and control.effective["n_slots"] == 4
    assert control.record["argv"] and control.record["checkpoint"]["sha256"]
    assert "llama.cpp b" in control.effective["build"]
    assert any(trial.purpose == MATCHED and trial.concurrency == 2 for trial in control.trials)
    trial = kv.trials[0]
    assert trial.client["output_tokens"] == trial.server["delta"]["output_tokens"]
    requests = pandas.read_parquet(trial.folder / "requests.parquet")
    assert requests["output_tokens"].sum() == trial.client["output_tokens"]
    timeline = pandas.read_parquet(trial.folder / "timeline.parquet")
    assert timeline["running"].max() == 4


def test_all_arms_of_a_pass_read_the_same_prompts(finished):
    lab, _ = finished
    for number in (1, 2):
        judged = [x for x in lab.latest().launches() if x.pass_number == number and x.ok]
        digests = {x.trials[0].record["prompts"]["digest"] for x in judged}
        assert len(digests) == 1, number


def test_notebooks_are_kept_as_pages_with_pictures_and_sentinels(finished):
    lab, _ = finished
    levers = lab.latest().path / "levers"
    for name in ("baseline", "summary", "roofline", *LEVERS):
        for file in ("executed.ipynb", "executed.html", "DONE"):
            assert (levers / name / file).stat().st_size > 0
    for name in ("effect", "running", "roofline"):
        assert (levers / "fewer_slots" / "plots" / f"{name}.png").stat().st_size > 5000
    for name in ("effects", "running", "roofline", "launches"):
        assert (levers / "summary" / "plots" / f"{name}.png").stat().st_size > 5000
    for name in ("roof", "throughput", "gap", "users"):
        assert (levers / "roofline" / "plots" / f"{name}.png").stat().st_size > 5000
    assert (levers / "kv_cache_dtype" / "passes" / "2.ipynb").exists()


def test_the_roofline_spoke_before_the_measurement_and_is_set_against_it_after(finished):
    lab, _ = finished
    run = lab.latest()
    arms = {lever["name"]: arm for lever in run.plan["levers"] for arm in lever["arms"]}
    began = datetime.fromisoformat(run.launches()[0].record["timings"]["started_at"])
    assert (run.path / "plan.json").stat().st_mtime < began.timestamp()
    assert -60 < arms["fewer_slots"]["predicted_pct"] < -40
    assert 0 < arms["kv_cache_dtype"]["predicted_pct"] < 10
    first = (run.path / "levers" / "fewer_slots" / "passes" / "1.ipynb").read_text()
    assert "Roofline expects" in first and "requests at once 4" in first
    summary = (run.path / "levers" / "summary" / "executed.ipynb").read_text()
    assert "expected before" in summary and "requests at once 4" in summary


def test_judging_again_gives_the_same_rows(finished):
    lab, _ = finished
    before = lab.rows()
    answer = lab.run("verdicts", "--rejudge", "--format", "json")
    assert {row["lever"]: row for row in json.loads(answer.stdout)} == before


def test_a_verdict_can_fail_a_script(finished):
    lab, _ = finished
    assert lab.run("verdicts", "--fail-on", "failed").returncode == 1
    assert lab.run("verdicts", "--fail-on", "invalid").returncode == 0


def test_a_finished_run_has_nothing_to_resume(finished):
    lab, _ = finished
    answer = lab.run("run", lab.folder / "short.yaml", "--resume")
    assert answer.returncode == 0
    assert "nothing to resume" in answer.stderr


def test_publishing_again_changes_nothing(finished):
    lab, _ = finished
    answer = lab.run("publish", "short")
    assert answer.returncode == 0, answer.stderr
    published = json.loads(answer.stdout)
    assert published["created"] == 0
    assert published["updated"] == 0
