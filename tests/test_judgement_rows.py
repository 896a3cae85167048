"""What else a verdict row says: guards, the bound, the adjusted p, and judgements that stand beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.campaign import CONTROL
from lab.errors import InputError
from lab.files import read_json
from lab.judgement import judge, write
from lab.records import CLOSING, OPENING, TREATMENT
from lab.report import words
from lab.row_figures import adjust
from tests.builders import CAPPED, RunBuilder, lever_plan


def builder(folder: Path, *names: str, **values: Any) -> RunBuilder:
    return RunBuilder(folder, [lever_plan(name) for name in names], **values)


def row_of(build: RunBuilder, lever: str = "mtp") -> dict[str, Any]:
    return next(row for row in judge(build.run).rows if row["lever"] == lever)


def test_missing_values_of_the_metric_leave_their_launch_out(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp", rule={"metric": "ttft_p50_ms"})
    build.passes(2, {"mtp": 120}, treatments={"mtp": {"changes": {"metrics.ttft_p50_ms": None}}})
    row = row_of(build)
    assert (row["verdict"], row["effect_pct"], row["metric"]) == ("inconclusive", None, "ttft_p50_ms")


def test_lower_is_better_for_a_latency(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp", rule={"metric": "ttft_p50_ms"}, passes=2)
    build.launch(CONTROL, 0, OPENING, changes={"metrics.ttft_p50_ms": 505.0})
    for number in (1, 2):
        build.launch("mtp", number, TREATMENT, changes={"metrics.ttft_p50_ms": 400.0 + number})
        build.launch(CONTROL, number, CLOSING, changes={"metrics.ttft_p50_ms": 500.0 - number})
    row = row_of(build)
    assert row["verdict"] == "adopt"
    assert row["effect_pct"] == pytest.approx(-20, abs=1)


def test_goodput_of_none_is_worse_than_goodput_of_some(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp", rule={"metric": "goodput_rps"}, workload={"slo": {"ttft_ms": 500}}, passes=3)
    build.launch(CONTROL, 0, OPENING, changes={"metrics.goodput_rps": 5.0})
    for number in (1, 2, 3):
        build.launch("mtp", number, TREATMENT, changes={"metrics.goodput_rps": 0.0})
        build.launch(CONTROL, number, CLOSING, changes={"metrics.goodput_rps": 5.0 + number / 10})
    row = row_of(build)
    assert row["verdict"] == "reject"
    assert -99.9 < row["effect_pct"] < -95


def test_throughput_per_gpu_sees_that_twice_the_gpus_served(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp", rule={"metric": "tok_s_per_gpu"}, passes=2)
    build.launch(CONTROL, 0, OPENING, facts={"gpus": 4})
    for number in (1, 2):
        build.launch("mtp", number, TREATMENT, 150, facts={"gpus": 8})
        build.launch(CONTROL, number, CLOSING, facts={"gpus": 4})
    row = row_of(build)
    assert (row["verdict"], round(row["effect_pct"])) == ("reject", -25)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"metric": "tok_s_per_gpu"}, "cannot tell the rule's metric tok_s_per_gpu: the server did not say how many"),
        ({"metric": "goodput_rps"}, "the rule's metric goodput_rps: the workload chat had no slo when it was measured"),
        ({"workload": "code"}, "its rule is about code at C=4, its judged windows are of chat at C=4"),
        ({"concurrency": 1}, "its rule is about chat at C=1, its judged windows are of chat at C=4"),
    ],
)
def test_records_that_cannot_answer_the_rule_are_named(tmp_path: Path, rule: dict[str, Any], said: str) -> None:
    build = builder(tmp_path, "mtp", passes=2)
    build.passes(2, {"mtp": 120})
    frozen = judge(build.run).rule
    with pytest.raises(InputError, match="\\A[^\n]*" + said):
        judge(build.run, frozen.model_copy(update=rule))


def guarded(folder: Path, guards: dict[str, Any], passes: int, **treatment: Any) -> dict[str, Any]:
    build = builder(folder, "mtp", rule={"guards": guards})
    noise = {number: 500.0 + (number % 3) for number in range(10)}
    build.launch(CONTROL, 0, OPENING, changes={"metrics.ttft_p50_ms": noise[0]})
    for number in range(1, passes + 1):
        build.launch("mtp", number, TREATMENT, 120, **treatment)
        build.launch(CONTROL, number, CLOSING, changes={"metrics.ttft_p50_ms": noise[number]})
    return row_of(build)


@pytest.mark.parametrize(("ttft", "state", "label"), [(505, "held", "adopt"), (700, "broken", "reject")])
def test_a_guard_holds_or_breaks(tmp_path: Path, ttft: float, state: str, label: str) -> None:
    guards = {"ttft_p50_ms": {"max_increase_pct": 10.0}}
    row = guarded(tmp_path, guards, 3, changes={"metrics.ttft_p50_ms": ttft})
    assert (row["guards"], row["verdict"]) == ({"ttft_p50_ms": state}, label)


def test_a_guard_whose_interval_holds_its_limit_is_unknown(tmp_path: Path) -> None:
    guards = {"ttft_p50_ms": {"max_increase_pct": 10.0}}
    row = guarded(tmp_path, guards, 3, changes={"metrics.ttft_p50_ms": 551.0})
    assert row["guards"] == {"ttft_p50_ms": "unknown"}


def test_a_guard_is_unknown_without_values_or_an_interval(tmp_path: Path) -> None:
    guards = {"ttft_p50_ms": {"max_increase_pct": 10.0}}
    missing = guarded(tmp_path / "a", guards, 3, changes={"metrics.ttft_p50_ms": None})
    screened = guarded(tmp_path / "b", guards, 1, changes={"metrics.ttft_p50_ms": 900.0})
    assert missing["guards"] == screened["guards"] == {"ttft_p50_ms": "unknown"}
    assert screened["verdict"] == "inconclusive"


@pytest.mark.parametrize(("tokens", "state"), [(4000, "held"), (2048, "broken"), (8192, "held")])
def test_a_guard_on_the_room_of_the_cache_reads_what_the_server_said(tmp_path: Path, tokens: int, state: str) -> None:
    row = guarded(tmp_path, {"kv_tokens": {"max_decrease_pct": 10.0}}, 2, facts={"kv_tokens": tokens})
    assert row["guards"] == {"kv_tokens": state}


def test_the_bound_is_that_of_the_batch_that_ran(tmp_path: Path) -> None:
    build = builder(tmp_path, "slots")
    build.passes(2, {"slots": 60}, treatments={"slots": CAPPED})
    row = row_of(build, "slots")
    weights, kv = 1_000_000, 2 * 2 * 2 * 16 * 2 * 80.0
    assert row["bound_tok_s"] == pytest.approx(2.0 * 1e8 / (weights + 2.0 * kv))
    assert row["bound_fraction"] == pytest.approx(60 / row["bound_tok_s"], rel=0.01)
    assert row["bound_fraction_control"] == pytest.approx(100 / (3.98 * 1e8 / (weights + 3.98 * kv)), rel=0.01)
    admitted = (2 / (weights + 2 * kv)) / (4 / (weights + 4 * kv))
    assert row["predicted_effect_pct"] == pytest.approx(100 * (admitted - 1))


@pytest.mark.parametrize(
    ("control", "treatment", "found"),
    [
        (100, 120, []),
        (75, 75, []),
        (100, 50, ["structural-gap"]),
        (50, 100, ["structural-gap-control"]),
        (50, 50, ["structural-gap"]),
    ],
)
def test_an_arm_below_a_fifth_of_its_bound_is_a_finding_in_plain_words(
    tmp_path: Path, control: float, treatment: float, found: list[str]
) -> None:
    build = builder(tmp_path, "mtp")
    build.passes(2, {"mtp": treatment}, control={"tok_s": control})
    row = row_of(build)
    gaps = [name for name in row["findings"] if name.startswith("structural-gap")]
    assert gaps == found and (row["structural_gap"] is None) == (not found)
    if found:
        share = row["bound_fraction"] if found == ["structural-gap"] else row["bound_fraction_control"]
        assert f"is {100 * share:.1f} % of the 368 tok/s" in row["structural_gap"]
        ms = 1e3 * 3.98 / (share * row["bound_tok_s"])
        each = (ms - 1e3 * 3.98 / row["bound_tok_s"]) / 2
        assert f"{each:.3g} ms of each layer go elsewhere" in row["structural_gap"]
        whose = "" if found == ["structural-gap"] else "of the control alone: "
        assert words.explanations([row]) == [f"{found[0]} (mtp (mtp on)): {whose}{row['structural_gap']}"]
    else:
        assert words.explanations([row]) == []


def test_without_a_known_bound_no_gap_is_told(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp")
    slow = {"tok_s": 1.0, "changes": {"metrics.mean_context_tokens": None}}
    build.passes(2, {"mtp": 1}, control=slow, treatments={"mtp": {"changes": slow["changes"]}})
    row = row_of(build)
    assert (row["bound_fraction"], row["structural_gap"]) == (None, None)
    assert not any("structural" in name for name in row["findings"])


def test_an_arm_that_never_ran_tells_no_gap(tmp_path: Path) -> None:
    absent = lever_plan("nccl", arms=(), not_applicable="one device")
    build = RunBuilder(tmp_path, [lever_plan("mtp"), absent])
    build.passes(2, {"mtp": 50}, control={"tok_s": 50})
    row = row_of(build, "nccl")
    assert (row["findings"], row["structural_gap"]) == ([], None)


@pytest.mark.parametrize(("gpus", "told"), [(4, False), (8, True), (None, False)])
def test_more_devices_than_the_file_names_is_a_finding(tmp_path: Path, gpus: int | None, told: bool) -> None:
    build = builder(tmp_path, "mtp")
    build.run.campaign["file"]["hardware"] = {"gpu": "h200_sxm", "count": 4}
    build.passes(2, {"mtp": 120}, treatments={"mtp": {"facts": {"gpus": gpus}}})
    row = row_of(build)
    assert ("more-devices-than-named" in row["findings"]) == told
    assert any("hardware.count" in text for text in words.explanations([row])) == told


def test_throughput_per_gpu_takes_the_files_count_where_the_server_shows_none(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp", rule={"metric": "tok_s_per_gpu"})
    build.passes(
        2, {"mtp": 120}, control={"gpus_named": 4}, treatments={"mtp": {"gpus_named": 4, "facts": {"gpus": 8}}}
    )
    assert row_of(build)["effect_pct"] == pytest.approx(-40, abs=1)


def test_a_rule_on_another_metric_is_not_held_against_the_predicted_throughput(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp", rule={"metric": "tpot_p50_ms"}, passes=2)
    wide = {"facts": {"kv_dtype_k": "f32", "kv_dtype_v": "f32"}}
    build.launch(CONTROL, 0, OPENING, changes={"metrics.tpot_p50_ms": 41.0})
    for number in (1, 2):
        build.launch("mtp", number, TREATMENT, changes={"metrics.tpot_p50_ms": 60.0 + number}, **wide)
        build.launch(CONTROL, number, CLOSING, changes={"metrics.tpot_p50_ms": 40.0 + number / 10})
    row = row_of(build)
    assert row["predicted_effect_pct"] < 0 < row["ci_low_pct"]
    assert "expected-sign-missed" not in row["findings"] and "model-error" not in row["codes"]


def test_a_lever_that_the_bound_does_not_see_has_no_prediction(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp")
    build.passes(2, {"mtp": 120})
    assert row_of(build)["predicted_effect_pct"] is None


def test_without_a_batch_there_is_no_bound(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp")
    build.passes(1, {"mtp": 120}, treatments={"mtp": {"changes": {"metrics.mean_context_tokens": None}}})
    assert (row_of(build)["bound_tok_s"], row_of(build)["bound_fraction"]) == (None, None)


def test_fewer_bytes_of_the_cache_are_expected_to_help(tmp_path: Path) -> None:
    build = builder(tmp_path, "kv")
    build.passes(2, {"kv": 100}, treatments={"kv": {"facts": {"kv_dtype_k": "q8_0", "kv_dtype_v": "q8_0"}}})
    assert row_of(build, "kv")["predicted_effect_pct"] > 0


def test_the_adjusted_p_is_holms_over_the_campaign() -> None:
    rows = [{"p_value": p, "p_adjusted": None} for p in (0.01, 0.04, 0.03, None, 0.9)]
    adjust(rows)
    assert [row["p_adjusted"] for row in rows] == [0.04, pytest.approx(0.09), 0.09, None, 0.9]


def test_the_adjusted_p_is_a_column_of_every_tested_row(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp", "graphs", "never")
    build.passes(3, {"mtp": 120, "graphs": 100})
    rows = {row["lever"]: row for row in judge(build.run).rows}
    assert rows["mtp"]["p_adjusted"] == pytest.approx(2 * rows["mtp"]["p_value"])
    assert rows["graphs"]["p_adjusted"] == rows["graphs"]["p_value"]
    assert rows["never"]["p_adjusted"] is None


def test_the_same_records_give_the_same_rows(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp")
    build.passes(2, {"mtp": 120})
    assert judge(build.run) == judge(build.run)


def test_judging_writes_nothing(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp")
    build.passes(2, {"mtp": 120})
    before = sorted(build.run.path.rglob("*"))
    judge(build.run)
    assert sorted(build.run.path.rglob("*")) == before


def test_a_judgement_under_another_rule_stands_beside_the_old_one(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp")
    build.passes(2, {"mtp": 120})
    write(build.run, judge(build.run))
    stricter = build.rule.model_copy(update={"min_effect_pct": 40.0})
    write(build.run, judge(build.run, stricter))
    folder = build.run.path / "judgements"
    assert {path.name for path in folder.iterdir()} == {build.rule.digest(), stricter.digest()}
    old, new = (read_json(folder / rule.digest() / "verdicts.json") for rule in (build.rule, stricter))
    assert (old[0]["verdict"], new[0]["verdict"]) == ("adopt", "no-effect")
    assert build.run.damaged() == []


def test_the_audits_of_every_trial_are_kept(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp")
    build.passes(1, {"mtp": 120}, treatments={"mtp": {"changes": {"server.samples": 1}}})
    judgement = judge(build.run)
    write(build.run, judgement)
    audits = read_json(build.run.path / "judgements" / build.rule.digest() / "audits.json")
    assert [(entry["trial"], entry["valid"]) for entry in audits] == [
        ("000-control/chat-c4", True),
        ("001-mtp/chat-c4", False),
        ("002-control/chat-c4", True),
    ]
    assert audits[1]["codes"][0]["code"] == "gate-misaligned"
    assert read_json(build.run.path / "judgements" / build.rule.digest() / "verdicts.json") == judgement.rows


def test_a_lever_that_gains_throughput_and_loses_the_first_token_says_so(tmp_path: Path) -> None:
    build = builder(tmp_path, "mtp", passes=3)
    build.launch(CONTROL, 0, OPENING, changes={"metrics.ttft_p50_ms": 500.0})
    for number in (1, 2, 3):
        build.launch("mtp", number, TREATMENT, 120, changes={"metrics.ttft_p50_ms": 600.0 + number})
        build.launch(CONTROL, number, CLOSING, changes={"metrics.ttft_p50_ms": 500.0 - number})
    row = row_of(build)
    assert (row["verdict"], row["findings"]) == ("adopt", ["trade-off"])
    assert "; it costs ttft_p50_ms +2" in row["reason"]
