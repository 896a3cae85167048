"""The simulated engine: refuses wrong truths, starts, is read like a real engine, and dies as ordered."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import requests

from lab import engines
from lab.campaign import Arm, Limits
from lab.engines.attach import recognise
from lab.engines.base import ArmFailed
from lab.engines.simulated import Simulated
from lab.errors import InputError
from lab.hosts import marked_processes

LIMITS = Limits(start_seconds=30)


def arm(**flags: Any) -> Arm:
    named = {name.replace("__", "."): value for name, value in flags.items()}
    return Arm(name="control", engine="simulated", checkpoint="tiny", flags={"time_factor": 20.0, **named})


@pytest.fixture
def engine() -> Simulated:
    found = engines.get("simulated")
    assert isinstance(found, Simulated)
    return found


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"steps_ms": 3}, "arm 'control': flag 'steps_ms' is unknown to the simulated server; did you mean 'step_ms'"),
        ({"max_running": 0}, "arm 'control': flag max_running"),
        ({"speculation__tokens": 1}, "give one for each"),
    ],
)
def test_a_wrong_truth_is_refused_before_anything_starts(engine: Simulated, flags: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        engine.check(arm(**flags))
    assert words in str(caught.value)


def test_a_runtime_is_refused(engine: Simulated) -> None:
    with pytest.raises(InputError, match="runtime 'python' is not for simulated"):
        engine.check(arm().model_copy(update={"runtime": {"python": "/usr/bin/python3"}}))


@pytest.mark.parametrize("dialect", ["vllm", "sglang", "llamacpp"])
def test_it_starts_and_is_read_as_the_engine_it_plays(engine: Simulated, dialect: str, tmp_path: Path) -> None:
    wanted = arm(dialect=dialect, max_running=4, step_ms=11.0, kv_tokens=8192)
    folder = tmp_path / "007-control"
    with engine.launch(wanted, folder, LIMITS, marker=f"test/{tmp_path.name}") as server:
        facts = {key: fact.value for key, fact in server.describe().items()}
        seen = server.sample()
        truth = server.truth(0.0, time.monotonic())
        attached = recognise(server.url)
        with pytest.raises(requests.RequestException):
            recognise(server.url).control.json("/simulator/nothing")
    assert (facts["cap"], facts["kv_tokens"], facts["ranks"]) == (4, 8192, 1)
    assert (facts["simulated.step_ms"], facts["time_factor"], facts["model_name"]) == (11.0, 20.0, "tiny")
    assert (seen.running, seen.counters["output_tokens"], truth["requests_finished"]) == (0.0, 4.0, 1)
    assert (server.engine, attached.engine, server.time_factor, server.missing) == (dialect, dialect, 20.0, ())
    assert server.exit is not None and (server.exit.code, server.exit.forced) == (0, False)
    assert np.load(folder / "truth.npz")["request_output_tokens"].tolist() == [4.0]
    assert not marked_processes(f"test/{tmp_path.name}", exact=True)


def test_launches_differ_by_their_number(engine: Simulated, tmp_path: Path) -> None:
    factors = []
    for name in ("001-control", "002-control", "001-control"):
        with engine.launch(arm(noise__launch_cv_pct=5.0), tmp_path / name, LIMITS, marker=f"test/{name}") as server:
            factors.append(server.truth(0.0, time.monotonic())["launch_factor"])
    assert factors[0] == factors[2] != factors[1]


@pytest.mark.parametrize(
    ("flags", "seconds", "kind", "words"),
    [
        ({"faults__exit_with_oom_log": True}, 30, "out-of-memory", "CUDA out of memory"),
        ({"faults__exit_with_oom_log": True, "dialect": "llamacpp"}, 30, "out-of-memory", "failed to allocate"),
        ({"faults__false_ready": True}, 2, "start-timeout", "a completion answers 500"),
        ({"extra_start_s": 1e6}, 2, "start-timeout", "it did not listen"),
    ],
)
def test_a_start_that_fails_says_why(
    engine: Simulated, tmp_path: Path, flags: dict[str, Any], seconds: float, kind: str, words: str
) -> None:
    with pytest.raises(ArmFailed) as caught:
        engine.launch(arm(**flags), tmp_path, Limits(start_seconds=seconds), marker=f"test/{tmp_path.name}")
    assert caught.value.failure.kind == kind
    assert words in caught.value.failure.reason
    assert not marked_processes(f"test/{tmp_path.name}", exact=True)


def test_it_crashes_on_order_and_its_orphan_is_ended(engine: Simulated, tmp_path: Path) -> None:
    marker = f"test/{tmp_path.name}"
    wanted = arm(faults__crash_at_s=10.0, faults__crash_code=3, faults__orphan_s=60.0)
    with engine.launch(wanted, tmp_path, LIMITS, marker=marker) as server:
        children = psutil.Process(server.pid).children()
        deadline = time.monotonic() + 20
        while server.alive() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not server.alive()
    assert server.exit is not None and server.exit.code == 3
    assert engine.failure(server.log_text(), 3).reason.startswith("exit code 3")
    assert children and not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children)


def test_every_flag_can_be_proven_by_what_the_server_shows(engine: Simulated, tmp_path: Path) -> None:
    with engine.launch(arm(), tmp_path, LIMITS, marker=f"test/{tmp_path.name}") as server:
        facts = server.describe()
    for flag, keys in engine.shown_by.items():
        assert any(key in facts for key in keys), flag


def test_an_ignored_flag_shows_its_default(engine: Simulated, tmp_path: Path) -> None:
    wanted = arm(step_ms=5.0, ignored_flags=["step_ms"])
    with engine.launch(wanted, tmp_path, LIMITS, marker=f"test/{tmp_path.name}") as server:
        assert server.describe()["simulated.step_ms"].value == 20.0


def test_the_model_comes_from_the_truth(engine: Simulated) -> None:
    checkpoint, model = engine.model_of(arm(weights__layers=4, context_tokens=2048))
    assert (model.layers, model.context_length, model.name) == (4, 2048, "tiny")
    assert checkpoint.bytes == model.weight_bytes
    assert engine.model_of(arm())[0].sha256 != checkpoint.sha256
