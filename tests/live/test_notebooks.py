"""The committed notebooks, run by hand as in JupyterLab: no runner, the same records."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from lab import judgement
from lab.campaign import PROJECT, Campaign
from lab.prepare import create_run, prepare
from lab.records import CLOSING, OPENING, SEARCH, TREATMENT

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
SHARING = {
    "03_cuda_graphs": "cuda_graphs",
    "05_mtp": "mtp",
    "06_nvfp4_checkpoint": "nvfp4_checkpoint",
}
"""Notebooks that measure one pass between the same two controls; a whole campaign executes those of its own levers."""
MEASURED = {"01_autotune": "autotune", **SHARING, "07_kv_cache_dtype": "kv_cache_dtype", "09_custom": "fewer_slots"}
ABSENT = {"02_nccl_ll_ring": "nccl_ll_ring", "04_expert_parallel": "expert_parallel"}
BY_DEFAULT = ("01_autotune", "04_expert_parallel", "09_custom")
"""What everybody runs by hand: a search, a lever that cannot exist, one that the notebook must find; `soak`: all."""
CHAT = {"chat": {"kind": "chat", "output_tokens": 16, "concurrency": [4]}}
"""Real text, long enough that speculation drafts, and that a client which a search starves for moments stays valid."""
WINDOW = {"warmup_seconds": 0.3, "seconds": 2, "min_steady_seconds": 1}
WHOLE: dict[str, Any] = {
    "model": {"name": "SmolLM2-135M-Instruct", "checkpoint": "smollm2-135m-q4_1"},
    "window": {**WINDOW, "seconds": 4},
}
"""For `soak`: a model that answers sense, so that drafts fire, in windows that hold as many of its answers."""


def execute(lab, notebook: str, path: Path, **parameters: Any) -> nbformat.NotebookNode:
    """Run all cells in the notebook's own folder; only the name of the campaign file, and parameters, are replaced."""
    document = nbformat.read(PROJECT / "notebooks" / f"{notebook}.ipynb", as_version=4)
    cell = next(c for c in document.cells if "parameters" in c.metadata.get("tags", []))
    cell.source = cell.source.replace('"experiments/local.yaml"', f'"{path}"')
    cell.source += "".join(f"\n{name} = {value!r}" for name, value in parameters.items())
    client = NotebookClient(
        document, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(PROJECT / "notebooks")}}
    )
    return client.execute(env={**os.environ, "LAB_RESULTS": str(lab.results)})


def test_notebooks_of_levers_differ_in_nothing_but_their_lever_and_its_parameter():
    """So that a block by hand of one of them is a block of each."""
    codes = set()
    for notebook, lever in {**MEASURED, **ABSENT}.items():
        document = nbformat.read(PROJECT / "notebooks" / f"{notebook}.ipynb", as_version=4)
        lines = [line for c in document.cells if c.cell_type == "code" for line in c.source.splitlines()]
        text = "\n".join(line for line in lines if not line.startswith("lever: str ="))
        codes.add(text.replace(f'lab.study("{lever}",', "lab.study(lever,"))
    assert len(codes) == 1


def by_hand(levers: dict[str, str]) -> list[Any]:
    return [
        pytest.param(notebook, lever, id=notebook, marks=[] if notebook in BY_DEFAULT else [pytest.mark.soak])
        for notebook, lever in levers.items()
    ]


@pytest.mark.parametrize(("notebook", "lever"), by_hand(MEASURED))
def test_a_lever_notebook_measures_a_block_of_its_own(lab, notebook, lever):
    served = {"window": WINDOW} if notebook in BY_DEFAULT else WHOLE
    path = lab.campaign(levers=LEVERS, workloads=CHAT if lever in ("autotune", "mtp") else lab.brief, **served)
    document = execute(lab, notebook, path)
    run = lab.latest()
    launches = [launch for launch in run.launches() if launch.role != SEARCH]
    assert [launch.role for launch in launches] == [OPENING, TREATMENT, TREATMENT, CLOSING]
    assert [launch.arm for launch in launches] == ["control", lever, lever, "control"]
    assert all(launch.ok for launch in launches)
    assert launches[1].record["proof"]["applied"], launches[1].record["proof"]["text"]
    assert (run.lever_folder(lever) / "DONE").exists()
    outputs = json.dumps(document)
    assert lever in outputs and "image/png" in outputs and "roofline expects: " in outputs
    row = lab.rows()[lever]
    assert row["launches"] == 4 and row["verdict"] not in ("invalid", "failed"), row


