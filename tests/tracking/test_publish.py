"""Publishing to a real MLflow server: once is as good as twice, and a new judgement replaces the old one."""

from __future__ import annotations

import http.server
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from run_folder import judge, make_run, rows_of

from lab.errors import InputError, LabError
from lab.hosts import marked_processes
from lab.runs import Run
from lab.tracking import publish, store, ui

LEVERS = ("autotune", "fewer_slots")
SERVE = "import sys; from pathlib import Path; from lab.tracking import ui; ui(Path(sys.argv[1]), int(sys.argv[2]))"


@pytest.fixture(autouse=True)
def _own_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def server(results: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`lab ui` in a process of its own: its owner, and the address that it recorded."""
    argv = [sys.executable, "-c", SERVE, str(results), str(store.free_port())]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    ) as owner:
        try:
            assert owner.stdout is not None
            assert "Ctrl-C ends it" in owner.stdout.readline()
            url = store.running(results / "mlflow")
            assert url is not None
            yield owner, url
        finally:
            owner.kill()


def snapshot(url: str) -> list[dict[str, Any]]:
    """Everything that MLflow holds, deleted runs included."""
    from mlflow import MlflowClient
    from mlflow.entities import ViewType

    client = MlflowClient(url)
    experiments = client.search_experiments(view_type=ViewType.ALL)
    runs = client.search_runs([e.experiment_id for e in experiments], run_view_type=ViewType.ALL)
    described: list[dict[str, Any]] = [
        {
            "id": run.info.run_id,
            "name": run.info.run_name,
            "stage": run.info.lifecycle_stage,
            "status": run.info.status,
            "times": (run.info.start_time, run.info.end_time),
            "params": run.data.params,
            "tags": run.data.tags,
            "metrics": {
                name: [
                    (point.value, point.step, point.timestamp)
                    for point in client.get_metric_history(run.info.run_id, name)
                ]
                for name in run.data.metrics
            },
            "artifacts": sorted(artifacts(client, run.info.run_id)),
        }
        for run in runs
    ]
    tags = [{"id": e.experiment_id, "name": e.name, "tags": e.tags} for e in experiments]
    return sorted([*described, *tags], key=lambda entry: entry["id"])


def artifacts(client: Any, run_id: str, folder: str | None = None) -> Iterator[tuple[str, int]]:
    for item in client.list_artifacts(run_id, folder):
        if item.is_dir:
            yield from artifacts(client, run_id, item.path)
        else:
            yield item.path, item.file_size


def active(url: str, run: Run) -> dict[str, Any]:
    """Active MLflow runs of a run folder by the rest of their key, each key once."""
    from mlflow import MlflowClient

    client = MlflowClient(url)
    experiment = client.get_experiment_by_name(f"levers-{run.name}")
    found = [
        (row.data.tags["lab.run_key"].partition(run.run_id)[2].strip("/"), row)
        for row in client.search_runs([experiment.experiment_id])
        if run.run_id in row.data.tags["lab.run_key"]
    ]
    assert len(dict(found)) == len(found)
    return dict(found)


def test_without_a_server_one_comes_and_goes(tmp_path: Path) -> None:
    run = make_run(tmp_path, passes=1, levers=("autotune",))
    first = publish(run.path)
    assert (first.created, first.updated, first.unchanged, first.link) == (7, 0, 0, None)
    assert marked_processes(f"mlflow-{os.getpid()}") == []
    assert (tmp_path / "mlflow" / "mlflow.db").exists() and not (tmp_path / "mlflow" / "server.json").exists()


def test_publishing_twice_changes_nothing(results: Path, server: tuple[Any, str]) -> None:
    run = make_run(results, levers=LEVERS)
    first = publish(run.path)
    before = snapshot(server[1])
    second = publish(run.path)
    assert (first.created, second.unchanged) == (12, 12)
    assert (second.created, second.updated) == (0, 0)
    assert snapshot(server[1]) == before
    assert first.link and "viewStateShareKey" in first.link


def test_the_page_shows_the_verdict_its_figures_and_its_files(results: Path, server: tuple[Any, str]) -> None:
    from mlflow import MlflowClient

    run = make_run(results, levers=LEVERS)
    publish(run.path)
    rows = active(server[1], run)
    lever, top = rows["autotune/autotune"], rows[""]
    assert (lever.data.tags["verdict"], lever.data.tags["mlflow.parentRunId"]) == ("adopt", top.info.run_id)
    assert lever.data.metrics["effect_pct"] == pytest.approx(30.9091)
    assert lever.data.tags["missing.p_adjusted"] == "not measured" and "p_adjusted" not in lever.data.metrics
    client = MlflowClient(server[1])
    files = {path for path, _ in artifacts(client, lever.info.run_id)}
    assert files == {"notebook/executed.ipynb", "notebook/executed.html", "plots/effect.png", "tables/trials.json"}
    launch = rows["autotune/autotune/001-autotune"]
    assert {path for path, _ in artifacts(client, launch.info.run_id)} == {
        "launch.json",
        "trials/chat-c1.json",
        "trials/chat-c4.json",
    }
    assert launch.info.end_time - launch.info.start_time == 12_000
    assert all(row.info.status == "FINISHED" for row in rows.values())
    experiment = client.get_experiment_by_name("levers-local")
    assert "| autotune | adopt |" in experiment.tags["mlflow.note.content"]
    assert any(name.startswith("mlflow.sharedViewState.") for name in experiment.tags)


def test_a_changed_judgement_updates_its_runs(results: Path, server: tuple[Any, str]) -> None:
    run = make_run(results, levers=LEVERS)
    publish(run.path)
    before = active(server[1], run)
    rows = rows_of(run, LEVERS)
    rows[0] = {**rows[0], "verdict": "inconclusive", "effect_pct": 1.5}
    judge(run, rows)
    done = publish(run.path)
    after = active(server[1], run)
    assert (done.created, done.updated, done.unchanged) == (0, 2, 10)
    assert {key: row.info.run_id for key, row in after.items()} == {key: row.info.run_id for key, row in before.items()}
    assert after["autotune/autotune"].data.tags["verdict"] == "inconclusive"
    assert after["autotune/autotune"].data.metrics["effect_pct"] == 1.5
    assert after[""].data.metrics["levers_adopted"] == 0
    assert publish(run.path).unchanged == 12


def test_a_figure_that_is_withdrawn_goes_from_the_page(results: Path, server: tuple[Any, str]) -> None:
    run = make_run(results, levers=LEVERS)
    publish(run.path)
    rows = rows_of(run, LEVERS)
    rows[0] = {**rows[0], "verdict": "invalid", "effect_pct": float("nan"), "p_value": None}
    publish(run.path, rows)
    after = active(server[1], run)
    lever = after["autotune/autotune"]
    assert len(after) == 12 and not {"effect_pct", "p_value"} & lever.data.metrics.keys()
    assert lever.data.tags["missing.effect_pct"] == "not a finite number"
    launches = [row for key, row in after.items() if key.startswith("autotune/autotune/")]
    assert {row.data.tags["mlflow.parentRunId"] for row in launches} == {lever.info.run_id}
    publish(run.path)
    assert "missing.effect_pct" not in active(server[1], run)["autotune/autotune"].data.tags


def test_a_publication_that_was_cut_short_is_completed(results: Path, server: tuple[Any, str]) -> None:
    from mlflow import MlflowClient

    run = make_run(results, levers=LEVERS)
    publish(run.path)
    victim = active(server[1], run)["autotune/autotune/001-autotune"].info.run_id
    MlflowClient(server[1]).update_run(victim, status="RUNNING")
    assert publish(run.path).updated == 1
    assert active(server[1], run)["autotune/autotune/001-autotune"].info.status == "FINISHED"


def test_an_mlflow_that_is_down_is_one_line_without_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path, passes=1, levers=("autotune",))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:hunter2@127.0.0.1:{store.free_port()}")
    with pytest.raises(LabError, match="did not answer: connection refused; the results are safe") as caught:
        publish(run.path)
    assert "hunter2" not in str(caught.value) and "\n" not in str(caught.value)


def test_an_mlflow_that_fails_midway_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(200 if self.path == "/health" else 500)

        def log_message(self, *_: object) -> None:
            pass

    run = make_run(tmp_path, passes=1, levers=("autotune",))
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Broken) as broken:
        threading.Thread(target=broken.serve_forever, daemon=True).start()
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{broken.server_port}")
        with pytest.raises(LabError, match="the results are safe") as caught:
            publish(run.path)
        broken.shutdown()
    assert "\n" not in str(caught.value)


def test_an_mlflow_that_refuses_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path, passes=1, levers=("autotune",))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "file:///nowhere/mlruns")
    with pytest.raises(LabError, match="the results are safe"):
        publish(run.path)


def test_a_port_that_is_taken_is_bad_input(results: Path, tmp_path: Path, server: tuple[Any, str]) -> None:
    port = int(server[1].rpartition(":")[2])
    with pytest.raises(InputError, match=f"port {port}"):
        ui(tmp_path, port)


def test_with_a_server_running_only_the_links_are_printed(
    results: Path, server: tuple[Any, str], capsys: pytest.CaptureFixture[str]
) -> None:
    publish(make_run(results, levers=LEVERS).path)
    ui(results)
    assert f"{server[1]}/#/experiments/" in capsys.readouterr().out


def test_the_server_dies_with_its_owner(results: Path, server: tuple[subprocess.Popen[str], str]) -> None:
    owner, _ = server
    pids = marked_processes(f"mlflow-{owner.pid}", exact=True)
    assert pids
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    deadline = time.monotonic() + 30
    while any(psutil.pid_exists(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert store.running(results / "mlflow") is None


def test_an_interrupt_right_after_the_links_ends_the_server(results: Path) -> None:
    argv = [sys.executable, "-c", SERVE, str(results), str(store.free_port())]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as owner:
        overdue = threading.Timer(120, owner.kill)
        overdue.start()
        try:
            assert owner.stdout is not None
            last_lines = ("all runs", "nothing is published yet")
            assert any(words in line for line in iter(owner.stdout.readline, "") for words in last_lines)
            owner.send_signal(signal.SIGINT)
            assert owner.wait(60) == 0
        finally:
            overdue.cancel()
            owner.kill()
    assert marked_processes(f"mlflow-{owner.pid}", exact=True) == []
    assert not (results / "mlflow" / "server.json").exists()
