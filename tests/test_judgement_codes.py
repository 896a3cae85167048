"""Codes between arms and of whole launches in a verdict row: what they refuse, withdraw, or only tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.campaign import CONTROL
from lab.files import read_json
from lab.judgement import capped_batches, judge, write
from lab.records import BURN_IN, CLOSING, OPENING, SEARCH, TREATMENT
from tests.builders import CAPPED, TRIAL, RunBuilder, lever_plan


def builder(folder: Path, *names: str, **values: Any) -> RunBuilder:
    return RunBuilder(folder, [lever_plan(name) for name in names], **values)


def row_of(build: RunBuilder, lever: str = "mtp") -> dict[str, Any]:
    return next(row for row in judge(build.run).rows if row["lever"] == lever)


def judged(
    folder: Path, treatment: dict[str, Any], control: dict[str, Any] | None = None, **values: Any
) -> dict[str, Any]:
    """The row of a lever over two passes."""
    lever = values.pop("lever", "mtp")
    build = builder(folder, lever, **values)
    build.passes(2, {lever: 120}, control=control, treatments={lever: treatment})
    return row_of(build, lever)


def failed(kind: str, state: str = "failed") -> dict[str, Any]:
    return {"state": state, "failure": {"kind": kind, "reason": "why", "detail": ""}}


def answers(right: int, items: int = 200, protocol: str = "p") -> dict[str, Any]:
    ids = [f"item{number}" for number in range(items)]
    return {"items": items, "right": ids[:right], "wrong": ids[right:], "unparsed": 0, "protocol": protocol}


def test_passes_may_differ_in_prompts_and_the_arms_of_one_pass_may_not(tmp_path: Path) -> None:
    for name, differs in (("same", False), ("other", True)):
        build = builder(tmp_path / name, "mtp", passes=2)
        build.launch(CONTROL, 0, OPENING, changes={"prompts.digest": "0" * 64})
        for number in (1, 2):
            digest = {"prompts.digest": f"{number}" * 64}
            build.launch("mtp", number, TREATMENT, 120, changes={"prompts.digest": "f" * 64} if differs else digest)
            build.launch(CONTROL, number, CLOSING, changes=digest)
        row = row_of(build)
        expected = ("invalid", ["prompt-set-differs"]) if differs else ("adopt", [])
        assert (row["verdict"], row["codes"]) == expected


def test_a_machine_that_changed_in_the_middle_of_a_run_is_seen_in_the_controls(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp")
    build.launch(CONTROL, 0, OPENING, build="1")
    for number in (1, 2):
        build.launch("mtp", number, TREATMENT, 120, build=str(number))
        build.launch(CONTROL, number, CLOSING, build=str(number))
    found = {entry.trial.launch.id: [c.code for c in entry.codes] for entry in judge(build.run).audited}
    assert found["002-control"] == []
    assert found["004-control"] == ["arms-not-comparable"]
    assert "arms-not-comparable" in found["003-mtp"]


def test_a_treatment_on_another_build_is_invalid(tmp_path: Path) -> None:
    row = judged(tmp_path, {"build": "2"}, {"build": "1"})
    assert (row["verdict"], row["codes"]) == ("invalid", ["arms-not-comparable"])


@pytest.mark.parametrize(("lever", "verdict"), [("cuda_graphs", "invalid"), ("mtp", "adopt"), ("of_my_own", "adopt")])
def test_shorter_answers_refuse_a_lever_unless_it_may_change_the_text(tmp_path: Path, lever: str, verdict: str) -> None:
    long, short = (
        {"changes": {"client.prompts_measured": list(range(40)), "client.lengths_measured": [value] * 40}}
        for value in (20, 15)
    )
    row = judged(tmp_path, short, long, lever=lever)
    assert (row["verdict"], row["codes"]) == (verdict, ["output-length-drift"])


def test_a_withdrawn_metric_is_missing_and_the_trial_stands(tmp_path: Path) -> None:
    predicted = {"changes": {"predicted": ["ttft_p50_ms"]}}
    build = builder(tmp_path, "mtp", rule={"metric": "ttft_p50_ms"})
    build.passes(2, {"mtp": 120}, treatments={"mtp": predicted})
    row = row_of(build)
    assert (row["verdict"], row["effect_pct"], row["codes"]) == ("inconclusive", None, ["model-error"])
    assert row["reason"] == "ttft_p50_ms was withdrawn: model-error: ttft_p50_ms was predicted by a model, not measured"
    assert all(entry.valid for entry in judge(build.run).audited)


def test_one_withdrawn_figure_leaves_its_launch_out_and_is_told(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp", rule={"metric": "ttft_p50_ms"})
    build.launch(CONTROL, 0, OPENING)
    for number in (1, 2, 3):
        changes: dict[str, Any] = {"metrics.ttft_p50_ms": 400.0 + number}
        changes |= {"predicted": ["ttft_p50_ms"], "metrics.ttft_p50_ms": 1.0} if number == 2 else {}
        build.launch("mtp", number, TREATMENT, changes=changes)
        build.launch(CONTROL, number, CLOSING, changes={"metrics.ttft_p50_ms": 500.0 - number})
    row = row_of(build)
    assert (row["verdict"], row["launches"], row["codes"]) == ("adopt", 2 + 4, ["model-error"])
    assert row["effect_pct"] == pytest.approx(-19, abs=2)


def test_a_withdrawn_guard_is_unknown_and_the_effect_stands(tmp_path: Path) -> None:
    guards = {"guards": {"ttft_p50_ms": {"max_increase_pct": 10.0}}}
    row = judged(tmp_path, {"changes": {"predicted": ["ttft_p50_ms"]}}, rule=guards)
    assert (row["verdict"], row["guards"], row["codes"]) == ("adopt", {"ttft_p50_ms": "unknown"}, ["model-error"])


def test_an_arm_that_does_not_fit_carries_its_code(tmp_path: Path) -> None:
    row = judged(tmp_path, failed("out-of-memory"))
    assert (row["verdict"], row["codes"]) == ("failed", ["oom-stops-sweep"])


def test_a_server_that_was_never_ready_carries_its_code(tmp_path: Path) -> None:
    ready = {"health": True, "completion_tokens": None, "model": None}
    row = judged(tmp_path, {**failed("start-timeout"), "ready": ready})
    assert (row["verdict"], row["codes"]) == ("failed", ["false-ready"])


@pytest.mark.parametrize(("times", "codes"), [(1, []), (2, ["hang"])])
def test_a_hang_is_told_when_it_recurs(tmp_path: Path, times: int, codes: list[str]) -> None:
    build = builder(tmp_path, "mtp")
    build.launch(CONTROL, 0, OPENING)
    for number in (1, 2, 3, 4):
        hung = failed("unresponsive", "died") if number <= times else {}
        build.launch("mtp", number, TREATMENT, 120, **hung)
        build.launch(CONTROL, number, CLOSING)
    row = row_of(build)
    assert (row["verdict"], row["codes"], row["findings"]) == ("adopt", codes, ["launch-died"])


def test_a_launch_that_shared_its_gpu_feeds_no_verdict(tmp_path: Path) -> None:
    idle, shared = (
        {"machine": {"cpu_cores_logical": 2, "gpus": [{"index": 0, "memory_used_bytes": size}]}}
        for size in (0, 40 * 1024**3)
    )
    build = builder(tmp_path, "mtp")
    build.passes(2, {"mtp": 120}, control=idle, treatments={"mtp": shared})
    assert (row_of(build)["verdict"], row_of(build)["codes"]) == ("invalid", ["orphan-process"])
    write(build.run, judge(build.run))
    kept = read_json(build.run.path / "judgements" / build.rule.digest() / "launch_audits.json")
    assert [(entry["launch"], [code["code"] for code in entry["codes"]]) for entry in kept] == [
        ("000-control", []),
        ("001-mtp", ["orphan-process"]),
        ("002-control", []),
        ("003-mtp", ["orphan-process"]),
        ("004-control", []),
    ]


def test_a_burn_in_is_never_judged_and_is_told(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp")
    build.launch(CONTROL, 0, BURN_IN, 20)
    build.launch("mtp", 0, BURN_IN, 10, **CAPPED)
    assert capped_batches(build.run) == []
    build.passes(2, {"mtp": 120})
    row = row_of(build)
    assert (row["verdict"], row["launches"], row["findings"]) == ("adopt", 2 + 3, ["first-launch"])
    assert row["effect_pct"] == pytest.approx(20, abs=1)


@pytest.mark.parametrize(
    ("mine", "theirs", "state", "verdict", "codes"),
    [
        (answers(190), answers(190), "same", "adopt", []),
        (answers(170), answers(190), "worse", "reject", ["accuracy-regression"]),
        (answers(10), answers(190), "broken", "reject", ["accuracy-regression"]),
        (answers(19, 20), answers(19, 20), "unknown", "inconclusive", ["accuracy-underpowered"]),
        (answers(190, protocol="q"), answers(190), "unknown", "inconclusive", ["accuracy-underpowered"]),
        (None, answers(190), "not-tested", "adopt", []),
        (answers(10), None, "not-tested", "adopt", []),
    ],
)
def test_the_gate_of_the_answers_refuses_a_faster_lever(
    tmp_path: Path, mine: Any, theirs: Any, state: str, verdict: str, codes: list[str]
) -> None:
    row = judged(tmp_path, {"accuracy": mine}, {"accuracy": theirs})
    assert (row["accuracy"], row["verdict"], row["codes"]) == (state, verdict, codes)
    assert row["effect_pct"] == pytest.approx(20, abs=1)


def test_the_first_record_of_each_arm_is_the_one_that_is_tested(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp")
    build.launch(CONTROL, 0, OPENING)
    for number in (1, 2):
        build.launch("mtp", number, TREATMENT, 120, accuracy=answers(190 if number == 1 else 10))
        build.launch(CONTROL, number, CLOSING, accuracy=answers(190))
    assert (row_of(build)["accuracy"], row_of(build)["codes"]) == ("same", [])


def test_unknown_answers_do_not_forbid_adoption_where_the_campaign_allows_it(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp")
    build.run.campaign["file"]["accuracy"] = {"allow_unknown": True}
    probed = {"accuracy": answers(19, 20)}
    build.passes(2, {"mtp": 120}, control=probed, treatments={"mtp": probed})
    row = row_of(build)
    assert (row["verdict"], row["accuracy"]) == ("adopt", "unknown")
    assert row["reason"].endswith("accuracy is unknown")


def test_clocks_apart_are_code_and_finding(tmp_path: Path) -> None:
    slow, fast = ({"changes": {"machine.gpu_clock_mhz": mhz}} for mhz in (1800.0, 2000.0))
    row = judged(tmp_path, slow, fast)
    assert (row["verdict"], row["codes"], row["findings"]) == ("adopt", ["throttled"], ["throttled"])


def test_a_lever_that_does_the_opposite_of_its_prediction_is_told(tmp_path: Path) -> None:
    row = judged(tmp_path, {"facts": {"kv_dtype_k": "f32", "kv_dtype_v": "f32"}})
    assert row["predicted_effect_pct"] < 0 < row["effect_pct"]
    assert (row["verdict"], row["codes"], row["findings"]) == ("adopt", ["model-error"], ["expected-sign-missed"])


def test_all_controls_before_all_treatments_is_no_fair_order(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp", mode="block")
    for name, role, number in ((CONTROL, OPENING, 0), (CONTROL, CLOSING, 1), (CONTROL, CLOSING, 1)):
        build.launch(name, number, role)
    for number in (2, 3):
        build.launch("mtp", number, TREATMENT, 120)
    assert row_of(build)["codes"] == ["order-drift"]


def test_a_block_by_hand_has_no_null(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp", mode="block")
    for name, role, number in (
        (CONTROL, OPENING, 0),
        ("mtp", TREATMENT, 1),
        ("mtp", TREATMENT, 1),
        (CONTROL, CLOSING, 1),
    ):
        build.launch(name, number, role, 120 if name == "mtp" else 100)
    assert row_of(build)["codes"] == ["no-null"]


@pytest.mark.parametrize(("candidates", "curse"), [(3, False), (4, True)])
def test_the_best_of_many_candidates_is_doubted_until_it_is_measured_afresh(
    tmp_path: Path, candidates: int, curse: bool
) -> None:
    build = builder(tmp_path, "mtp")
    build.launch(CONTROL, 0, OPENING)
    for tok_s in range(candidates):
        build.launch("mtp", 1, SEARCH, 100 + tok_s)
    build.launch("mtp", 1, TREATMENT, 120)
    codes = [code.code for entry in judge(build.run).audited if entry.judged for code in entry.codes]
    assert ("winners-curse" in codes) == curse
    build.launch("mtp", 1, TREATMENT, 120)
    assert all(code.code != "winners-curse" for entry in judge(build.run).audited for code in entry.codes)


def test_more_tokens_than_memory_can_feed_are_doubted(tmp_path: Path) -> None:
    row = judged(tmp_path, {"changes": {"metrics.output_tok_s": 1e6}})
    assert "over-roofline" in row["codes"]
    assert row["bound_fraction"] > 100


def test_one_measurement_under_two_numbers_counts_once(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp")
    same = {"window.opened_s": 1100.0, "window.opened_at": TRIAL["window"]["opened_at"]}
    build.passes(2, {"mtp": 120}, treatments={"mtp": {"changes": same}})
    row = row_of(build)
    assert (row["verdict"], row["screened"], row["launches"]) == ("inconclusive", True, 1 + 3)
    assert "repeat-not-measured" in [code.code for entry in judge(build.run).audited for code in entry.codes]
    build.launch("mtp", 3, TREATMENT, 120, changes=same)
    assert (row_of(build)["verdict"], row_of(build)["codes"]) == ("invalid", ["repeat-not-measured"])
