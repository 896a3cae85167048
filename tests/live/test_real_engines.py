"""`lab check` on real vLLM and SGLang servers, started from the folders that `tests/live/setup` makes.

Without it the readers are right about captured pages only, and nobody knows whether a healthy server raises an alarm.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import requests

from lab.campaign import PROJECT
from lab.hosts import LocalHost
from lab.tracking.store import free_port

START_SECONDS = 300
CAP = 4
PLACES = {"vllm": "LAB_VLLM_DIR", "sglang": "LAB_SGLANG_DIR"}


def started(engine: str, port: int) -> tuple[list[str], Mapping[str, str]]:
    """Command and environment of a server that runs four requests at most."""
    place = os.environ.get(PLACES[engine])
    if not place:
        pytest.fail(f"{PLACES[engine]} is not set; name a folder there that tests/live/setup/{engine}_cpu.sh made")
    folder = Path(place).resolve()
    serve, own = {
        "vllm": (
            f"{folder}/venv/bin/vllm serve {folder}/models/tiny --served-model-name tiny --load-format dummy "
            f"--dtype float32 --max-model-len 1024 --enforce-eager --kv-cache-memory-bytes 256M --max-num-seqs {CAP}",
            {"VLLM_NO_USAGE_STATS": "1", "VLLM_HOST_IP": "127.0.0.1", "VLLM_SERVER_DEV_MODE": "1"},
        ),
        "sglang": (
            f"{folder}/venv/bin/python -m sglang.launch_server --model-path {folder}/models/tiny "
            f"--served-model-name tiny --load-format dummy --device cpu --enable-metrics --max-total-tokens 16384 "
            f"--mem-fraction-static 0.3 --max-running-requests {CAP}",
            {"PYTHONPATH": f"{folder}/stubs", "SGLANG_USE_CPU_ENGINE": "1", "CUDA_VISIBLE_DEVICES": ""},
        ),
    }[engine]
    where = ["--host", "127.0.0.1", "--port", str(port)]
    return [*serve.split(), *where], {**os.environ, "HF_HUB_OFFLINE": "1", **own}


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=getattr(pytest.mark, f"live_{name}")) for name in PLACES],
)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Engine and address."""
    port = free_port()
    argv, env = started(request.param, port)
    log = tmp_path_factory.mktemp("server") / "server.log"
    process = LocalHost().start(argv, env, log, f"tests/{request.param}")
    try:
        url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + START_SECONDS
        while not healthy(url):
            assert process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(1)
        yield request.param, url
    finally:
        process.stop()


def healthy(url: str) -> bool:
    try:
        return requests.get(f"{url}/health", timeout=5).ok
    except requests.RequestException:
        return False


def check(url: str, concurrency: int) -> dict[str, Any]:
    """The figures of `lab check --json`."""
    command = [sys.executable, "-m", "lab", "check", url, "-c", str(concurrency), "--seconds", "20", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=PROJECT, timeout=240)
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.timeout(900)
def test_a_healthy_server_is_found_healthy(server: tuple[str, str]) -> None:
    engine, url = server
    found = check(url, CAP)
    invalid = [finding for finding in found["findings"] if finding["severity"] == "invalid"]
    assert (found["engine"], found["cap"], found["diagnosis"], invalid) == (engine, CAP, "healthy", [])
    assert found["running"] == pytest.approx(CAP, rel=0.1)
    assert found["output_tok_s"] > 0


@pytest.mark.timeout(900)
def test_a_full_server_is_found_capped_by_whom(server: tuple[str, str]) -> None:
    flag = {"vllm": "--max-num-seqs", "sglang": "--max-running-requests"}[server[0]]
    found = check(server[1], 2 * CAP)
    assert (found["diagnosis"], found["cap"], found["cap_flag"]) == ("cap-bound", CAP, flag)
    assert "batch-cap" in found["codes"]
    assert found["running"] == pytest.approx(CAP, rel=0.1)
    assert found["waited"] == pytest.approx(CAP, rel=0.25)
    assert found["littles_law"] == pytest.approx(2 * CAP, rel=0.05)
