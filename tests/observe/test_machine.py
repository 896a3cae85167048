"""The machine's figures: real where they can be read, missing where they cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from lab.observe.gpus import GPU_KEYS
from lab.observe.machine import KEYS, Meter, describe_machine, family, is_running, use

BUSY = "sum(i * i for i in range(3_000_000)); print('done', flush=True); input()"
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])"


def python(code: str) -> subprocess.Popen:
    """A process that says `done` and waits for the end of its input."""
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"done\n"
    return process


def test_own_process_has_figures_for_every_key():
    reading = Meter(os.getpid()).read()
    assert set(reading) == set(KEYS)
    assert reading["server_cpu_s"] > 0
    assert reading["memory_bytes"] > 1_000_000
    assert reading["load_1m"] >= 0
    assert reading["machine_memory_bytes"] > reading["memory_bytes"]


def test_busy_share_is_a_percentage_of_the_time_since_the_last_reading():
    meter = Meter(None)
    sum(i * i for i in range(3_000_000))
    assert 0 < meter.read()["machine_cpu_pct"] <= 100


def test_children_count():
    with python(PARENT) as parent:
        cpu_s, memory_bytes = use(family(parent.pid))
        parent.communicate(b"\n")
    with python(BUSY) as alone:
        alone_cpu_s, alone_memory_bytes = use(family(alone.pid))
        alone.communicate(b"\n")
    assert cpu_s > alone_cpu_s / 2
    assert memory_bytes > 1.5 * alone_memory_bytes


def test_no_process_no_figures():
    with python("print('done', flush=True)") as ended:
        processes = family(ended.pid)
        ended.communicate()
    assert use(processes) == (None, None)
    assert family(ended.pid) == family(None) == []
    reading = Meter(None).read()
    assert {reading[name] for name in ("server_cpu_s", "memory_bytes", "log_bytes", *GPU_KEYS)} == {None}


def test_a_child_that_ended_is_left_out():
    with python(BUSY) as child:
        processes = [*family(os.getpid())[:1], *family(child.pid)]
        child.communicate(b"\n")
    assert use(processes)[0] > 0


def test_the_log_grows_and_may_be_missing(tmp_path: Path):
    meter = Meter(None, tmp_path / "server.log")
    assert meter.read()["log_bytes"] is None
    (tmp_path / "server.log").write_bytes(b"1234")
    assert meter.read()["log_bytes"] == 4


class TwoGpus:
    """Says what a pair of GPUs would."""

    def describe(self) -> list[dict]:
        """Names only."""
        return [{"index": 0}, {"index": 1}]

    def read(self) -> dict[str, float | None]:
        """One figure."""
        return dict.fromkeys(GPU_KEYS) | {"gpu_power_w": 700.0}


def test_gpus_are_part_of_a_reading_and_of_the_description():
    assert Meter(None, gpus=TwoGpus()).read()["gpu_power_w"] == 700.0
    assert len(describe_machine(TwoGpus())["gpus"]) == 2


def test_a_process_that_ended_but_was_not_collected_does_not_run():
    process = python("print('done', flush=True)")
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not is_running(process.pid)
    process.communicate()
    assert not is_running(process.pid)
    assert is_running(os.getpid())


def test_the_machine_is_described():
    facts = describe_machine()
    assert facts["cpu_cores_logical"] >= 1
    assert facts["memory_bytes"] > 0
    assert {"cpu_model", "kernel", "python", "platform"} <= set(facts)
    assert isinstance(facts["gpus"], list)
