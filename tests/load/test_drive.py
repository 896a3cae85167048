"""Whole trials with the client in its own process, against a server that does exactly what the test says."""

from __future__ import annotations

import asyncio
import os
import signal
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
from lab.engines import readers
from lab.errors import InputError
from lab.load import record
from lab.observe import IdleLook
from lab.observe.machine import is_running
from lab.one_trial import measure_trial
from lab.workloads import Workload

ROOT = Path(__file__).parents[2]
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
            target={
                "headers": {"Authorization": SECRET},
                "extras": {"cache_prompt": False},
                "tokens_source": "timings.predicted_n of each chunk",
            },
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
    assert client["backing_off"] == 0
    assert 0 <= client["loop_lag_mean_ms"] <= client["loop_lag_p99_ms"] <= client["loop_lag_max_ms"]
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
    assert span["tokens_source"] == "timings.predicted_n of each chunk"
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


def test_a_campaign_records_where_its_engine_counts_the_tokens_of_a_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    targets: list[load.Target] = []
    monkeypatch.setattr(load, "drive", lambda target, *_, **__: targets.append(target) or load.Measured(*[{}] * 7))
    own = {"url": "http://127.0.0.1:1", "model": "m", "headers": {}, "pid": None, "log": None, "time_factor": 1.0}
    server = SimpleNamespace(engine="vllm", sample=None, **own)
    where = {"folder": tmp_path / "trial", "workload_folder": tmp_path, "context_tokens": None}
    rest = {"salt": "s", "window": window(), "limits": LIMITS, "facts": {}, "idle": None, "gpus": None}
    workload = Workload(kind="chat", output_tokens=4, concurrency=[1])
    measure_trial(server, workload, 1, **where, **rest)
    assert [target.tokens_source for target in targets] == [readers()["vllm"].window_tokens_source]


def test_an_interrupt_ends_the_client(tmp_path: Path):
    pids: list[int] = []

    def interrupt(event: dict) -> None:
        pids.extend(event.get("pids", []))
        if event["event"] == "window-open":
            raise KeyboardInterrupt

    with SseServer(steady()) as server, pytest.raises(KeyboardInterrupt):
        drive(server, tmp_path, on_progress=interrupt)
    assert ends(pids[0])


def ends(pid: int, seconds: float = 10) -> bool:
    """Whether the process ends by itself."""
    deadline = time.monotonic() + seconds
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not is_running(pid)


OWNER = """
import sys
from pathlib import Path
from types import SimpleNamespace
sys.path.insert(0, "tests/load")
from scripted import drive, window
import lab.load.drive
sys.modules["lab.load.drive"].process_count = lambda concurrency: 2
server = SimpleNamespace(url=sys.argv[1], finished=0, running=0)
drive(server, Path(sys.argv[2]), window=window(300), on_progress=lambda event: print(event, flush=True))
"""


def test_an_owner_that_is_killed_leaves_no_file_behind(tmp_path: Path):
    scratch, folder = tmp_path / "scratch", tmp_path / "trial"
    scratch.mkdir()
    with SseServer(steady()) as server:
        command = [sys.executable, "-c", OWNER, server.url, str(folder)]
        env = os.environ | {"TMPDIR": str(scratch)}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=env) as owner:
            lines: list[str] = []
            while not lines or "window-open" not in lines[-1]:
                lines.append(owner.stdout.readline())
                assert lines[-1], "the owner ended before the window opened"
            pids = [int(pid) for pid in lines[0].split("[")[1].split("]")[0].split(",")]
            os.kill(owner.pid, signal.SIGKILL)
        assert len(pids) == 2
        for pid in pids:
            assert ends(pid)
    assert (list(scratch.iterdir()), list(folder.iterdir())) == ([], [])


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
