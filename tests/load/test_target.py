"""What the server's counters say before and after a load, from a server that does not always answer."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from lab.errors import LabError
from lab.load import target
from lab.load.client_process import LoadFailed
from lab.observe import timeline


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second of waiting is a moment."""
    monkeypatch.setattr(timeline, "PATIENCE_S", 0.2)
    monkeypatch.setattr(timeline, "IDLE_INTERVAL_S", 0.01)
    monkeypatch.setattr(target, "SETTLE_SECONDS", 0.3)
    monkeypatch.setattr(target, "SETTLE_STEP_SECONDS", 0.01)


GONE = ConnectionRefusedError("metrics are gone")


def counted(tokens: float, running: float = 0.0) -> SimpleNamespace:
    """A reading of one counter."""
    return SimpleNamespace(running=running, counters={"output_tokens": tokens})


def asking(*answers: Any, pid: int | None = None) -> target.Target:
    """A server that gives these answers, the last one for ever; errors are raised."""
    left = list(answers)

    def sample() -> Any:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return target.Target("http://127.0.0.1:1", "m", sample, pid=pid)


def test_one_failed_reading_before_the_load_is_repeated():
    assert target.read(asking(GONE, LabError("500"), counted(3))).counters == {"output_tokens": 3}


def test_a_server_that_never_answers_before_the_load_fails_the_trial():
    with pytest.raises(LoadFailed, match="does not answer for itself: metrics are gone"):
        target.read(asking(GONE))


def test_counters_after_the_load_have_settled_whatever_fails_in_between():
    server = asking(counted(3, 1), GONE, counted(5), GONE, counted(6), GONE, counted(6), counted(9))
    assert target.read_settled(server).counters == {"output_tokens": 6}


def test_the_last_counters_stand_when_later_readings_fail():
    assert target.read_settled(asking(counted(3, 1), counted(5), GONE)).counters == {"output_tokens": 5}


def test_a_measured_window_is_kept_when_the_counters_after_it_cannot_be_read():
    for pid in (None, os.getpid()):
        assert target.read_settled(asking(GONE, pid=pid)).counters == {}


def test_a_server_process_that_has_ended_fails_the_trial():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    with pytest.raises(LoadFailed, match=f"process {process.pid} ended"):
        target.read_settled(asking(GONE, pid=process.pid))
