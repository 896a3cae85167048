"""Whole trials with the client in its own process, against a server that does exactly what the test says."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from sse_server import DONE, ROLE, SseServer, delta, head, usage

from lab import load
from lab.load.client_process import ClientProcess
from lab.observe.machine import is_running

TOKENS = 12
PROMPTS = load.build(SimpleNamespace(kind="chat"), "test", 500)
COUNT = ("timings", "predicted_n")
ROOT = Path(__file__).parents[2]


def steady(pause: float = 0.01):
    """A handler that emits one counted token after every pause, as many as were asked for."""

    async def answer(body: dict, writer: asyncio.StreamWriter) -> None:
        writer.write(head() + ROLE)
        for count in range(1, body["max_tokens"] + 1):
            await asyncio.sleep(pause)
            writer.write(delta(content="a", count=count))
            await writer.drain()
        writer.write(delta("length") + usage(body["max_tokens"]) + DONE)

    return answer


async def refuse(body: dict, writer: asyncio.StreamWriter) -> None:
    """A handler that turns everything down."""
    text = b'{"error": {"message": "the prompt is too long"}}'
    writer.write(head(400, "application/json", Content_Length=str(len(text))) + text)


def drive(server: SseServer, folder: Path, **changes: Any) -> load.Measured:
    """A short trial at a concurrency of three."""

    def sample() -> SimpleNamespace:
        counters = {"requests_finished": float(server.finished)}
        return SimpleNamespace(running=float(server.running), waiting=0.0, kv_usage=None, counters=counters)

    arguments = {
        "concurrency": 3,
        "output_tokens": TOKENS,
        "window": SimpleNamespace(warmup_seconds=0.3, seconds=1.2),
        "limits": SimpleNamespace(stall_seconds=10, drain_seconds=5),
        "extras": {"cache_prompt": False},
        "tokens_path": COUNT,
        "sample": sample,
        "server_pid": None,
        "folder": folder,
    }
    return load.drive(server.url, "m", PROMPTS, **(arguments | changes))


def ends(pid: int, seconds: float = 10) -> bool:
    """Whether the process ends by itself."""
    deadline = time.monotonic() + seconds
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not is_running(pid)


def test_a_trial_and_its_record(tmp_path: Path):
    events = []
    with SseServer(steady()) as server:
        measured = drive(server, tmp_path, on_progress=events.append, idle_running_max=0.0)
    client, metrics = measured.client, measured.metrics
    assert measured.window["closed_s"] - measured.window["opened_s"] == measured.window["seconds"]
    assert measured.window["seconds"] == pytest.approx(1.2)
    assert measured.prompts == {"salt": "test", "digest": PROMPTS.digest, "count": 500}
    assert client["completed"] == client["sent"] == len(server.bodies)
    assert measured.server["delta"] == {"requests_finished": client["completed"]}
    assert client["output_tokens"] == sum(body["max_tokens"] for body in server.bodies)
    assert client["tokens_source"] == "timings.predicted_n"
    assert (client["failed"], client["aborted"], client["drained"], client["clients_started"]) == (
        0,
        0,
        True,
        3,
    )
    assert 0 < client["window_tokens"] < client["output_tokens"]
    assert 2 < client["littles_law"] <= 3
    assert metrics["output_tok_s"] == pytest.approx(client["window_tokens"] / 1.2)
    assert measured.server["idle_running_max"] == 0
    assert [e["event"] for e in events if e["event"] != "progress"] == [
        "ready", "window-open", "window-closed", "drained", "done",
    ]  # fmt: skip

    requests = pq.read_table(tmp_path / "requests.parquet").to_pandas()
    assert len(requests) == client["sent"]
    assert set(requests.phase) == {"warmup", "window"}
    assert requests.error.isna().all()
    assert (requests.chunk_tokens.map(sum) == requests.output_tokens).all()
    assert pq.read_table(tmp_path / "timeline.parquet").num_rows >= 3


def test_a_server_that_turns_down_what_is_beyond_its_limit_is_measured_all_the_same(tmp_path: Path):
    inside = 0

    async def limited(body: dict, writer: asyncio.StreamWriter) -> None:
        nonlocal inside
        if inside >= 1:
            writer.write(head(429, "application/json", Content_Length="2") + b"{}")
            return
        inside += 1
        try:
            await steady()(body, writer)
        finally:
            inside -= 1

    with SseServer(limited) as server:
        measured = drive(server, tmp_path, limits=SimpleNamespace(stall_seconds=2, drain_seconds=5))
    assert measured.client["errors"]["rate-limited"] == measured.client["failed"] > 0
    assert measured.client["window_tokens"] > 0


def test_requests_say_what_the_arm_and_the_house_want(tmp_path: Path):
    with SseServer(steady()) as server:
        drive(server, tmp_path)
    body = server.bodies[-1]
    assert (body["temperature"], body["stream"], body["cache_prompt"]) == (0, True, False)
    assert body["stream_options"] == {"include_usage": True}
    sent = [body["messages"] for body in server.bodies]
    assert sorted(map(str, sent)) == sorted(map(str, PROMPTS.messages[: len(sent)]))


def test_first_requests_are_staggered(tmp_path: Path):
    with SseServer(steady()) as server:
        drive(server, tmp_path)
    caps = [body["max_tokens"] for body in server.bodies]
    assert sorted(cap for cap in caps if cap != TOKENS) == [4, 8]
    assert len(caps) > 5


def test_failed_requests_are_counted_and_the_rest_goes_on(tmp_path: Path):
    async def every_fourth_fails(body: dict, writer: asyncio.StreamWriter) -> None:
        fails = body["messages"] in [PROMPTS.messages[index] for index in range(3, 500, 4)]
        await (refuse if fails else steady())(body, writer)

    with SseServer(every_fourth_fails) as server:
        measured = drive(server, tmp_path)
    client = measured.client
    assert client["errors"] == {"http-4xx": client["failed"]}
    assert client["failed"] >= 1
    assert client["completed"] + client["failed"] == client["sent"]
    assert client["error_text"] == "the prompt is too long"
    rows = pq.read_table(tmp_path / "requests.parquet").to_pandas()
    assert set(rows.status[rows.error.notna()]) == {400}


def test_requests_that_would_not_end_in_time_are_aborted_and_kept(tmp_path: Path):
    with SseServer(steady(pause=0.1)) as server:
        measured = drive(server, tmp_path, output_tokens=3000)
    client = measured.client
    assert (client["aborted"], client["sent"], client["completed"], client["drained"]) == (3, 3, 0, False)
    assert client["window_tokens"] > 0
    assert client["errors"] == {}
    rows = pq.read_table(tmp_path / "requests.parquet").to_pandas()
    assert list(rows.error) == ["aborted"] * 3
    assert (rows.output_tokens > 0).all()


def test_a_server_that_refuses_everything_is_quoted(tmp_path: Path):
    with SseServer(refuse) as server, pytest.raises(load.LoadFailed, match="the prompt is too long"):
        drive(server, tmp_path)


def test_a_server_that_never_gives_a_token(tmp_path: Path):
    async def silent(body: dict, writer: asyncio.StreamWriter) -> None:
        writer.write(head() + ROLE)
        await asyncio.sleep(60)

    limits = SimpleNamespace(stall_seconds=0.5, drain_seconds=5)
    with SseServer(silent) as server, pytest.raises(load.LoadFailed, match=r"no request produced a token"):
        drive(server, tmp_path, limits=limits)


def test_a_server_that_goes_away_ends_the_trial_early(tmp_path: Path):
    window = SimpleNamespace(warmup_seconds=0.1, seconds=300)
    with SseServer(steady()) as server:

        def go_away(event: dict) -> None:
            if event["event"] == "window-open":
                server.stop_listening()

        with pytest.raises(load.LoadFailed, match="no longer accepts connections"):
            drive(server, tmp_path, window=window, on_progress=go_away)
    rows = pq.read_table(tmp_path / "requests.parquet").to_pandas()
    assert {"disconnected", "connect"} <= set(rows.error.dropna())


def test_a_server_process_that_dies_ends_the_trial_early(tmp_path: Path):
    window = SimpleNamespace(warmup_seconds=0.1, seconds=300)
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        with SseServer(steady()) as server:

            def end(event: dict) -> None:
                if event["event"] == "window-open":
                    process.kill()

            with pytest.raises(load.LoadFailed, match="ended during the trial"):
                drive(server, tmp_path, window=window, on_progress=end, server_pid=process.pid)
    finally:
        process.kill()
        process.communicate()


def test_a_server_that_tells_nothing_of_itself_fails_before_the_load(tmp_path: Path):
    def sample() -> None:
        raise ConnectionRefusedError("metrics are gone")

    with SseServer(steady()) as server:
        with pytest.raises(load.LoadFailed, match="metrics are gone"):
            drive(server, tmp_path, sample=sample)
        assert server.bodies == []


def test_an_interrupt_ends_the_client(tmp_path: Path):
    pids = []

    def interrupt(event: dict) -> None:
        pids.extend([event["pid"]] if event["event"] == "ready" else [])
        if event["event"] == "window-open":
            raise KeyboardInterrupt

    with SseServer(steady()) as server, pytest.raises(KeyboardInterrupt):
        drive(server, tmp_path, on_progress=interrupt)
    assert ends(pids[0])


OWNER = """
import sys
from pathlib import Path
from types import SimpleNamespace
from lab import load
load.drive(
    sys.argv[1], "m", load.build(SimpleNamespace(kind="chat"), "owner", 500),
    concurrency=2, output_tokens=8, extras={}, tokens_path=None, server_pid=None,
    window=SimpleNamespace(warmup_seconds=0.1, seconds=300),
    limits=SimpleNamespace(stall_seconds=10, drain_seconds=5),
    sample=lambda: SimpleNamespace(running=None, waiting=None, kv_usage=None, counters={}),
    folder=Path(sys.argv[2]), on_progress=lambda event: print(event, flush=True),
)
"""


def test_the_client_dies_with_its_owner(tmp_path: Path):
    with SseServer(steady()) as server:
        command = [sys.executable, "-c", OWNER, server.url, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as owner:
            lines = []
            while not lines or "window-open" not in lines[-1]:
                lines.append(owner.stdout.readline())
                assert lines[-1], "the owner ended before the window opened"
            client_pid = int(lines[0].split("'pid': ")[1].rstrip("}\n"))
            assert is_running(client_pid)
            os.kill(owner.pid, signal.SIGKILL)
        assert ends(client_pid)


def test_a_client_that_breaks_is_quoted(tmp_path: Path):
    with (
        SseServer(steady()) as server,
        pytest.raises(load.LoadFailed, match="unexpected keyword argument 'nonsense'"),
    ):
        process = ClientProcess({"nonsense": 1, "requests_path": "x", "tokens_path": None})
        with process as client:
            client.wait_for("ready", None, None)
            client.go()
            client.wait_for("done", None, None)
    assert server.bodies == []
