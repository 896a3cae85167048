"""What the machine and the server process spent.

Without it a slow trial on a busy machine looks like a slow server: tokens per second fall, and nothing tells
why.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import psutil

KEYS = ("server_cpu_s", "machine_cpu_pct", "load_1m", "memory_bytes")


class Meter:
    """Reads the machine again and again; `server_pid` None when the server's process is out of reach."""

    def __init__(self, server_pid: int | None) -> None:
        self._server_pid = server_pid
        self._cpu_times = psutil.cpu_times()

    def read(self) -> dict[str, float | None]:
        """The figures of KEYS: the server's CPU seconds so far and resident bytes (children included), the
        machine's busy share since the last reading, and its load average. What cannot be read is None."""
        cpu_s, memory_bytes = process_use(self._server_pid)
        return {
            "server_cpu_s": cpu_s,
            "machine_cpu_pct": self._busy_pct(),
            "load_1m": os.getloadavg()[0],
            "memory_bytes": memory_bytes,
        }

    def _busy_pct(self) -> float | None:
        before, self._cpu_times = self._cpu_times, psutil.cpu_times()
        total = sum(self._cpu_times) - sum(before)
        idle = _idle_s(self._cpu_times) - _idle_s(before)
        return min(100.0, max(0.0, 100 * (1 - idle / total))) if total > 0 else None


def process_use(pid: int | None) -> tuple[float | None, int | None]:
    """CPU seconds and resident bytes of a process and its children; (None, None) when it is gone or out of reach."""
    if pid is None:
        return None, None
    try:
        root = psutil.Process(pid)
        times = root.cpu_times()
        cpu_s, memory_bytes = sum(times[:4]), root.memory_info().rss
        children = root.children(recursive=True)
    except psutil.Error:
        return None, None
    for child in children:
        try:
            times = child.cpu_times()
            cpu_s, memory_bytes = cpu_s + sum(times[:4]), memory_bytes + child.memory_info().rss
        except psutil.Error:
            continue
    return cpu_s, memory_bytes


def is_running(pid: int) -> bool:
    """Whether the process still runs; one that ended and was not collected does not."""
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def describe_machine() -> dict[str, Any]:
    """What the trial ran on, for the record; what cannot be read is None."""
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
    }


def _cpu_model() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or None
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or None


def _idle_s(times: Any) -> float:
    return times.idle + getattr(times, "iowait", 0.0)
