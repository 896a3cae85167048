"""Kills at random moments leave no process behind, and the run goes on from its records."""

from __future__ import annotations

import os
import random
import signal
import socket
import time

import psutil
import pytest

from lab.hosts import marked_processes
from lab.records import OPENING

LEVERS = {"kv_cache_dtype": {"dtype": "q8_0"}}
WINDOW = {"warmup_seconds": 0.3, "seconds": 2, "min_steady_seconds": 1}
VICTIMS = ("interrupt", "lab", "papermill", "kernel")
LONGEST_SECONDS = 22.0


def listening(pids: set[int]) -> set[int]:
    """Ports on which any of these processes listens."""
    return {
        connection.laddr.port
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.pid in pids
    }


def connectable(port: int) -> bool:
    """Whether somebody accepts connections on a port of this machine."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def victim_of(kind: str, lab_pid: int) -> int | None:
    """The process to kill; None while there is none of its kind."""
    if kind in ("interrupt", "lab"):
        return lab_pid
    word = {"papermill": "papermill", "kernel": "ipykernel_launcher"}[kind]
    for process in descendants(lab_pid):
        try:
            command = process.cmdline()
        except psutil.NoSuchProcess:
            continue
        if word in command and "python" in command[0] and not any("keeper.py" in part for part in command):
            return process.pid
    return None


def kill(lab, process, kind: str, eventually) -> None:
    """Kill one process of a running campaign; those that cannot go on without it end too."""
    found = eventually(lambda: process.poll() is not None or victim_of(kind, process.pid), f"a {kind} to kill")
    if process.poll() is not None:
        return
    marked = marked_processes(lab.latest().run_id) if lab.has_run() else []
    os.kill(found, signal.SIGINT if kind == "interrupt" else signal.SIGKILL)
    if kind in ("papermill", "kernel"):
        eventually(lambda: not any(alive(pid) for pid in marked), f"the killed {kind}'s server has ended")


def survive(lab, path, kills: list[tuple[str, float]], eventually) -> None:
    """Start or resume the campaign, kill parts of it, each so many seconds after the one before, and see what is left.

    One killed notebook is tried again; when its second attempt is killed too, the run ends with 1 and can be resumed.
    """
    process = lab.start("run", path, "--no-publish")
    family, ports = {process.pid}, set()
    for kind, seconds in kills:
        time.sleep(seconds)
        family |= {child.pid for child in descendants(process.pid)}
        ports |= listening(family)
        kill(lab, process, kind, eventually)
    code = process.wait(timeout=240)
    expected = {"interrupt": (130, 0), "lab": (-signal.SIGKILL, 0)}.get(kills[-1][0], (0, 1) if kills[1:] else (0,))
    assert code in expected, process.stderr.read()
    eventually(lambda: not any(alive(pid) for pid in family), f"after {kills}: all processes have ended")
    runs = {path.parent.name for path in lab.results.glob("short/*/status.json")}
    eventually(lambda: not any(marked_processes(run_id) for run_id in runs), "no process carries the run's marker")
    assert not any(connectable(port) for port in ports), "nobody listens where a server or kernel did"


def finish(lab, path) -> None:
    """Resume until the run is done, and look whether it is whole."""
    if not lab.has_run() or lab.latest().status["state"] != "done":
        answer = lab.run("run", path, "--no-publish")
        assert answer.returncode == 0, answer.stderr
    run = lab.latest()
    assert run.status["state"] == "done"
    assert run.damaged() == []
    treatments = [launch.arm for launch in run.launches() if launch.role == "treatment"]
    assert sorted(treatments) == sorted(LEVERS), "nothing is lost and nothing is measured twice"
    assert run.launches()[0].role == OPENING
    assert {row["verdict"] for row in lab.rows().values()} == {"inconclusive"}


def alive(pid: int) -> bool:
    """Whether a process still does anything (a zombie does not)."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_kills_leave_nothing_running_and_the_run_is_completed(lab, eventually):
    """Ctrl-C, then SIGKILL of `lab run`, then of papermill and of a kernel, each at a random moment."""
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")
    chance = random.Random(seed)
    path = lab.campaign(levers=LEVERS, window=WINDOW, workloads=lab.brief)
    survive(lab, path, [("interrupt", chance.uniform(1, 12))], eventually)
    survive(lab, path, [("lab", chance.uniform(1, 12))], eventually)
    survive(lab, path, [("papermill", chance.uniform(1, 8)), ("kernel", chance.uniform(1, 8))], eventually)
    finish(lab, path)


@pytest.mark.soak
@pytest.mark.timeout(5400)
def test_thirty_kills(lab, eventually):
    chance = random.Random(3)
    path = lab.campaign(levers=LEVERS, window=WINDOW)
    for number in range(30):
        survive(lab, path, [(VICTIMS[number % len(VICTIMS)], chance.uniform(1, LONGEST_SECONDS))], eventually)
        finish(lab, path)
