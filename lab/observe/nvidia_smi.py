"""The GPUs of another machine, through the text of its `nvidia-smi`.

Without it a server behind ssh has no clocks and no power on record, since NVML reaches this machine only.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lab.errors import LabError
from lab.observe.gpus import GPU_KEYS, combined, selected

MIB = 1024 * 1024
FRESH_SECONDS = 5.0
_FORMAT = "--format=csv,noheader,nounits"
_INDEX = ("index", "uuid")
_DESCRIBE = {  # nvidia-smi's field → our name, factor to our unit
    "index": ("index", 1),
    "name": ("name", None),
    "uuid": ("uuid", None),
    "driver_version": ("driver", None),
    "memory.total": ("memory_bytes", MIB),
    "memory.used": ("memory_used_bytes", MIB),
    "enforced.power.limit": ("power_limit_w", 1.0),
    "pcie.link.width.current": ("pcie_width", 1),
    "pcie.link.width.max": ("pcie_width_max", 1),
    "pcie.link.gen.current": ("pcie_generation", 1),
    "pcie.link.gen.max": ("pcie_generation_max", 1),
    "clocks.max.sm": ("clock_max_mhz", 1),
}
_READ = {
    "clocks.sm": "gpu_clock_mhz",
    "clocks.mem": "gpu_memory_clock_mhz",
    "power.draw": "gpu_power_w",
    "temperature.gpu": "gpu_temperature_c",
    "utilization.gpu": "gpu_busy_pct",
}
_THROTTLE = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")  # since driver 535, before it

Run = Callable[[Sequence[str]], str]


class SmiGpus:
    """GPUs that a process with environment `env` sees on the machine where `run` executes a command.

    `run` returns what the command wrote to standard output, whatever its exit code; when it cannot reach the machine
    it raises OSError, subprocess.SubprocessError or LabError, which is a gap. It needs a time limit of its own.
    """

    def __init__(self, run: Run, env: Mapping[str, str]) -> None:
        self._run = run
        self._visible = env.get("CUDA_VISIBLE_DEVICES")
        self._uuids: list[str] | None = None
        self._throttle = _THROTTLE[0]
        self._latest = (float("-inf"), dict.fromkeys(GPU_KEYS))
        self._asking: threading.Thread | None = None

    def describe(self) -> list[dict[str, Any]]:
        """See `Gpus.describe`."""
        rows = {row["uuid"]: row for row in self._query(list(_DESCRIBE))}
        return [
            {ours: _value(rows[uuid][field], factor) for field, (ours, factor) in _DESCRIBE.items()}
            for uuid in self._selection()
            if uuid in rows
        ]

    def read(self) -> dict[str, float | None]:
        """The latest reading, and starts the next one in the background: a command on another machine takes longer
        than a row of the timeline may."""
        reading = self.latest()
        if self._asking is None or not self._asking.is_alive():
            self._asking = threading.Thread(target=self.refresh, name="lab-nvidia-smi", daemon=True)
            self._asking.start()
        return reading

    def latest(self) -> dict[str, float | None]:
        """The last reading; a gap before the first, and when it is older than FRESH_SECONDS."""
        read_s, reading = self._latest
        return dict(reading) if time.monotonic() - read_s < FRESH_SECONDS else dict.fromkeys(GPU_KEYS)

    def refresh(self) -> None:
        """Read now, waiting for the answer; `latest` returns it."""
        uuids = self._selection()
        rows = {row["uuid"]: row for row in self._query(["index", "uuid", *_READ, self._throttle])}
        readings = [_reading(rows[uuid], self._throttle) if uuid in rows else None for uuid in uuids]
        if not rows:  # one unknown field spoils the whole answer: the other name next time
            self._throttle = _THROTTLE[1 - _THROTTLE.index(self._throttle)]
        self._latest = (time.monotonic(), combined(readings))

    def _selection(self) -> list[str]:
        """UUIDs of the GPUs in question; asked for until the machine has answered once."""
        if self._uuids is None:
            uuids = {int(row["index"]): row["uuid"] for row in self._query(_INDEX)}
            if not uuids:
                return []
            self._uuids = [uuids[index] for index in selected(self._visible, uuids)]
        return self._uuids

    def _query(self, fields: Sequence[str]) -> list[dict[str, str]]:
        try:
            return table(self._run(["nvidia-smi", f"--query-gpu={','.join(fields)}", _FORMAT]), fields)
        except (OSError, subprocess.SubprocessError, LabError):
            return []


def table(text: str, fields: Sequence[str]) -> list[dict[str, str]]:
    """The rows of a `--query-gpu` answer whose first field is `index`; messages between them are left out."""
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    answers = [cells for cells in rows if len(cells) == len(fields) and cells[0].isdecimal()]
    return [dict(zip(fields, cells, strict=True)) for cells in answers]


def number(text: str) -> float | None:
    """A figure, in decimal or as a hexadecimal mask; None for `[N/A]`, `[Not Supported]` and other words."""
    try:
        return float(int(text, 16)) if text.startswith("0x") else float(text)
    except ValueError:
        return None


def _reading(row: Mapping[str, str], throttle: str) -> dict[str, float | None]:
    return {ours: number(row[field]) for field, ours in _READ.items()} | {"gpu_throttle": number(row[throttle])}


def _value(text: str, factor: float | None) -> Any:
    """In our unit: text without a factor, whole with a whole one."""
    if factor is None:
        return None if text.startswith("[") or text == "N/A" else text
    found = number(text)
    if found is None:
        return None
    return int(found * factor) if isinstance(factor, int) else found * factor
