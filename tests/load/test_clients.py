"""Client processes: several conducted as one, none that outlives its owner, none that fails in silence."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import COUNT, TOKENS, items, steady
from sse_server import SseServer

from lab.errors import DiskFullError
from lab.load import record
from lab.load.client_process import LoadFailed
from lab.load.clients import CLIENTS_PER_PROCESS, Clients, process_count
from lab.observe.machine import is_running

ROOT = Path(__file__).parents[2]
HEAVY = ("numpy", "pandas", "pyarrow", "psutil", "pydantic", "requests", "scipy")


def job(url: str, **changes: Any) -> dict[str, Any]:
    """What an owner tells its clients: half a second at five clients."""
    values = {
        "server_url": url,
        "model": "m",
        "items": items(),
        "concurrency": 5,
        "output_tokens": TOKENS,
        "warmup_seconds": 0.1,
        "seconds": 0.5,
        "stall_seconds": 10,
        "drain_seconds": 5,
        "tokens_path": COUNT,
    }
    return values | changes


def ends(pid: int, seconds: float = 10) -> bool:
    """Whether the process ends by itself."""
    deadline = time.monotonic() + seconds
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not is_running(pid)


@given(st.integers(1, 20_000))
def test_a_process_serves_512_clients_and_never_more_processes_than_cores(concurrency: int):
    count, cores = process_count(concurrency), len(os.sched_getaffinity(0))
    assert 1 <= count <= cores
    assert count == cores or count * CLIENTS_PER_PROCESS >= concurrency > (count - 1) * CLIENTS_PER_PROCESS


def test_two_processes_are_one_load(tmp_path: Path):
    events: list[dict[str, Any]] = []
    paths = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    with SseServer(steady(), keep=True) as server:
        work = job(server.url, arrivals="poisson", rate_rps=20, concurrency=30, seconds=1.0)
        with Clients(work, paths, None, events.append) as clients:
            clients.wait_until_ready()
            outcome = clients.measure()
    record.merge(paths, tmp_path / "all.parquet")
    requests = record.read(tmp_path / "all.parquet")
    assert len(set(events[0]["pids"])) == 2
    assert [e["event"] for e in events if e["event"] != "progress"] == [
        "ready", "window-open", "window-closed", "drained", "done",
    ]  # fmt: skip
    assert outcome["processes"] == 2
    assert outcome["drained"]
    assert outcome["loop_lag_p99_ms"] >= 0
    assert outcome["cpu_share"] > 0
    assert outcome["closed_s"] == outcome["opened_s"] + 1.0
    assert len(server.bodies) == len(requests)
    assert (requests.request % 2 == requests.process).all()
    assert (requests.client % 2 == requests.process).all()
    assert (requests.prompt == requests.request).all()
    assert (requests.phase == "window").equals(
        requests.sent_s.between(outcome["opened_s"], outcome["closed_s"], "left")
    )
    assert requests.due_s.is_monotonic_increasing
    assert list(requests.request) == list(range(len(requests)))
    progress = next(e for e in events if e["event"] == "progress")
    assert progress["sent"] > Counter(requests.process)[0] / 2


def test_a_client_that_breaks_is_quoted(tmp_path: Path):
    with (
        SseServer(steady()) as server,
        pytest.raises(LoadFailed, match="unexpected keyword argument 'nonsense'"),
        Clients(job(server.url, nonsense=1), [tmp_path / "r"], None, None) as clients,
    ):
        clients.wait_until_ready()
    assert server.bodies == []


def test_a_client_that_breaks_under_its_load_is_quoted_without_the_group_around_its_error(tmp_path: Path):
    broken = [{**items(1)[0], "max_tokens": "many"}]
    with (
        SseServer(steady()) as server,
        pytest.raises(LoadFailed, match=r"its time: TypeError: can't multiply .* 'float' \(loop\.py, line \d+\)$"),
        Clients(job(server.url, items=broken), [tmp_path / "r"], None, None) as clients,
    ):
        clients.wait_until_ready()
        clients.measure()


def test_one_client_process_that_is_killed_ends_the_trial_and_the_other(tmp_path: Path):
    pids: list[int] = []

    def kill_one(event: dict[str, Any]) -> None:
        if event["event"] == "ready":
            pids.extend(event["pids"])
        if event["event"] == "window-open":
            os.kill(pids[1], signal.SIGKILL)

    paths = [tmp_path / "0", tmp_path / "1"]
    with (
        SseServer(steady()) as server,
        pytest.raises(LoadFailed, match="ended before its time: exit code -9"),
        Clients(job(server.url, seconds=300), paths, None, kill_one) as clients,
    ):
        clients.wait_until_ready()
        clients.measure()
    assert ends(pids[0])


def test_a_full_disk_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "sitecustomize.py").write_text(
        "import os, errno\ndef full(descriptor):\n    raise OSError(errno.ENOSPC, 'full')\nos.fsync = full\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with (
        SseServer(steady(), keep=True) as server,
        pytest.raises(DiskFullError, match="disk full"),
        Clients(job(server.url, seconds=0.1), [tmp_path / "r"], None, None) as clients,
    ):
        clients.wait_until_ready()
        clients.measure()


OWNER = """
import sys
from pathlib import Path
sys.path.insert(0, "tests/load")
from test_clients import Clients, job
paths = [Path(sys.argv[2]) / name for name in "01"]
with Clients(job(sys.argv[1], seconds=300), paths, None, lambda event: print(event, flush=True)) as clients:
    clients.wait_until_ready()
    clients.measure()
"""


def test_clients_die_with_their_owner(tmp_path: Path):
    with SseServer(steady()) as server:
        command = [sys.executable, "-c", OWNER, server.url, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as owner:
            lines: list[str] = []
            while not lines or "window-open" not in lines[-1]:
                lines.append(owner.stdout.readline())
                assert lines[-1], "the owner ended before the window opened"
            pids = [int(pid) for pid in lines[0].split("[")[1].split("]")[0].split(",")]
            assert len(pids) == 2
            assert all(map(is_running, pids))
            os.kill(owner.pid, signal.SIGKILL)
        assert all(map(ends, pids))


@pytest.mark.parametrize(
    ("limits", "told"), [((100, 4096), "(564, 4096)"), ((1024, 4096), "(1024, 4096)"), ((100, 200), "may have 200")]
)
def test_a_client_may_open_as_many_connections_as_it_needs(limits: tuple[int, int], told: str):
    code = f"""
import resource
from lab.load.client import allow_connections
resource.setrlimit(resource.RLIMIT_NOFILE, {limits})
try:
    allow_connections(500)
    print(resource.getrlimit(resource.RLIMIT_NOFILE))
except Exception as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert told in done.stdout


def test_a_client_imports_nothing_that_takes_long():
    code = f"import sys, lab.load.client; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"