@pytest.fixture(scope="module")
def shared_pass(shared_lab):
    """One pass whose treatments share its controls, step by step as the runner goes; then each notebook as shown."""
    path = shared_lab.campaign(
        levers=LEVERS,
        workloads={"chat": {**CHAT["chat"], "concurrency": [2]}},
        rule={"workload": "chat", "concurrency": 2, "passes": {"min": 1, "max": 1}},
        **WHOLE,
    )
    run = create_run(prepare(Campaign.load(path), list(SHARING.values()), 1), shared_lab.results, "campaign")
    folder = str(run.path)
    execute(shared_lab, "00_baseline", path, run=folder, role=OPENING)
    for notebook in SHARING:
        execute(shared_lab, notebook, path, run=folder, pass_number=1, role=TREATMENT)
    execute(shared_lab, "00_baseline", path, run=folder, pass_number=1, role=CLOSING)
    judgement.write(run, judgement.judge(run))
    run.set_status("done")
    with ThreadPoolExecutor() as pool:
        shown = pool.map(lambda notebook: execute(shared_lab, notebook, path, run=folder, measure=False), SHARING)
        return shared_lab, dict(zip(SHARING, shown, strict=True))


@pytest.mark.soak
def test_a_lever_notebook_measures_its_part_of_a_pass(shared_pass):
    lab, _ = shared_pass
    launches = lab.latest().launches()
    assert [launch.role for launch in launches] == [OPENING, *[TREATMENT] * len(SHARING), CLOSING]
    assert [launch.arm for launch in launches] == ["control", *SHARING.values(), "control"]
    assert [launch.pass_number for launch in launches] == [0, *[1] * (len(SHARING) + 1)]
    assert all(launch.ok for launch in launches)


@pytest.mark.soak
@pytest.mark.parametrize("notebook", SHARING)
def test_a_lever_notebook_proves_shows_and_judges_its_lever(shared_pass, notebook):
    lab, documents = shared_pass
    run, lever = lab.latest(), SHARING[notebook]
    (launch,) = [launch for launch in run.launches() if launch.arm == lever]
    assert launch.record["proof"]["applied"], launch.record["proof"]["text"]
    assert (run.lever_folder(lever) / "passes" / "1.done").exists()
    assert (run.lever_folder(lever) / "DONE").exists()
    outputs = json.dumps(documents[notebook])
    assert lever in outputs and "image/png" in outputs
    row = lab.rows()[lever]
    assert row["launches"] == 3 and row["verdict"] not in ("invalid", "failed"), row


@pytest.mark.parametrize(("notebook", "lever"), by_hand(ABSENT))
def test_a_lever_that_cannot_exist_starts_no_server(lab, notebook, lever):
    execute(lab, notebook, lab.campaign(levers=LEVERS))
    assert lab.latest().launches() == []
    assert lab.rows()[lever]["verdict"] == "not-applicable"


def test_the_baseline_notebook_sweeps_concurrency_and_the_notebooks_of_whole_runs_read_it(lab):
    path = lab.campaign(
        workloads={"chat": {"kind": "chat", "output_tokens": 16, "concurrency": [1, 4]}},
        window=WINDOW,
    )
    execute(lab, "00_baseline", path)
    (launch,) = lab.latest().launches()
    assert [trial.concurrency for trial in launch.trials] == [4, 1]
    for notebook, kept in (("90_summary", "summary"), ("91_roofline", "roofline")):
        execute(lab, notebook, path)
        assert (lab.latest().lever_folder(kept) / "DONE").exists()
