"""The committed notebooks, run by hand as in JupyterLab: no runner, the same records."""

from __future__ import annotations

import json
import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from lab.campaign import PROJECT
from lab.records import CLOSING, OPENING, TREATMENT

LEVERS = {
    "autotune": {},
    "nccl_ll_ring": {},
    "cuda_graphs": {},
    "expert_parallel": {},
    "mtp": {"method": "ngram"},
    "nvfp4_checkpoint": {"checkpoint": "smollm2-135m-q4_0"},
    "kv_cache_dtype": {"dtype": "q8_0"},
    "fewer_slots": {"custom": {"title": "Half the slots", "treatment": {"flags": {"n_parallel": 2}}}},
}
MEASURED = {
    "01_autotune": "autotune",
    "03_cuda_graphs": "cuda_graphs",
    "05_mtp": "mtp",
    "06_nvfp4_checkpoint": "nvfp4_checkpoint",
    "07_kv_cache_dtype": "kv_cache_dtype",
    "09_custom": "fewer_slots",
}


def execute(lab, monkeypatch, notebook: str, path: Path) -> nbformat.NotebookNode:
    """Run all cells in the notebook's own folder; only the name of the campaign file is replaced."""
    monkeypatch.setattr(os, "environ", {**os.environ, "LAB_RESULTS": str(lab.results)})
    document = nbformat.read(PROJECT / "notebooks" / f"{notebook}.ipynb", as_version=4)
    parameters = next(c for c in document.cells if "parameters" in c.metadata.get("tags", []))
    parameters.source = parameters.source.replace('"experiments/local.yaml"', f'"{path}"')
    client = NotebookClient(
        document, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(PROJECT / "notebooks")}}
    )
    return client.execute()


@pytest.mark.parametrize("notebook", MEASURED)
def test_a_lever_notebook_measures_a_block_of_its_own(lab, monkeypatch, notebook):
    lever = MEASURED[notebook]
    path = lab.campaign(levers=LEVERS, window={"warmup_seconds": 0.2, "seconds": 1.2, "min_steady_seconds": 1})
    document = execute(lab, monkeypatch, notebook, path)
    run = lab.latest()
    launches = [launch for launch in run.launches() if launch.role != "search"]
    assert [launch.role for launch in launches] == [OPENING, TREATMENT, TREATMENT, CLOSING]
    assert [launch.arm for launch in launches] == ["control", lever, lever, "control"]
    assert all(launch.ok for launch in launches)
    assert launches[1].record["proof"]["applied"], launches[1].record["proof"]["text"]
    assert (run.lever_folder(lever) / "DONE").exists()
    outputs = json.dumps(document)
    assert lever in outputs and "image/png" in outputs
    row = lab.rows()[lever]
    assert row["launches"] == 4 and row["verdict"] not in ("invalid", "failed"), row


@pytest.mark.parametrize(
    ("notebook", "lever"), [("02_nccl_ll_ring", "nccl_ll_ring"), ("04_expert_parallel", "expert_parallel")]
)
def test_a_lever_that_cannot_exist_starts_no_server(lab, monkeypatch, notebook, lever):
    execute(lab, monkeypatch, notebook, lab.campaign(levers=LEVERS))
    assert lab.latest().launches() == []
    assert lab.rows()[lever]["verdict"] == "not-applicable"


def test_the_baseline_notebook_sweeps_concurrency_and_the_summary_reads_it(lab, monkeypatch):
    path = lab.campaign(
        workloads={"chat": {"kind": "chat", "output_tokens": 16, "concurrency": [1, 4]}},
        window={"warmup_seconds": 0.3, "seconds": 1.5, "min_steady_seconds": 1},
    )
    execute(lab, monkeypatch, "00_baseline", path)
    (launch,) = lab.latest().launches()
    assert [trial.concurrency for trial in launch.trials] == [4, 1]
    execute(lab, monkeypatch, "90_summary", path)
    assert (lab.latest().lever_folder("summary") / "DONE").exists()
