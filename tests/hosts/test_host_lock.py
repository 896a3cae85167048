"""One measurement per machine, or per GPU; whoever is refused learns who holds it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from lab import files
from lab.errors import LabError
from lab.hosts import host_lock

ROOT = Path(__file__).parents[2]
HOLDER = """
import sys, time
sys.path.insert(0, sys.argv[1])
from lab.hosts import host_lock
with host_lock(gpus=eval(sys.argv[2]), campaign="experiments/other.yaml"):
    print("held", flush=True)
    time.sleep(120)
"""


@pytest.fixture(autouse=True)
def _own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_CACHE", str(tmp_path))


def hold(gpus: Sequence[int] | None) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", HOLDER, str(ROOT), repr(gpus)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as output:
        assert output.readline() == "held\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


@pytest.mark.parametrize(("theirs", "ours"), [(None, None), ([0], None), (None, [0]), ([0, 1], [1, 2])])
def test_an_overlap_is_refused_and_names_the_holder(theirs: list[int] | None, ours: list[int] | None) -> None:
    holder = hold(theirs)
    try:
        refusal = rf"pid {holder.pid}, campaign experiments/other.yaml, since 2\d"
        with pytest.raises(LabError, match=refusal), host_lock(ours):
            pytest.fail("held twice")
    finally:
        end(holder)


def test_different_gpus_go_side_by_side() -> None:
    holder = hold([0])
    try:
        with host_lock([1]):
            pass
    finally:
        end(holder)


def test_a_killed_holder_leaves_the_lock_free() -> None:
    end(hold(None))
    with host_lock():
        pass


def test_a_note_left_by_a_dead_holder_names_nobody(tmp_path: Path) -> None:
    end(hold(None))
    (stale,) = (tmp_path / "locks").glob("host.*.json")
    reused = stale.with_name(f"host.{os.getppid()}.json")
    note = files.read_json(stale)
    files.write_json(reused, {**note, "pid": os.getppid(), "campaign": "stale.yaml"})
    holder = hold([3])
    try:
        with pytest.raises(LabError, match=f"pid {holder.pid}"), host_lock():
            pytest.fail("held twice")
    finally:
        end(holder)
    assert not stale.exists()
    assert not reused.exists()


def test_the_lock_is_free_after_the_block() -> None:
    for _ in range(2):
        with host_lock(campaign="mine"):
            pass


def test_a_process_started_by_the_holder_passes() -> None:
    code = "import sys; sys.path.insert(0, sys.argv[1]); from lab.hosts import host_lock\nwith host_lock(): print('in')"
    with host_lock(campaign="mine"):
        done = subprocess.run(
            [sys.executable, "-c", code, str(ROOT)], capture_output=True, text=True, env=dict(os.environ)
        )
    assert done.stdout == "in\n"
