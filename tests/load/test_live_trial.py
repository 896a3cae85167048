"""One short trial against the real server with the small model: two accounts of the same work agree."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from lab import checkpoints, engines, load
from lab.campaign import Arm, Limits, Window, Workload
from lab.errors import LabError
from lab.observe import idle_look

CONCURRENCY = 2
OUTPUT_TOKENS = 16
FLAGS = {"n_parallel": CONCURRENCY, "n_ctx": 1024, "n_threads": 1}


@pytest.fixture(scope="module")
def checkpoint() -> Path:
    """The small real model; its tests are skipped where it is neither cached nor fetchable."""
    try:
        return checkpoints.resolve("smollm2-135m-q4_1", Path.cwd())
    except LabError as error:
        pytest.skip(str(error))


def test_client_and_server_count_the_same(checkpoint: Path, tmp_path: Path):
    engine = engines.get("llamacpp")
    arm = Arm(name="control", engine="llamacpp", checkpoint=str(checkpoint), flags=FLAGS)
    workload = Workload(kind="chat", output_tokens=OUTPUT_TOKENS, concurrency=[CONCURRENCY])
    limits = Limits(start_seconds=60, stall_seconds=60, drain_seconds=60)
    with engine.launch(arm, tmp_path, limits, f"test-{uuid.uuid4().hex}") as server:
        idle = idle_look(server.sample, 0.2)
        measured = load.drive(
            server.url,
            server.model,
            load.build(workload, "live", 100),
            concurrency=CONCURRENCY,
            output_tokens=workload.output_tokens,
            window=Window(warmup_seconds=1, seconds=3),
            limits=limits,
            extras=engine.request_extras(),
            tokens_path=engine.chunk_tokens_path,
            sample=server.sample,
            server_pid=server.pid,
            folder=tmp_path / "trial",
        )
    client, told = measured.client, measured.server
    assert idle == 0
    assert (client["failed"], client["aborted"], client["drained"]) == (0, 0, True)
    assert client["completed"] == client["sent"] > CONCURRENCY
    assert client["tokens_source"] == "timings.predicted_n"
    assert told["delta"]["output_tokens"] == client["output_tokens"]
    assert told["delta"]["prompt_tokens"] == client["prompt_tokens"]
    assert 0 < client["window_tokens"] < client["output_tokens"]
    assert told["running_max"] == CONCURRENCY
    assert told["samples"] >= 3
    assert told["cpu_seconds"] > 0
    assert measured.metrics["mean_context_tokens"] > 20
