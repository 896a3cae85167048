"""What must and what must not disturb a trial on the real embedded engine."""

from __future__ import annotations

import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from lab import observe
from lab.audit import INVALID, audit
from lab.campaign import Arm, Limits, Window
from lab.check import check
from lab.engines import get
from lab.engines.server import Server
from lab.one_trial import measure_trial
from lab.records import JUDGED, Launch, Trial
from lab.workloads import Workload

CLIENTS = 2
LIMITS = Limits(start_seconds=60, stall_seconds=60, drain_seconds=30)
WINDOW = Window(warmup_seconds=0.5, seconds=3, min_steady_seconds=2)
SPIN = "while True: pass"


@pytest.fixture(scope="module")
def arm(shallow: Path) -> Arm:
    """A control of two slots."""
    flags = {"n_parallel": CLIENTS, "n_ctx": 1024, "n_threads": 1}
    return Arm(name="control", engine="llamacpp", checkpoint=str(shallow), flags=flags)


@pytest.fixture(scope="module")
def server(arm: Arm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """llama.cpp with two slots."""
    with get("llamacpp").launch(arm, tmp_path_factory.mktemp("server"), LIMITS, f"test-{uuid.uuid4().hex}") as running:
        yield running


@pytest.fixture
def measure(arm: Arm, server: Server, tmp_path: Path) -> Callable[..., Trial]:
    """One short trial at two clients; `on_progress` sees the client's events."""

    def run(on_progress: Callable[[dict[str, Any]], None] | None = None) -> Trial:
        effective = {key: {"value": fact.value, "source": fact.source} for key, fact in server.describe().items()}
        facts = {key: fact["value"] for key, fact in effective.items()}
        sections = measure_trial(
            server,
            Workload(kind="chat", output_tokens=16, concurrency=[CLIENTS]),
            CLIENTS,
            salt=uuid.uuid4().hex[:6],
            window=WINDOW,
            limits=LIMITS,
            folder=tmp_path,
            workload_folder=tmp_path,
            facts=facts,
            context_tokens=facts["context_tokens"],
            idle=observe.idle_look(server.sample, 0.3),
            gpus=None,
            on_progress=on_progress,
        )
        record = {"workload": "chat", "concurrency": CLIENTS, "purpose": JUDGED, "simulated": False, **sections}
        launch = {"role": "opening", "order": 0, "pass": 0, "launch": 0, "arm": arm.model_dump()}
        launch |= {"effective": effective, "machine": observe.describe_machine(), "proof": None, "trials": []}
        return Trial(tmp_path, record, Launch(tmp_path, launch))

    return run


def test_a_second_client_is_foreign_traffic(server: Server, measure: Callable[..., Trial]):
    body = {"model": server.model, "prompt": "Once upon a time there was a small town", "max_tokens": 24}
    others: list[threading.Thread] = []

    def intrude(event: dict[str, Any]) -> None:
        if event["event"] == "window-open":
            ask = {"url": f"{server.url}/v1/completions", "json": body, "timeout": 60}
            others.extend(threading.Thread(target=requests.post, kwargs=ask) for _ in range(3))
            for other in others:
                other.start()

    trial = measure(intrude)
    for other in others:
        other.join()
    codes = {code.code: code for code in audit(trial)}
    assert len(others) == 3
    assert codes["foreign-traffic"].severity == INVALID


def test_a_busy_kernel_and_a_spinning_neighbour_raise_no_false_code(measure: Callable[..., Trial]):
    done = threading.Event()

    def spin() -> None:
        while not done.is_set():
            pass

    kernel = threading.Thread(target=spin)
    neighbour = subprocess.Popen([sys.executable, "-c", SPIN])
    kernel.start()
    try:
        codes = {code.code: code for code in audit(measure())}
    finally:
        done.set()
        kernel.join()
        neighbour.kill()
        neighbour.wait()
    assert [code for code in codes.values() if code.severity == INVALID] == []
    assert set(codes) <= {"machine-shared", "too-few-requests", "tail-undersampled"}


def test_a_check_of_the_running_server_says_what_it_ran(server: Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lab.check.IDLE_LOOK_SECONDS", 0.5)
    monkeypatch.setattr("lab.check.WARMUP_SECONDS_MIN", 0.5)
    checked = check(server.url, 4, 4)
    figures = checked.figures()
    assert figures["engine"] == "llamacpp"
    assert (figures["offered"], figures["cap"]) == (4, CLIENTS)
    assert figures["running"] == pytest.approx(CLIENTS, abs=0.2)
    assert figures["littles_law"] == pytest.approx(4, abs=0.3)
    assert figures["diagnosis"] == "cap-bound"
    assert figures["codes"][0] == "batch-cap"
    assert figures["output_tok_s"] > 0
