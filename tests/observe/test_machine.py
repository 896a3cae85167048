"""The machine's figures: real where they can be read, missing where they cannot."""

from __future__ import annotations

import os
import subprocess
import sys

from lab.observe.machine import KEYS, Meter, describe_machine, is_running, process_use

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


def test_busy_share_is_a_percentage_of_the_time_since_the_last_reading():
    meter = Meter(None)
    sum(i * i for i in range(3_000_000))
    assert 0 < meter.read()["machine_cpu_pct"] <= 100


def test_children_count():
    with python(PARENT) as parent:
        cpu_s, memory_bytes = process_use(parent.pid)
        parent.communicate(b"\n")
    with python(BUSY) as alone:
        alone_cpu_s, alone_memory_bytes = process_use(alone.pid)
        alone.communicate(b"\n")
    assert cpu_s > alone_cpu_s / 2
    assert memory_bytes > 1.5 * alone_memory_bytes


def test_no_process_no_figures():
    with python("print('done', flush=True)") as ended:
        ended.communicate()
    assert process_use(ended.pid) == (None, None)
    assert process_use(None) == (None, None)
    reading = Meter(None).read()
    assert (reading["server_cpu_s"], reading["memory_bytes"]) == (None, None)


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
