"""A run folder holds, before the first launch, what was asked, on which machine, and what would be launched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab import observe
from lab.campaign import Campaign
from lab.observe import bandwidth
from lab.prepare import campaign_digest, create_run, prepare
from lab.runs import Run, results_folder
from tests.builders import HARDWARE, StubEngine, write_campaign


@pytest.fixture
def opened(tmp_path: Path, stub: StubEngine, results: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run of a campaign with one lever that applies and one that does not; the machine is not measured."""
    monkeypatch.setattr(bandwidth, "probe", lambda: HARDWARE)
    changes: dict[str, Any] = {
        "levers.nccl_ll_ring": {},
        "server.env": {"HF_TOKEN": "hf_secret", "WAIT": "active"},
        "server.flags": {"slots": 4, "hidden": "x"},
    }
    prepared = prepare(Campaign.load(write_campaign(tmp_path, changes)), passes=2)
    return create_run(prepared, results_folder(), "campaign")


def test_the_resolved_file_is_kept_with_its_digests(opened: Run, tmp_path: Path) -> None:
    campaign = Campaign.load(tmp_path / "small.yaml")
    assert opened.campaign["file"]["limits"]["start_seconds"] == 1800
    assert opened.campaign["digest"] == campaign_digest(campaign)
    assert opened.campaign["rule_digest"] == campaign.rule.digest()
    assert opened.campaign["path"] == str(tmp_path / "small.yaml")


def test_machine_model_engine_and_software_are_kept(opened: Run) -> None:
    record = opened.campaign
    assert record["hardware"]["memory_bandwidth_bytes_s"] == HARDWARE.memory_bandwidth_bytes_s
    assert (record["model"]["name"], record["engine"], record["simulated"]) == ("tiny", "stub 1", False)
    assert {"python", "pandas", "mlflow"} <= set(record["software"])
    assert set(record["git"]) == {"commit", "dirty"}


def test_the_plan_is_kept_with_its_order_and_estimate(opened: Run) -> None:
    plan = opened.plan
    assert (plan["mode"], plan["passes"]) == ("campaign", 2)
    assert [lever["name"] for lever in plan["levers"]] == ["fewer_slots", "nccl_ll_ring"]
    assert plan["order"] == {"1": ["fewer_slots"], "2": ["fewer_slots"]}
    assert plan["estimate"]["launches"] == 2 * 2 + 1


def test_no_secret_is_written_down(opened: Run) -> None:
    for path in opened.path.rglob("*.json"):
        assert "hf_secret" not in path.read_text()
    assert opened.campaign["file"]["server"]["env"] == {"HF_TOKEN": "<removed>", "WAIT": "active"}


def test_the_digest_of_a_file_changes_with_whatever_decides(tmp_path: Path) -> None:
    first = campaign_digest(Campaign.load(write_campaign(tmp_path)))
    assert first == campaign_digest(Campaign.load(write_campaign(tmp_path)))
    for changes in ({"rule.alpha": 0.1}, {"window.seconds": 3}, {"server.flags.slots": 8}):
        assert campaign_digest(Campaign.load(write_campaign(tmp_path, changes))) != first


def test_a_simulated_run_has_no_hardware(
    tmp_path: Path, stub: StubEngine, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StubEngine, "simulated", True)
    prepared = prepare(Campaign.load(write_campaign(tmp_path)))
    record = create_run(prepared, results_folder(), "campaign").campaign
    assert (record["hardware"], record["simulated"]) == (None, True)


class Cards:
    """GPUs that the driver calls so."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def describe(self) -> list[dict[str, Any]]:
        return [{"index": index, "name": name} for index, name in enumerate(self.names)]

    def read(self) -> dict[str, float | None]:
        return {}


H200, UNKNOWN = "NVIDIA H200", "NVIDIA H200 NVL"


@pytest.mark.parametrize(
    ("cards", "named", "key", "said"),
    [
        ([], "auto", "test processor", ""),
        ([H200, H200], "auto", "h200_sxm", ""),
        ([UNKNOWN], "auto", None, "lab: hardware: this machine's 'NVIDIA H200 NVL' is not in the catalogue"),
        ([H200, UNKNOWN], "auto", None, "lab: hardware: this machine has NVIDIA H200 and NVIDIA H200 NVL"),
        ([UNKNOWN], {"gpu": "b200_sxm", "count": 8}, "b200_sxm", ""),
        ([], {"gpu": "b200_sxm", "count": 8}, "b200_sxm", ""),
    ],
)
def test_hardware_is_what_the_file_names_else_the_cards_else_the_processors(
    tmp_path: Path,
    stub: StubEngine,
    results: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    cards: list[str],
    named: Any,
    key: str | None,
    said: str,
) -> None:
    monkeypatch.setattr(bandwidth, "probe", lambda: HARDWARE)
    monkeypatch.setattr(observe, "local_gpus", lambda env: Cards(*cards))
    prepared = prepare(Campaign.load(write_campaign(tmp_path, {"hardware": named})))
    hardware = create_run(prepared, results_folder(), "campaign").campaign["hardware"]
    assert (hardware and (hardware["key"] or hardware["name"])) == key
    told = capsys.readouterr().err
    assert told.startswith(said) if said else told == ""
    assert told.count("this run has no bound") == bool(said)


def test_cards_are_those_that_the_control_sees(
    tmp_path: Path, stub: StubEngine, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(observe, "local_gpus", lambda env: Cards(seen.append(env["CUDA_VISIBLE_DEVICES"]) or H200))
    prepared = prepare(Campaign.load(write_campaign(tmp_path, {"server.env": {"CUDA_VISIBLE_DEVICES": "2"}})))
    create_run(prepared, results_folder(), "campaign")
    assert "2" in seen


def test_an_engine_that_leaves_gpus_alone_is_held_against_the_processors(
    tmp_path: Path, stub: StubEngine, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bandwidth, "probe", lambda: HARDWARE)
    monkeypatch.setattr(observe, "local_gpus", lambda env: Cards(H200))
    monkeypatch.setattr(StubEngine, "leaves_gpus_alone", True)
    prepared = prepare(Campaign.load(write_campaign(tmp_path)))
    assert create_run(prepared, results_folder(), "campaign").campaign["hardware"]["name"] == "test processor"
