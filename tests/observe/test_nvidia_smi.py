"""The GPUs of another machine from the text that its nvidia-smi prints."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Sequence

import pytest

from lab.observe.gpus import DESCRIPTION, GPU_KEYS
from lab.observe.nvidia_smi import SmiGpus, number, table

UNKNOWN = dict.fromkeys(GPU_KEYS)
ROWS = {
    "index": ("0", "1"),
    "uuid": ("GPU-aaaa", "GPU-bbbb"),
    "name": ("NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"),
    "driver_version": ("550.54.15", "550.54.15"),
    "memory.total": ("81559", "81559"),
    "memory.used": ("512", "0"),
    "enforced.power.limit": ("700.00", "[N/A]"),
    "pcie.link.width.current": ("16", "[Not Supported]"),
    "pcie.link.width.max": ("16", "16"),
    "pcie.link.gen.current": ("5", "5"),
    "pcie.link.gen.max": ("5", "5"),
    "clocks.max.sm": ("1980", "1980"),
    "clocks.sm": ("1755", "1650"),
    "clocks.mem": ("2619", "2619"),
    "power.draw": ("512.33", "[Unknown Error]"),
    "temperature.gpu": ("55", "61"),
    "utilization.gpu": ("99", "97"),
    "clocks_event_reasons.active": ("0x0000000000000000", "0x0000000000000024"),
    "clocks_throttle_reasons.active": ("0x0000000000000001", "0x0000000000000001"),
}


class Machine:
    """Answers nvidia-smi commands; an unknown field spoils the whole answer, as it does there."""

    def __init__(self) -> None:
        self.rows = dict(ROWS)
        self.gpus = [0, 1]

    def run(self, argv: Sequence[str]) -> str:
        """What nvidia-smi would print."""
        program, query, form = argv
        assert (program, form) == ("nvidia-smi", "--format=csv,noheader,nounits")
        fields = query.removeprefix("--query-gpu=").split(",")
        for field in fields:
            if field not in self.rows:
                return f'Field "{field}" is not a valid field to query.\n\n'
        lines = [", ".join(self.rows[field][gpu] for field in fields) for gpu in self.gpus]
        return "\n".join([*lines, "WARNING: infoROM is corrupted at gpu 0000:01:00.0", ""])


def read(gpus: SmiGpus) -> dict[str, float | None]:
    """A reading that has been waited for."""
    gpus.refresh()
    return gpus.latest()


def test_described():
    first, second = SmiGpus(Machine().run, {}).describe()
    assert tuple(first) == DESCRIPTION
    assert (first["name"], first["driver"], first["memory_bytes"]) == (
        "NVIDIA H100 80GB HBM3",
        "550.54.15",
        81_559 << 20,
    )
    assert (first["power_limit_w"], first["pcie_width"], first["clock_max_mhz"]) == (700.0, 16, 1980)
    assert (second["power_limit_w"], second["pcie_width"]) == (None, None)


def test_read_over_both():
    assert read(SmiGpus(Machine().run, {})) == {
        "gpu_clock_mhz": 1650,
        "gpu_memory_clock_mhz": 2619,
        "gpu_power_w": None,
        "gpu_temperature_c": 61,
        "gpu_busy_pct": 98,
        "gpu_throttle": 0x24,
    }


def test_only_the_servers_gpus():
    gpus = SmiGpus(Machine().run, {"CUDA_VISIBLE_DEVICES": "GPU-aaaa"})
    assert [gpu["index"] for gpu in gpus.describe()] == [0]
    assert read(gpus)["gpu_power_w"] == 512.33


def test_a_reading_does_not_wait_for_the_other_machine():
    answered, slow = threading.Event(), threading.Event()
    machine = Machine()

    def run(argv: Sequence[str]) -> str:
        assert slow.wait(10)
        answered.set()
        return machine.run(argv)

    gpus = SmiGpus(run, {})
    assert gpus.read() == UNKNOWN
    assert not answered.is_set()
    slow.set()
    assert answered.wait(10)


def test_an_older_driver_has_the_mask_under_its_older_name():
    machine = Machine()
    del machine.rows["clocks_event_reasons.active"]
    gpus = SmiGpus(machine.run, {})
    assert read(gpus) == UNKNOWN
    assert read(gpus)["gpu_throttle"] == 1


def test_a_gpu_lost_on_the_way_is_a_gap():
    machine = Machine()
    gpus = SmiGpus(machine.run, {})
    assert read(gpus)["gpu_clock_mhz"] == 1650
    machine.gpus = [0]
    assert read(gpus) == UNKNOWN


@pytest.mark.parametrize("error", [OSError("no route"), subprocess.TimeoutExpired("ssh", 5)])
def test_out_of_reach_is_no_gpus_and_gaps(error: Exception):
    def run(argv: Sequence[str]) -> str:
        raise error

    assert SmiGpus(run, {}).describe() == []
    assert read(SmiGpus(run, {})) == UNKNOWN


def test_a_machine_without_nvidia_smi_has_no_gpus():
    assert SmiGpus(lambda argv: "", {}).describe() == []


def test_cells():
    assert table("0, 12\nno devices were found\n1, [N/A]\n", ["index", "x"]) == [
        {"index": "0", "x": "12"},
        {"index": "1", "x": "[N/A]"},
    ]
    assert [number(text) for text in ("12.5", "0x0000000000000048", "[N/A]", "[Not Supported]", "N/A")] == [
        12.5,
        0x48,
        None,
        None,
        None,
    ]
