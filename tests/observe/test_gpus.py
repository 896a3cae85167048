"""The GPUs' figures through a stand-in for pynvml: real where given, gaps where not, never an error."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from lab.observe.gpus import DESCRIPTION, GPU_KEYS, combined, local_gpus, selected
from lab.observe.throttle import REASONS, THROTTLING, reasons

UUIDS = {0: "GPU-aaaa1111", 1: "GPU-aaaa2222", 2: "GPU-bbbb3333"}
UNKNOWN = dict.fromkeys(GPU_KEYS)


class NVMLError(Exception):
    """As in pynvml."""


class Nvml:
    """The part of pynvml that is used; `lost` GPUs and `unsupported` functions raise, as in the library."""

    NVMLError = NVMLError
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self, count: int = 2, driver: bool = True) -> None:
        self.count = count
        self.driver = driver
        self.lost: set[int] = set()
        self.unsupported: set[str] = set()

    def nvmlInit(self) -> None:
        if not self.driver:
            raise NVMLError("Driver Not Loaded")

    def nvmlDeviceGetCount(self) -> int:
        return self.count

    def __getattr__(self, name: str):
        answers = {
            "nvmlSystemGetDriverVersion": lambda: "575.57.08",
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetUUID": lambda index: UUIDS[index],
            "nvmlDeviceGetName": lambda index: "NVIDIA RTX PRO 6000 Blackwell",
            "nvmlDeviceGetMemoryInfo": lambda index: SimpleNamespace(total=97_887 << 20, used=3 << 20),
            "nvmlDeviceGetEnforcedPowerLimit": lambda index: 600_000,
            "nvmlDeviceGetCurrPcieLinkWidth": lambda index: 8,
            "nvmlDeviceGetMaxPcieLinkWidth": lambda index: 16,
            "nvmlDeviceGetCurrPcieLinkGeneration": lambda index: 4,
            "nvmlDeviceGetMaxPcieLinkGeneration": lambda index: 5,
            "nvmlDeviceGetMaxClockInfo": lambda index, kind: {self.NVML_CLOCK_SM: 3090}[kind],
            "nvmlDeviceGetClockInfo": lambda index, kind: {1: 2400 + index, 2: 14_001}[kind],
            "nvmlDeviceGetPowerUsage": lambda index: 400_500,
            "nvmlDeviceGetTemperature": lambda index, sensor: 60 + index,
            "nvmlDeviceGetUtilizationRates": lambda index: SimpleNamespace(gpu=90 + index, memory=1),
            "nvmlDeviceGetCurrentClocksEventReasons": lambda index: 4 if index else 1,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda index: 64,
        }
        if name not in answers:
            raise AttributeError(name)

        def call(*arguments: int):
            if name in self.unsupported or (arguments and arguments[0] in self.lost):
                raise NVMLError(name)
            return answers[name](*arguments)

        return call


@pytest.fixture
def nvml(monkeypatch) -> Nvml:
    """A machine with two GPUs."""
    module = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return module


def test_described(nvml):
    first, second = local_gpus({}).describe()
    assert tuple(first) == DESCRIPTION
    assert (first["index"], second["index"], second["uuid"]) == (0, 1, "GPU-aaaa2222")
    assert (first["memory_bytes"], first["power_limit_w"], first["clock_max_mhz"]) == (97_887 << 20, 600.0, 3090)
    assert first["memory_used_bytes"] == 3 << 20
    assert (first["pcie_width"], first["pcie_width_max"]) == (8, 16)
    assert (first["pcie_generation"], first["pcie_generation_max"]) == (4, 5)


def test_read_over_both(nvml):
    assert local_gpus({}).read() == {
        "gpu_clock_mhz": 2400,
        "gpu_memory_clock_mhz": 14_001,
        "gpu_power_w": 801,
        "gpu_temperature_c": 61,
        "gpu_busy_pct": 90.5,
        "gpu_throttle": 5,
    }


def test_only_the_servers_gpus(nvml):
    gpus = local_gpus({"CUDA_VISIBLE_DEVICES": "1"})
    assert [gpu["index"] for gpu in gpus.describe()] == [1]
    assert gpus.read()["gpu_power_w"] == 400.5


def test_a_gpu_lost_on_the_way_is_a_gap(nvml):
    gpus = local_gpus({})
    nvml.lost = {1}
    assert gpus.read() == UNKNOWN
    assert [gpu["power_limit_w"] for gpu in gpus.describe()] == [600.0, None]


def test_what_a_gpu_does_not_support_is_missing_alone(nvml):
    nvml.unsupported = {"nvmlDeviceGetPowerUsage", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetUtilizationRates"}
    reading = local_gpus({}).read()
    assert {name for name, value in reading.items() if value is None} == {"gpu_power_w", "gpu_busy_pct"}
    assert local_gpus({}).describe()[0]["memory_bytes"] is None


def test_an_older_driver_has_the_mask_under_its_older_name(nvml):
    nvml.unsupported = {"nvmlDeviceGetCurrentClocksEventReasons"}
    assert reasons(int(local_gpus({}).read()["gpu_throttle"])) == ["hw_thermal_slowdown"]


@pytest.mark.parametrize("module", [Nvml(driver=False), Nvml(count=0), None])
def test_without_a_driver_a_gpu_or_the_binding_there_are_none(monkeypatch, module):
    monkeypatch.setitem(sys.modules, "pynvml", module)
    assert local_gpus({}).describe() == []
    assert local_gpus({}).read() == UNKNOWN


@pytest.mark.parametrize(
    ("visible", "indices"),
    [
        (None, [0, 1, 2]),
        ("2,0", [2, 0]),
        ("GPU-bbbb, 1", [2, 1]),
        ("GPU-aaaa", []),  # two of them
        ("0,-1,1", [0]),
        ("0,7,1", [0]),
        ("", []),
        ("MIG-cccc", []),
    ],
)
def test_selected_as_cuda_reads_it(visible: str | None, indices: list[int]):
    assert selected(visible, UUIDS) == indices


def test_a_figure_that_one_gpu_does_not_give_is_not_summed():
    whole = dict.fromkeys(GPU_KEYS, 1.0)
    assert combined([whole, whole | {"gpu_power_w": None}]) == whole | {"gpu_power_w": None}
    assert combined([whole, None]) == UNKNOWN
    assert combined([]) == UNKNOWN


def test_throttle_reasons_in_words():
    assert reasons(0) == []
    assert reasons(0x1 | 0x4 | 0x8000) == ["gpu_idle", "sw_power_cap", "unknown_0x8000"]
    assert set(REASONS.values()) > THROTTLING
    assert THROTTLING.isdisjoint(reasons(0x1 | 0x2 | 0x10 | 0x100))


def test_the_bits_are_those_of_nvidias_binding():
    pynvml = pytest.importorskip("pynvml")
    ours = {name.replace("_", ""): bit for bit, name in REASONS.items() if bit <= 0x100}
    theirs = {
        name.removeprefix("nvmlClocksEventReason").lower(): getattr(pynvml, name)
        for name in dir(pynvml)
        if name.startswith("nvmlClocksEventReason")
    }
    assert ours.items() <= theirs.items()
