"""Whatever is wrong in a campaign file is one line with file, line and field, before anything is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab import engines
from lab.campaign import PROJECT, Arm, Campaign, find
from lab.errors import InputError
from lab.prepare import prepare
from tests.builders import StubEngine, control_arm, write_campaign, write_checkpoint


def problem(path: Path, text: str | None = None) -> str:
    """What loading says, without the path; `text` replaces the file's."""
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError) as caught:
        Campaign.load(path)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"{path}:"), message
    return message.removeprefix(f"{path}:")


def preparing(path: Path, only: list[str] | None = None) -> str:
    """What preparing says of a file that loads."""
    with pytest.raises(InputError) as caught:
        prepare(Campaign.load(path), only)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def line_of(path: Path, text: str) -> int:
    return next(n for n, line in enumerate(path.read_text().splitlines(), 1) if line.strip().startswith(text))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_campaign(tmp_path)


def test_a_good_file_is_read_with_its_defaults(path: Path) -> None:
    campaign = Campaign.load(path)
    assert (campaign.name, campaign.rule.metric, campaign.rule.min_effect_pct) == ("small", "output_tok_s", 3)
    assert (campaign.limits.start_seconds, campaign.budget, campaign.hardware) == (1800, None, "auto")
    assert campaign.control.flags == {"slots": 4}
    assert campaign.folder == path.parent.resolve()


def test_hardware_is_named_by_key_or_by_a_file_beside_the_campaign(tmp_path: Path) -> None:
    by_key = Campaign.load(write_campaign(tmp_path, {"hardware": {"gpu": "rtx_pro_6000_server", "count": 4}}))
    found = by_key.named_hardware()
    assert found is not None and found.memory_bandwidth_bytes_s == 1597e9
    (tmp_path / "mine.yaml").write_text("mine: {product: My Card, bandwidth_gb_s: 1000, source: measured}\n")
    by_file = Campaign.load(write_campaign(tmp_path, {"hardware": {"gpu": "mine.yaml", "count": 1}}))
    found = by_file.named_hardware()
    assert found is not None and found.name == "My Card"
    assert Campaign.load(write_campaign(tmp_path)).named_hardware() is None


@pytest.mark.parametrize("path", sorted((PROJECT / "experiments").glob("*.yaml")), ids=lambda path: path.name)
def test_every_experiment_of_the_project_loads(path: Path) -> None:
    assert Campaign.load(path).name


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert problem(tmp_path / "absent.yaml").startswith(" no such file")


def test_a_folder_is_not_a_campaign_file(tmp_path: Path) -> None:
    assert problem(tmp_path).startswith(" is a folder")


def test_a_path_of_the_project_is_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find("experiments/local.yaml") == PROJECT / "experiments" / "local.yaml"


def test_broken_yaml_names_its_line(path: Path) -> None:
    assert problem(path, "name: small\nmodel: {name: a\n").startswith("3: not valid YAML")


def test_a_key_that_stands_twice_is_refused(path: Path) -> None:
    text = path.read_text() + "name: other\n"
    assert problem(path, text) == f"{len(text.splitlines())}: name: this key stands here twice; remove one"


def test_an_unset_variable_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAB_TEST_WEIGHTS", raising=False)
    text = path.read_text().replace("tiny.gguf", "${LAB_TEST_WEIGHTS}/tiny.gguf")
    said = problem(path, text)
    assert "model.checkpoint: the environment variable LAB_TEST_WEIGHTS is not set" in said
    assert said.startswith(f"{line_of(path, 'checkpoint')}:")


def test_a_set_variable_is_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_TEST_WEIGHTS", "/weights")
    path.write_text(path.read_text().replace("tiny.gguf", "${LAB_TEST_WEIGHTS}/tiny.gguf"))
    assert Campaign.load(path).model.checkpoint == "/weights/tiny.gguf"


BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "an unknown key": (
        {"rule.min_efect_pct": 3},
        "min_efect_pct",
        "rule.min_efect_pct: unknown key; did you mean 'min_effect_pct'?",
    ),
    "an unknown section": ({"workload": {}}, "workload: {}", "workload: unknown key; did you mean 'workloads'?"),
    "a wrong type": (
        {"window.seconds": "soon"},
        "seconds",
        "window.seconds: input should be a valid number, got 'soon'",
    ),
    "a number in quotes": (
        {"rule.concurrency": "4"},
        "concurrency: '4'",
        "rule.concurrency: input should be a valid integer, got '4'",
    ),
    "a flag that is a mapping": (
        {"server.flags.slots": {"a": 1}},
        "slots:",
        "server.flags.slots: none of bool, int, float, str, list fits, got {'a': 1}",
    ),
    "an infinite window": (
        {"window.seconds": float("inf")},
        "seconds",
        "window.seconds: input should be a finite number, got inf",
    ),
    "a truth value in the environment": (
        {"server.env": {"WAIT": True}},
        "WAIT",
        "server.env.WAIT: input should be a valid string, got True",
    ),
    "a window of no length": (
        {"window.seconds": 0},
        "seconds",
        "window.seconds: input should be greater than 0, got 0",
    ),
    "more passes at least than at most": (
        {"rule.passes": {"min": 3, "max": 2}},
        "passes",
        "rule.passes: max (2) is below min (3)",
    ),
    "no pass at all": (
        {"rule.passes.min": 0},
        "min:",
        "rule.passes.min: input should be greater than or equal to 1, got 0",
    ),
    "an unknown workload": (
        {"rule.workload": "chatt"},
        "workload: chatt",
        "rule.workload: there is no workload 'chatt'; did you mean 'chat'?",
    ),
    "an unknown kind of workload": (
        {"workloads.chat.kind": "talk"},
        "kind",
        "workloads.chat.kind: unknown kind 'talk'; known: chat, jsonl, random, shared_prefix, trace",
    ),
    "a level that is not measured": (
        {"rule.concurrency": 8},
        "concurrency: 8",
        "rule.concurrency: 8 is not measured by the workload [1, 4]",
    ),
    "a level that stands twice": (
        {"workloads.chat.concurrency": [4, 4]},
        "concurrency:",
        "workloads.chat.concurrency: levels must be distinct whole numbers from 1 to 16384",
    ),
    "no workload": (
        {"workloads": {}},
        "workloads",
        "workloads: dictionary should have at least 1 item after validation, not 0, got {}",
    ),
    "an unknown metric": (
        {"rule.metric": "output_toks"},
        "metric",
        "rule.metric: unknown metric 'output_toks'; did you mean 'output_tok_s'?",
    ),
    "an unknown guard": (
        {"rule.guards": {"ttft_p50": {"max_increase_pct": 10}}},
        "guards",
        "rule.guards: unknown guard 'ttft_p50'; did you mean 'ttft_p50_ms'?",
    ),
    "goodput without limits": (
        {"rule.metric": "goodput_rps"},
        "metric",
        "rule.metric: goodput_rps needs limits; give workloads.chat an slo, as in {ttft_ms: 500}",
    ),
    "a guard on goodput without limits": (
        {"rule.guards": {"goodput_rps": {"max_decrease_pct": 5}}},
        "goodput_rps",
        "rule.guards.goodput_rps: goodput_rps needs limits; give workloads.chat an slo, as in {ttft_ms: 500}",
    ),
    "limits of goodput that limit nothing": (
        {"workloads.chat.slo": {}},
        "slo: {}",
        "workloads.chat.slo: give at least one of ttft_ms, tpot_ms, e2e_ms",
    ),
    "negative least effect": (
        {"rule.min_effect_pct": -1},
        "min_effect_pct",
        "rule.min_effect_pct: input should be greater than or equal to 0, got -1",
    ),
    "alpha of a coin": (
        {"rule.alpha": 0.5},
        "alpha",
        "rule.alpha: input should be less than 0.5, got 0.5",
    ),
    "fewer passes at most than at least": (
        {"rule.passes": {"min": 4, "max": 3}},
        "passes",
        "rule.passes: max (3) is below min (4)",
    ),
    "a guard without a limit": (
        {"rule.guards": {"ttft_p50_ms": {}}},
        "ttft_p50_ms",
        "rule.guards.ttft_p50_ms: give exactly one of max_increase_pct and max_decrease_pct",
    ),
    "a guard with two limits": (
        {"rule.guards": {"ttft_p50_ms": {"max_increase_pct": 1, "max_decrease_pct": 1}}},
        "ttft_p50_ms",
        "rule.guards.ttft_p50_ms: give exactly one of max_increase_pct and max_decrease_pct",
    ),
    "a name with capitals": (
        {"name": "Big Run"},
        "name: Big",
        "name: 'Big Run' may hold only small letters, digits and '-'",
    ),
    "a name that climbs": (
        {"name": "../up"},
        "name: ../up",
        "name: '../up' may hold only small letters, digits and '-'",
    ),
    "a lever with a path in its name": (
        {"levers": {"a/b": {"custom": {}}}},
        "a/b",
        "levers.a/b: a lever's name holds only small letters, digits and '_'",
    ),
    "a lever called as a notebook": (
        {"levers": {"summary": {}}},
        "summary",
        "levers.summary: this name is the lab's own; choose another",
    ),
    "a campaign called as a folder of results": (
        {"name": "mlflow"},
        "name: mlflow",
        "name: 'mlflow' is a folder of its own in results/; choose another name",
    ),
    "a workload that climbs": (
        {"workloads": {"../up": {"kind": "chat", "output_tokens": 8, "concurrency": [4]}}, "rule.workload": "../up"},
        "../up:",
        "workloads.../up: a workload's name holds only small letters, digits, '_' and '-'",
    ),
    "a name that no folder can have": (
        {"name": "a" * 61},
        "name: a",
        f"name: '{'a' * 61}' may hold only small letters, digits and '-'",
    ),
    "a variable that cannot be": (
        {"server.env": {"A=B": "1"}},
        "env",
        "server.env: 'A=B' cannot be an environment variable",
    ),
    "more clients than ports": (
        {"workloads.chat.concurrency": [10**9, 4]},
        "concurrency:",
        "workloads.chat.concurrency: levels must be distinct whole numbers from 1 to 16384",
    ),
    "a lever called as the control": (
        {"levers": {"control": {"custom": {}}}},
        "control",
        "levers.control: this name is the lab's own; choose another",
    ),
    "hardware that is a word": (
        {"hardware": "h200_sxm"},
        "hardware",
        "hardware: 'h200_sxm' is neither auto nor a mapping such as {gpu: h200_sxm, count: 8}",
    ),
    "hardware that is a number": ({"hardware": 8}, "hardware", "hardware: none of str, dict fits, got 8"),
    "an unknown GPU": (
        {"hardware": {"gpu": "h200_sx", "count": 8}},
        "gpu",
        "hardware.gpu: unknown hardware 'h200_sx'; did you mean 'h200_sxm'?",
    ),
    "a GPU of several editions": (
        {"hardware": {"gpu": "H100", "count": 8}},
        "gpu",
        "hardware.gpu: 'H100' comes in editions that differ; name one of h100_sxm (3350 GB/s), h100_pcie (2000 GB/s)",
    ),
    "GPUs without a number": ({"hardware": {"gpu": "h200_sxm"}}, "hardware", "hardware.count: is required and missing"),
    "no GPU at all": (
        {"hardware": {"gpu": "h200_sxm", "count": 0}},
        "count",
        "hardware.count: input should be greater than or equal to 1, got 0",
    ),
    "an unknown key of the hardware": (
        {"hardware": {"gpu": "h200_sxm", "counts": 8}},
        "counts",
        "hardware.counts: unknown key; did you mean 'count'?",
    ),
    "a lever without a mapping": (
        {"levers": {"mtp": None}},
        "mtp",
        "levers.mtp: input should be a valid dictionary, got None",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_with_line_and_field(tmp_path: Path, case: str) -> None:
    changes, at, expected = BAD[case]
    path = write_campaign(tmp_path, changes)
    assert problem(path) == f"{line_of(path, at)}: {expected}"


def test_a_missing_section_is_named(path: Path) -> None:
    text = "".join(line for line in path.read_text().splitlines(True) if "checkpoint" not in line)
    assert problem(path, text).endswith("model.checkpoint: is required and missing")


def test_numbers_in_an_environment_become_text_in_control_and_treatment(tmp_path: Path, stub: StubEngine) -> None:
    treatment = {"env": {"WAIT": 1}}
    path = write_campaign(
        tmp_path, {"server.env": {"WAIT": 0, "RATE": 0.5}, "levers.fewer_slots.custom.treatment": treatment}
    )
    prepared = prepare(Campaign.load(path))
    assert prepared.campaign.control.env == {"WAIT": "0", "RATE": "0.5"}
    assert prepared.levers[0].arms[0]["env"] == {"WAIT": "1", "RATE": "0.5"}


def test_a_campaign_that_is_right_can_be_prepared(path: Path, stub: StubEngine) -> None:
    prepared = prepare(Campaign.load(path))
    assert [lever.name for lever in prepared.levers] == ["fewer_slots"]
    assert prepared.levers[0].arms[0]["flags"] == {"slots": 2}
    assert (prepared.model.name, prepared.passes) == ("tiny", 3)


def test_the_number_of_passes_can_be_overruled(path: Path, stub: StubEngine) -> None:
    assert prepare(Campaign.load(path), passes=1).passes == 1


def test_only_the_levers_asked_for_are_prepared(tmp_path: Path, stub: StubEngine) -> None:
    more = {"custom": {"title": "One slot", "treatment": {"flags": {"slots": 1}}}}
    path = write_campaign(tmp_path, {"levers.one_slot": more})
    assert [lever.name for lever in prepare(Campaign.load(path), ["one_slot"]).levers] == ["one_slot"]
    assert "levers: there is no lever 'one_slots' in it; did you mean 'one_slot'?" in preparing(path, ["one_slots"])


def test_an_unknown_lever_comes_with_the_nearest_one(tmp_path: Path, stub: StubEngine) -> None:
    path = write_campaign(tmp_path, {"levers": {"autotunes": {}}})
    expected = (
        f"{path}:{line_of(path, 'autotunes')}: levers.autotunes: unknown lever 'autotunes'; did you mean 'autotune'?"
    )
    assert preparing(path).startswith(expected)


def test_an_unknown_option_of_a_lever_comes_with_the_nearest_one(tmp_path: Path, stub: StubEngine) -> None:
    path = write_campaign(tmp_path, {"levers": {"mtp": {"methd": "ngram"}}})
    assert preparing(path) == (
        f"{path}:{line_of(path, 'methd')}: levers.mtp.methd: unknown key; did you mean 'method'?"
    )


def test_a_treatment_equal_to_the_control_is_refused(tmp_path: Path, stub: StubEngine) -> None:
    path = write_campaign(tmp_path, {"levers.fewer_slots.custom.treatment.flags.slots": 4})
    said = preparing(path)
    assert said.startswith(
        f"{path}:{line_of(path, 'fewer_slots')}: levers.fewer_slots: the treatment is equal to the control"
    )


def test_a_missing_checkpoint_of_the_control_is_refused(tmp_path: Path, stub: StubEngine) -> None:
    path = write_campaign(tmp_path, {"model.checkpoint": "absent.gguf"})
    said = preparing(path)
    assert said.startswith(f"{path}:{line_of(path, 'checkpoint')}: model.checkpoint: ")
    assert said.endswith("absent.gguf: no such file")


def test_a_missing_checkpoint_of_a_treatment_is_refused_at_its_lever(tmp_path: Path, stub: StubEngine) -> None:
    path = write_campaign(tmp_path, {"levers": {"nvfp4_checkpoint": {"checkpoint": "absent.gguf"}}})
    assert preparing(path).startswith(f"{path}:{line_of(path, 'nvfp4_checkpoint')}: levers.nvfp4_checkpoint: ")


def test_paths_are_relative_to_the_file(tmp_path: Path, stub: StubEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoint(tmp_path / "weights" / "other.gguf")
    path = write_campaign(tmp_path, {"levers": {"nvfp4_checkpoint": {"checkpoint": "weights/other.gguf"}}})
    monkeypatch.chdir("/")
    assert prepare(Campaign.load(path)).levers[0].arms[0]["checkpoint"] == "weights/other.gguf"


def test_an_unknown_engine_comes_with_the_nearest_one(tmp_path: Path, stub: StubEngine) -> None:
    path = write_campaign(tmp_path, {"server.engine": "stubb"})
    assert preparing(path) == (
        f"{path}:{line_of(path, 'engine')}: server.engine: unknown engine 'stubb'; did you mean 'stub'?"
    )
    assert "stub" in engines.names()


def test_a_flag_that_the_engine_does_not_know_is_refused(tmp_path: Path, stub: StubEngine) -> None:
    path = write_campaign(tmp_path, {"levers.fewer_slots.custom.treatment.flags": {"slotz": 2}})
    assert preparing(path) == f"{path}: arm 'fewer_slots': unknown flag 'slotz'; did you mean 'slots'?"


def test_a_lever_that_does_not_apply_has_no_arms_and_a_reason(tmp_path: Path, stub: StubEngine) -> None:
    path = write_campaign(tmp_path, {"levers": {"nccl_ll_ring": {}, "expert_parallel": {}}})
    levers = prepare(Campaign.load(path)).levers
    assert [lever.arms for lever in levers] == [(), ()]
    assert "no collectives" in (levers[0].not_applicable or "")
    assert "dense model" in (levers[1].not_applicable or "")


def test_the_digest_of_an_arm_forgets_its_name_and_nothing_else() -> None:
    arm = control_arm(flags={"n_parallel": 4})
    assert arm.model_copy(update={"name": "x", "lever": "y", "treatment": "z"}).digest == arm.digest
    for other in ({"flags": {"n_parallel": 2}}, {"env": {"A": "1"}}, {"checkpoint": "b"}, {"runtime": {"python": "p"}}):
        assert control_arm(**{"flags": {"n_parallel": 4}, **other}).digest != arm.digest


def test_a_changed_arm_replaces_adds_and_removes() -> None:
    control = Arm(name="control", engine="stub", checkpoint="a", flags={"x": 1, "y": 2}, env={"A": "1"})
    arm = control.changed("t", "lever", "words", flags={"x": None, "z": 3}, env={"A": None})
    assert (arm.flags, arm.env, arm.checkpoint, arm.lever, arm.treatment) == (
        {"y": 2, "z": 3},
        {},
        "a",
        "lever",
        "words",
    )
