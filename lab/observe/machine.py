"""What the machine and the server process spent.

Without it a slow trial on a busy machine looks like a slow server: tokens per second fall, and nothing tells
why.
"""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import Any

import psutil

from lab.observe.gpus import GPU_KEYS, Gpus, local_gpus

KEYS = (
    "server_cpu_s",
    "machine_cpu_pct",
    "load_1m",
    "memory_bytes",
    "machine_memory_bytes",
    "log_bytes",
    *GPU_KEYS,
)
FAMILY_SECONDS = 5.0  # looking for child processes reads all of /proc: half a second's rows may share one look


class Meter:
    """Reads the machine again and again; what is not given (server process, its log, its GPUs) reads as None."""

    def __init__(self, server_pid: int | None, log_path: Path | None = None, gpus: Gpus | None = None) -> None:
        self._server_pid = server_pid
        self._log_path = log_path
        self._gpus = gpus
        self._cpu_times = psutil.cpu_times()
        self._family: list[psutil.Process] = []
        self._family_until_s = float("-inf")

    def read(self) -> dict[str, float | None]:
        """The figures of KEYS, None where they cannot be read.

        The server's CPU seconds so far and resident bytes, children included (pages that they share count for each);
        the machine's busy share since the last reading, load average and used bytes (all but what the kernel calls
        available); the size of the log at the begin of this call; the GPUs' figures (see `gpus.combined`).
        """
        log_bytes = self._log_bytes()
        cpu_s, memory_bytes = use(self._processes())
        memory = psutil.virtual_memory()
        return {
            "server_cpu_s": cpu_s,
            "machine_cpu_pct": self._busy_pct(),
            "load_1m": os.getloadavg()[0],
            "memory_bytes": memory_bytes,
            "machine_memory_bytes": memory.total - memory.available,
            "log_bytes": log_bytes,
            **(self._gpus.read() if self._gpus else dict.fromkeys(GPU_KEYS)),
        }

    def _processes(self) -> list[psutil.Process]:
        if time.monotonic() >= self._family_until_s:
            self._family = family(self._server_pid)
            self._family_until_s = time.monotonic() + FAMILY_SECONDS
        return self._family

    def _log_bytes(self) -> int | None:
        try:
            return self._log_path.stat().st_size if self._log_path else None
        except OSError:
            return None

    def _busy_pct(self) -> float | None:
        before, self._cpu_times = self._cpu_times, psutil.cpu_times()
        total = sum(self._cpu_times) - sum(before)
        idle = _idle_s(self._cpu_times) - _idle_s(before)
        return min(100.0, max(0.0, 100 * (1 - idle / total))) if total > 0 else None


def family(pid: int | None) -> list[psutil.Process]:
    """A process, first, and its descendants; empty when it is gone or out of reach."""
    if pid is None:
        return []
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.Error:
        return []


def use(processes: list[psutil.Process]) -> tuple[float | None, int | None]:
    """CPU seconds and resident bytes of a family; (None, None) when its first process is gone."""
    if not processes:
        return None, None
    try:
        cpu_s, memory_bytes = _use_of_one(processes[0])
    except psutil.Error:
        return None, None
    for child in processes[1:]:
        try:
            own_s, own_bytes = _use_of_one(child)
        except psutil.Error:
            continue
        cpu_s, memory_bytes = cpu_s + own_s, memory_bytes + own_bytes
    return cpu_s, memory_bytes


def is_running(pid: int) -> bool:
    """Whether the process still runs; one that ended and was not collected does not."""
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def describe_machine(gpus: Gpus | None = None) -> dict[str, Any]:
    """What the trial ran on, for the record; what cannot be read is None.

    `gpus`: those that the server uses (None: all of this machine); they are listed as `Gpus.describe` says, and the
    list is empty without any.
    """
    return {
        "platform": platform.platform(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "cpu_model": _cpu_model(),
        "cpu_cores_physical": psutil.cpu_count(logical=False),
        "cpu_cores_logical": psutil.cpu_count(),
        "cpu_cores_usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "memory_bytes": psutil.virtual_memory().total,
        "gpus": (gpus or local_gpus({})).describe(),
    }


def _cpu_model() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or None
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or None


def _use_of_one(process: psutil.Process) -> tuple[float, int]:
    """With the CPU seconds of children that it has collected."""
    return sum(process.cpu_times()[:4]), process.memory_info().rss


def _idle_s(times: Any) -> float:
    return times.idle + getattr(times, "iowait", 0.0)
