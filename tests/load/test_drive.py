"""Whole trials with the client in its own process, against a server that does exactly what the test says."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from scripted import END, LIMITS, STREAM, drive, json_answer, prompts, silent, steady, target, window
from sse_server import DONE, SseServer, chunked, delta

from lab import load
from lab.errors import InputError
from lab.load import record
from lab.observe import IdleLook
from lab.observe.machine import is_running

SECRET = "Bearer sk-a-long-secret-key"


@dataclass
class Trial:
    """One trial that went well, and what the server saw of it."""

    measured: load.Measured
    events: list[dict[str, Any]]
    server: SseServer
    prompts: load.Prompts
    folder: Path


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    """A trial at a concurrency of three, with a key."""
    folder = tmp_path_factory.mktemp("trial")
    events: list[dict[str, Any]] = []
    workload = prompts()
    with SseServer(steady(), keep=True) as server:
        measured = drive(
            server,
            folder,
            workload,
            on_progress=events.append,
            idle=IdleLook(0.0, {}),
            window=window(1.0),
            target={"headers": {"Authorization": SECRET}, "extras": {"cache_prompt": False}},
        )
        yield Trial(measured, events, server, workload, folder)


def test_a_trial_and_its_record(trial: Trial):
    client, server, span = trial.measured.client, trial.measured.server, trial.measured.window
    assert client["completed"] == client["sent"] == len(trial.server.bodies)
    assert server["delta"] == {"requests_finished": client["completed"]}
    assert (server["requests_before"], server["idle_running_max"], server["idle_grew"]) == (0, 0, {})
    assert server["counters_before_s"] < 0 < span["seconds"] < server["counters_after_s"]
    assert client["output_tokens"] == sum(body["max_tokens"] for body in trial.server.bodies)
    assert client["tokens_source"] == "timings.predicted_n"
    assert (client["failed"], client["aborted"], client["drained"], client["clients_started"]) == (0, 0, True, 3)
    assert 0 < client["window_tokens"] < client["output_tokens"]
    assert 2 < client["littles_law"] <= 3
    assert trial.measured.metrics["output_tok_s"] == pytest.approx(client["window_tokens"])
    assert trial.measured.prompts == trial.prompts.record()
    assert trial.measured.steady["outcome"]
    assert trial.measured.machine["machine_memory_bytes"] > 0
    assert [e["event"] for e in trial.events if e["event"] != "progress"] == [
        "ready", "window-open", "window-closed", "drained", "done",
    ]  # fmt: skip


def test_the_window_says_where_it_lies(trial: Trial):
    span, requests = trial.measured.window, record.read(trial.folder / "requests.parquet")
    assert span["seconds"] == span["closed_s"] - span["opened_s"] == pytest.approx(1.0)
    assert (span["warmup_seconds"], span["min_steady_seconds"], span["time_factor"]) == (0.1, 1.0, 1)
    assert (span["offset_s"], span["offset_error_s"]) == (None, None)
    assert span["started_s"] == requests.sent_s.min() < span["opened_s"]
    assert span["drained_s"] == requests.end_s.max() > span["closed_s"]


def test_the_tables(trial: Trial):
    requests = record.read(trial.folder / "requests.parquet")
    assert len(requests) == trial.measured.client["sent"]
    assert set(requests.phase) == {"warmup", "window"}
    assert requests.error.isna().all()
    assert (requests.chunk_tokens.map(sum) == requests.output_tokens).all()
    timeline = pq.read_table(trial.folder / "timeline.parquet").to_pandas()
    assert len(timeline) >= 3
    assert timeline.t_s.iloc[0] < requests.sent_s.min()
    assert timeline.t_s.iloc[-1] > requests.end_s.max()


def test_requests_say_what_the_arm_and_the_house_want(trial: Trial):
    bodies = trial.server.bodies
    assert {(body["temperature"], body["seed"], body["stream"], body["cache_prompt"]) for body in bodies} == {
        (0, 1, True, False)
    }
    sent = [body["messages"] for body in bodies]
    assert sorted(map(str, sent)) == sorted(str(item["messages"]) for item in trial.prompts.items[: len(sent)])


def test_a_key_is_sent_and_kept_nowhere(trial: Trial):
    assert all(f"Authorization: {SECRET}".encode() in head for head in trial.server.heads)
    told = str(asdict(trial.measured)) + str(trial.events) + str(target(trial.server, headers={"A": SECRET}))
    assert "secret" not in told
    for path in trial.folder.rglob("*"):
        assert b"secret" not in path.read_bytes()


def test_virtual_time(tmp_path: Path):
    limits = SimpleNamespace(stall_seconds=30, drain_seconds=40)
    workload = prompts(arrivals="constant", rate_rps=3, ignore_eos=True, concurrency=[20])
    with SseServer(steady(), keep=True) as server:
        trial = drive(
            server, tmp_path, workload, concurrency=20, window=window(8, 2), limits=limits, target={"time_factor": 10.0}
        )
    span, client, requests = trial.window, trial.client, record.read(tmp_path / "requests.parquet")
    assert (span["seconds"], span["warmup_seconds"], span["time_factor"]) == (pytest.approx(8), 2, 10)
    assert span["closed_s"] - span["opened_s"] == pytest.approx(0.8)
    assert client["achieved_rps"] == pytest.approx(3, abs=0.5)
    assert requests.due_s.diff().dropna().tolist() == pytest.approx([1 / 30] * (len(requests) - 1))
    assert trial.metrics["output_tok_s"] == client["window_tokens"] / span["seconds"]
    assert client["e2e_mean_ms"] >= 1200
    assert trial.server["counters_before_s"] < -2
    assert {body["ignore_eos"] for body in server.bodies} == {True}


def test_two_processes_leave_one_table_and_both_count_what_nobody_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def words(body: dict, writer: asyncio.StreamWriter) -> None:
        if "content" in body:
            writer.write(json_answer({"tokens": list(range(len(body["content"].split())))}))
            return
        writer.write(STREAM)
        for _ in range(max(1, body["max_tokens"] // 3)):
            await asyncio.sleep(0.01)
            writer.write(chunked(delta(content="three words here ")))
        writer.write(chunked(delta("length") + DONE) + END)

    monkeypatch.setattr(sys.modules["lab.load.drive"], "process_count", lambda concurrency: 2)
    with SseServer(words, keep=True) as server:
        client = drive(server, tmp_path).client
    requests = record.read(tmp_path / "requests.parquet")
    assert (client["processes"], client["clients_started"]) == (2, 3)
    assert client["sent"] == len(requests) == sum("max_tokens" in body for body in server.bodies)
    assert set(requests.process) == {0, 1}
    assert (requests.client % 2 == requests.process).all()
    assert requests.request.is_monotonic_increasing
    assert list(requests[requests.phase == "warmup"].groupby("client").max_tokens.first()) == [4, 8, 12]
    assert client["tokens_source"] == "tokenizer"
    assert client["output_tokens"] == 3 * client["chunks"]
    assert {path.name for path in tmp_path.iterdir()} == {"requests.parquet", "timeline.parquet"}


def test_a_failed_trial_is_quoted_and_leaves_its_tables(tmp_path: Path):
    limits = SimpleNamespace(stall_seconds=0.3, drain_seconds=5)
    with (
        SseServer(silent) as server,
        pytest.raises(load.LoadFailed, match=f"{server.url}: no request produced a token"),
    ):
        drive(server, tmp_path, limits=limits)
    assert set(record.read(tmp_path / "requests.parquet").error) <= {"stalled", "aborted"}
    assert (tmp_path / "timeline.parquet").exists()


def test_a_server_process_that_dies_ends_the_trial_early(tmp_path: Path):
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        with SseServer(steady()) as server:

            def end(event: dict) -> None:
                if event["event"] == "window-open":
                    process.kill()

            with pytest.raises(load.LoadFailed, match="ended during the trial"):
                drive(server, tmp_path, window=window(300), on_progress=end, target={"pid": process.pid})
    finally:
        process.kill()
        process.communicate()


def test_a_server_that_tells_nothing_of_itself_fails_before_the_load(tmp_path: Path):
    def sample() -> None:
        raise ConnectionRefusedError("metrics are gone")

    with SseServer(steady()) as server:
        with pytest.raises(load.LoadFailed, match="metrics are gone"):
            drive(server, tmp_path, target={"sample": sample})
        assert server.bodies == []


def test_an_interrupt_ends_the_client(tmp_path: Path):
    pids: list[int] = []

    def interrupt(event: dict) -> None:
        pids.extend(event.get("pids", []))
        if event["event"] == "window-open":
            raise KeyboardInterrupt

    with SseServer(steady()) as server, pytest.raises(KeyboardInterrupt):
        drive(server, tmp_path, on_progress=interrupt)
    deadline = time.monotonic() + 10
    while is_running(pids[0]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(pids[0])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"items": []}, "holds no prompts"),
        ({"items": [{"input_ids": [1]}]}, "'chat' takes no prompt given as input_ids"),
        (
            {"arrivals": "trace", "items": [{"text": "a", "at_s": 5.0}, {"text": "b", "at_s": 7.5}]},
            "end after 2.5 s, warm-up and window take 3 s",
        ),
    ],
)
def test_prompts_that_cannot_be_sent_are_refused_before_anything_starts(changes: dict, words: str, tmp_path: Path):
    with SseServer(steady()) as server:
        with pytest.raises(InputError, match=words):
            drive(server, tmp_path / "trial", replace(prompts(), **changes), window=window(2, 1), limits=LIMITS)
        assert server.bodies == []
    assert not (tmp_path / "trial").exists()
