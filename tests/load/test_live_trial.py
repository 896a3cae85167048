"""Short trials against the real server with the small model: two accounts of the same work agree."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import engines, load
from lab.campaign import Arm, Limits, Window
from lab.load import record
from lab.observe import idle_look
from lab.workloads import Workload

CONCURRENCY = 2
FLAGS = {"n_parallel": CONCURRENCY, "n_ctx": 1024, "n_threads": 1}
LIMITS = Limits(start_seconds=60, stall_seconds=60, drain_seconds=60)


@pytest.fixture(scope="module")
def drive(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., load.Measured]]:
    """Measures a workload on one server: `drive(folder, window, arrivals=…)`."""
    engine = engines.get("llamacpp")
    arm = Arm(name="control", engine="llamacpp", checkpoint=str(checkpoint), flags=FLAGS)
    folder = tmp_path_factory.mktemp("launch")
    with engine.launch(arm, folder, LIMITS, f"test-{uuid.uuid4().hex}") as server:
        idle = idle_look(server.sample, 0.2)
        target = load.Target(
            server.url,
            server.model,
            server.sample,
            extras=engine.request_extras(),
            tokens_path=engine.chunk_tokens_path,
            pid=server.pid,
            log=folder / "server.log",
            live_counters=engine.live_counters,
        )

        def measure(folder: Path, window: Any, **changes: Any) -> load.Measured:
            values = {"kind": "chat", "output_tokens": 16, "concurrency": [CONCURRENCY]} | changes
            asked = Workload(**values)
            return load.drive(
                target,
                load.build(asked, f"live {changes}", 100, max_prompt_tokens=160),
                concurrency=asked.concurrency[0],
                output_tokens=asked.output_tokens,
                window=window,
                limits=LIMITS,
                folder=folder,
                idle=idle,
            )

        yield measure


def agree(measured: load.Measured) -> None:
    """Client and server counted the same requests and tokens over the whole trial."""
    client, delta = measured.client, measured.server["delta"]
    assert (client["failed"], client["aborted"], client["drained"]) == (0, 0, True)
    assert client["completed"] == client["sent"] > CONCURRENCY
    assert client["tokens_source"] == "timings.predicted_n"
    assert delta["output_tokens"] == client["output_tokens"]
    assert delta["prompt_tokens"] == client["prompt_tokens"]


def test_client_and_server_count_the_same(drive: Callable[..., load.Measured], tmp_path: Path):
    measured = drive(tmp_path, Window(warmup_seconds=0.5, seconds=2, min_steady_seconds=2))
    agree(measured)
    client, told = measured.client, measured.server
    assert told["idle_running_max"] == 0
    assert 0 < client["window_tokens"] < client["output_tokens"]
    assert told["running_max"] == CONCURRENCY
    assert told["samples"] >= 3
    assert told["cpu_seconds"] > 0
    assert told["log_events"] == []
    assert 0 < told["window_delta"]["decode_steps"] < told["delta"]["decode_steps"]
    assert measured.metrics["mean_context_tokens"] > 20
    requests = record.read(tmp_path / "requests.parquet")
    assert (requests.due_s <= requests.sent_s).all()
    assert (requests.first_event_s <= requests.first_token_s).all()


def test_an_open_loop_beyond_the_servers_capacity_queues_at_the_server(
    drive: Callable[..., load.Measured], tmp_path: Path
):
    window = Window(warmup_seconds=0.2, seconds=0.6, min_steady_seconds=0.6)
    load_asked = {"concurrency": [64], "output_tokens": 3, "arrivals": "constant", "rate_rps": 10}
    measured = drive(tmp_path, window, api="llamacpp", **load_asked)
    agree(measured)
    assert measured.prompts["api"] == "llamacpp"
    assert measured.server["running_max"] == CONCURRENCY
    assert measured.server["waiting_max"] > 0
    assert measured.client["peak_in_flight"] > 2 * CONCURRENCY
