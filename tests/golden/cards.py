"""GPUs for a machine that has none: what they show, launch by launch.

Without them nothing about clocks, heat and memory of a card could be staged on a machine of cores alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from lab import measure

POWER_CAP, THERMAL = 0x004, 0x020
NORMAL: dict[str, float] = {"gpu_clock_mhz": 1980.0, "gpu_throttle": POWER_CAP}
HOT: dict[str, float] = {"gpu_clock_mhz": 1755.0, "gpu_throttle": POWER_CAP | THERMAL}


class _Card:
    """One GPU that shows what it is told to show; see `lab.observe.gpus.Gpus`."""

    def __init__(self, shown: Mapping[str, float], used_bytes: int) -> None:
        self._shown = shown
        self._used_bytes = used_bytes

    def describe(self) -> list[dict[str, Any]]:
        what = {"index": 0, "name": "GPU", "uuid": "GPU-0", "driver": "580.1", "memory_bytes": 140 * 1024**3}
        return [{**what, "memory_used_bytes": self._used_bytes, "power_limit_w": 600.0, "pcie_width": 16}]

    def read(self) -> dict[str, float | None]:
        usual = {"gpu_memory_clock_mhz": 2619.0, "gpu_power_w": 590.0, "gpu_temperature_c": 78.0, "gpu_busy_pct": 99.0}
        return {**usual, **self._shown}


def cards(*launches: Mapping[str, float], used_bytes: int = 0) -> Callable[[], AbstractContextManager[None]]:
    """This machine has a card with so much memory in use; `launches`: what it reads in each of them."""

    @contextmanager
    def present() -> Iterator[None]:
        shown = iter(launches)
        with patch.object(measure, "local_gpus", lambda env: _Card(next(shown), used_bytes)):
            yield

    return present
