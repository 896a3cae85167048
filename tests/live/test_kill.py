"""Kills at random moments leave no process behind, and the run goes on from its records."""

from __future__ import annotations

import os
import random
import signal
import time

import psutil
import pytest

from lab.hosts import marked_processes
from lab.records import OPENING

LEVERS = {"kv_cache_dtype": {"dtype": "q8_0"}}
WINDOW = {"warmup_seconds": 0.3, "seconds": 2, "min_steady_seconds": 1}
VICTIMS = ("interrupt", "lab", "papermill", "kernel")
LONGEST_SECONDS = 22.0


def listening(pids: set[int]) -> list[int]:
    """Ports on which any of these processes, or their present descendants, listens."""
    return [
        connection.laddr.port
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.pid in pids
    ]


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


def kill_once(lab, path, kind: str, moment_s: float, eventually) -> None:
    """Start or resume the campaign, kill one process of it at a moment, and look at what is left."""
    process = lab.start("run", path, "--no-publish")
    time.sleep(moment_s)
    found = eventually(lambda: process.poll() is not None or victim_of(kind, process.pid), f"a {kind} to kill")
    family = {process.pid, *(child.pid for child in descendants(process.pid))}
    servers = [pid for pid in family if pid in marked_processes(lab.latest().run_id)] if lab.has_run() else []
    if process.poll() is None:
        os.kill(found, signal.SIGINT if kind == "interrupt" else signal.SIGKILL)
    if kind in ("papermill", "kernel"):
        eventually(lambda: not any(alive(pid) for pid in servers), f"the killed {kind}'s servers have ended")
    code = process.wait(timeout=240)
    expected = {"interrupt": (130, 0), "lab": (-signal.SIGKILL, 0), "papermill": (0,), "kernel": (0,)}[kind]
    assert code in expected, process.stderr.read()
    eventually(lambda: not any(alive(pid) for pid in family), f"{kind} killed after {moment_s:.1f} s: all have ended")
    runs = {path.parent.name for path in lab.results.glob("short/*/status.json")}
    eventually(lambda: not any(marked_processes(run_id) for run_id in runs), "no process carries the run's marker")
    assert listening(family) == []


def check(lab, seed: int, kills: int, eventually) -> None:
    chance = random.Random(seed)
    path = lab.campaign(levers=LEVERS, window=WINDOW)
    for number in range(kills):
        kind = VICTIMS[(seed + number) % len(VICTIMS)]
        kill_once(lab, path, kind, chance.uniform(1, LONGEST_SECONDS), eventually)
        finish(lab, path)


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


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_kill_leaves_nothing_running_and_the_run_can_be_resumed(lab, eventually, seed):
    check(lab, seed, 1, eventually)


@pytest.mark.soak
@pytest.mark.timeout(5400)
def test_thirty_kills(lab, eventually):
    check(lab, 3, 30, eventually)
