"""What is wrong in a campaign is said in one line before anything starts or is written."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

SERVER: dict[str, Any] = {"engine": "llamacpp", "flags": {"n_parallel": 4, "n_ctx": 2048}}


def server(**changes: Any) -> dict[str, Any]:
    return {**SERVER, **changes}


CASES: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown flag": (
        {"server": server(flags={"n_paralel": 4})},
        "flag 'n_paralel' is unknown to llama.cpp; did you mean 'n_parallel'?",
    ),
    "a flag of the wrong type": ({"server": server(flags={"n_ctx": "many"})}, "n_ctx"),
    "an unknown flag in a treatment": (
        {"levers": {"mine": {"custom": {"title": "t", "treatment": {"flags": {"n_ubach": 8}}}}}},
        "did you mean 'n_ubatch'?",
    ),
    "a missing checkpoint": (
        {"model": {"name": "m", "checkpoint": "nowhere.gguf"}},
        "model.checkpoint:",
    ),
    "a missing checkpoint of a lever": ({"levers": {"nvfp4_checkpoint": {"checkpoint": "gone.gguf"}}}, "gone.gguf"),
    "an unknown engine": ({"server": server(engine="llamacp")}, "unknown engine 'llamacp'; did you mean 'llamacpp'?"),
    "an unknown lever": ({"levers": {"autotun": {}}}, "unknown lever 'autotun'; did you mean 'autotune'?"),
    "an unknown option of a lever": ({"levers": {"mtp": {"methd": "ngram"}}}, "did you mean 'method'?"),
    "a treatment equal to the control": (
        {"levers": {"same": {"custom": {"title": "t", "treatment": {"flags": {"n_parallel": 4}}}}}},
        "equal to the control",
    ),
    "no slots": ({"server": server(flags={"n_parallel": 0})}, "n_parallel"),
    "synthetic acceptance": ({"server": server(flags={"speculative.synth_len": 3})}, "synth_len"),
    "a plan above its budget": ({"budget": {"hours": 0.001}}, "budget.hours"),
}


def refused(lab, path: Path, *arguments: str) -> str:
    answer = lab.run("run", path, "--no-publish", *arguments, timeout=60)
    lines = answer.stderr.strip().splitlines()
    assert answer.returncode == 2, answer.stderr
    assert len(lines) == 1, answer.stderr
    assert answer.stdout == ""
    assert not list(lab.results.glob("*/*/*")), "nothing is half-written"
    return lines[0]


@pytest.mark.parametrize("case", CASES)
def test_it_is_refused_in_one_line(lab, case):
    changes, expected = CASES[case]
    line = refused(lab, lab.campaign(**{"levers": {"cuda_graphs": {}}, **changes}))
    assert expected in line
    assert "short.yaml" in line


def test_a_port_in_use_is_refused(lab):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        flags = {"n_parallel": 4, "n_ctx": 2048, "port": port}
        line = refused(lab, lab.campaign(server=server(flags=flags), levers={"cuda_graphs": {}}))
        assert str(port) in line and "in use" in line


def test_results_that_cannot_be_written_are_refused(lab, tmp_path):
    path = lab.campaign(levers={"cuda_graphs": {}})
    blocked = tmp_path / "a-file"
    blocked.write_text("")
    lab.env["LAB_RESULTS"] = str(blocked / "results")
    line = refused(lab, path)
    assert str(blocked) in line


def test_a_lever_named_on_the_command_line_must_exist(lab):
    line = refused(lab, lab.campaign(levers={"cuda_graphs": {}}), "--levers", "cuda_graph")
    assert "cuda_graph" in line and "did you mean 'cuda_graphs'?" in line


def test_a_dry_run_prints_the_plan_and_writes_nothing(lab):
    path = lab.campaign(levers={"cuda_graphs": {}, "nccl_ll_ring": {}})
    answer = lab.run("run", path, "--dry-run")
    assert answer.returncode == 0, answer.stderr
    for words in ("3 launches", "minutes", "LLAMA_GRAPH_REUSE_DISABLE=1", "not applicable"):
        assert words in answer.stdout
    assert not lab.results.exists()


def test_two_campaigns_do_not_share_a_machine(lab, eventually):
    path = lab.campaign(levers={"cuda_graphs": {}}, workloads=lab.brief)
    first = lab.start("run", path, "--no-publish")
    try:
        eventually(lab.has_run, "the first run began")
        second = lab.run("run", path, "--no-publish", "--fresh", timeout=60)
        assert second.returncode == 1
        assert str(first.pid) in second.stderr and "short.yaml" in second.stderr
    finally:
        first.terminate()
        first.wait(timeout=60)
    run = lab.latest().run_id
    from lab.hosts import marked_processes

    eventually(lambda: not marked_processes(run), "the first run's processes have ended")
