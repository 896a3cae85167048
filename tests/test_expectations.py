"""Predictions in the plan: before any launch, from flags, and from the last record of the control if there is one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab import expectations
from lab.campaign import Arm, Campaign
from lab.errors import InputError
from lab.files import read_json
from lab.lever_study import Study
from lab.observe import bandwidth
from lab.prepare import create_run, prepare
from lab.roofline.model import Model
from lab.runs import Run, results_folder
from tests.builders import HARDWARE, MODEL, StubEngine, changed, write_campaign, write_checkpoint, write_launch
from tests.trial_values import TRIAL

OTHER = {"other": {"custom": {"title": "Another file", "treatment": {"checkpoint": "other.gguf"}}}}


@pytest.fixture(autouse=True)
def machine(stub: StubEngine, results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that starts nothing, on processors of a known bandwidth."""
    monkeypatch.setattr(StubEngine, "leaves_gpus_alone", True)
    monkeypatch.setattr(bandwidth, "probe", lambda: HARDWARE)


def opened(folder: Path, changes: dict[str, Any] | None = None) -> Run:
    campaign = Campaign.load(write_campaign(folder, changes))
    return create_run(prepare(campaign), results_folder(), "campaign")


def model_of(engine: StubEngine, arm: Arm) -> tuple[None, Model]:
    """The builders' model of 1 MB; the other file reads twice as much in a step."""
    return None, replace(MODEL, weight_bytes_per_step=2_000_000 if "other" in arm.checkpoint else 1_000_000)


def arm_of(run: Run) -> dict[str, Any]:
    (lever,) = read_json(run.path / "plan.json")["levers"]
    (arm,) = lever["arms"]
    return arm


def test_each_arm_of_the_plan_holds_what_is_expected_before_any_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StubEngine, "model_of", model_of)
    write_checkpoint(tmp_path / "other.gguf")
    run = opened(tmp_path, {"levers": OTHER})
    arm, cache = arm_of(run), 4 * 8 * 2 * 2 * 2 * 16 * 2
    assert run.launches() == []
    assert arm["predicted_pct"] == pytest.approx(100 * ((1e6 + cache) / (2e6 + cache) - 1))
    assert "weights Q4_1 → Q4_1; a step of 4 requests at a context of 8 tokens" in arm["prediction"]
    assert arm["prediction"].endswith("the prompts are not counted yet, their cache comes on top")


def test_a_lever_that_the_bound_does_not_see_has_null_and_a_sentence(tmp_path: Path) -> None:
    arm = arm_of(opened(tmp_path))
    assert arm["predicted_pct"] is None and arm["prediction"].startswith("no figure: the roofline does not see")


def test_a_simulated_server_and_an_unknown_machine_have_no_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StubEngine, "simulated", True)
    assert arm_of(opened(tmp_path))["prediction"] == "no figure: a simulated server runs on no hardware"
    monkeypatch.setattr(StubEngine, "simulated", False)
    campaign = Campaign.load(write_campaign(tmp_path))
    prepared = prepare(campaign)
    (plan,) = expectations.with_predictions(campaign, prepared.engine, prepared.model, None, prepared.levers)
    assert plan.arms[0]["prediction"] == "no figure: the hardware of this machine is not known"


def test_a_deployment_that_cannot_be_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StubEngine, "model_of", model_of)
    (tmp_path / "gpu.yaml").write_text("toy: {product: Toy, bandwidth_gb_s: 100, memory_mib: 0.1, source: made up}\n")
    arm = arm_of(opened(tmp_path, {"hardware": {"gpu": "gpu.yaml", "count": 1}}))
    assert arm["predicted_pct"] is None and "does not fit" in arm["prediction"]


def test_context_and_cap_come_from_the_last_record_of_the_same_control(tmp_path: Path) -> None:
    first = opened(tmp_path)
    campaign = Campaign.load(tmp_path / "small.yaml")
    trial = changed(TRIAL, {"metrics.mean_context_tokens": 123.0})
    facts = {"cap": 3}
    digest = campaign.control.digest
    write_launch(
        first.path / "launches" / "000-control", campaign.control, facts=facts, trials=[trial], arm_digest=digest
    )
    arm = arm_of(opened(tmp_path))
    assert "a step of 3 requests at a context of 123 tokens" in arm["prediction"]
    assert "not counted yet" not in arm["prediction"]
    another = arm_of(opened(tmp_path, {"server.flags": {"slots": 8}}))
    assert "a step of 4 requests at a context of 8 tokens" in another["prediction"]


def test_a_notebook_shows_what_its_plan_holds(tmp_path: Path) -> None:
    run = opened(tmp_path)
    study = Study("fewer_slots", str(tmp_path / "small.yaml"), str(run.path), 0, "", False)
    (one,) = study.expected()
    assert one.sentence == arm_of(run)["prediction"]
    shown = study._repr_markdown_()
    assert f"**Roofline expects.** {one.sentence}." in shown
    assert shown.index("**Predicted.**") < shown.index("**Roofline expects.**") < shown.index("**Backfires.**")


def test_without_a_run_only_named_hardware_has_a_figure(tmp_path: Path) -> None:
    path = write_campaign(tmp_path)
    assert expectations.UNNAMED in Study("", str(path), "", 0, "", True)._repr_markdown_()
    named = write_campaign(tmp_path, {"hardware": {"gpu": "b200_sxm", "count": 1}})
    shown = Study("", str(named), "", 0, "", True)._repr_markdown_()
    assert expectations.UNNAMED not in shown and "a step of 4 requests" in shown


def test_a_run_from_before_predictions_shows_none(tmp_path: Path) -> None:
    assert expectations.noted([{"name": "mtp"}]) == []


@pytest.mark.parametrize(("tp", "refused"), [(4, False), (8, True)])
def test_flags_that_need_more_devices_than_the_file_names_are_refused_at_the_start(
    tmp_path: Path, tp: int, refused: bool
) -> None:
    campaign = Campaign.load(write_campaign(tmp_path, {"hardware": {"gpu": "h200_sxm", "count": 4}}))
    arms = [campaign.control.model_copy(update={"engine": "sglang", "flags": {"tp_size": tp}})]
    if not refused:
        expectations.check_devices(campaign, arms)
        return
    with pytest.raises(InputError, match=r"hardware\.count.* is 4, and the flags of arm 'control' spread it over 8"):
        expectations.check_devices(campaign, arms)


def test_a_machine_that_is_not_named_sets_no_limit_of_devices(tmp_path: Path) -> None:
    campaign = Campaign.load(write_campaign(tmp_path))
    assert expectations.devices_named(campaign) is None
    expectations.check_devices(
        campaign, [campaign.control.model_copy(update={"engine": "vllm", "flags": {"tensor_parallel_size": 8}})]
    )
