"""The GPUs that a server uses: what they are, and what they do, through NVIDIA's NVML.

Without it two arms are compared at different clocks, power limits or PCIe widths, and the difference is called the
lever's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import or_
from statistics import fmean
from typing import Any, Protocol

GPU_KEYS = (
    "gpu_clock_mhz",
    "gpu_memory_clock_mhz",
    "gpu_power_w",
    "gpu_temperature_c",
    "gpu_busy_pct",
    "gpu_throttle",
)
DESCRIPTION = (
    "index",
    "name",
    "uuid",
    "driver",
    "memory_bytes",
    "memory_used_bytes",
    "power_limit_w",
    "pcie_width",
    "pcie_width_max",
    "pcie_generation",
    "pcie_generation_max",
    "clock_max_mhz",
)
Reading = Mapping[str, float | None]


class Gpus(Protocol):
    """The GPUs of one server, perhaps none."""

    def describe(self) -> list[dict[str, Any]]:
        """One dict of DESCRIPTION for each; what cannot be read is None.

        index: NVML's; memory_bytes: in all, memory_used_bytes: at this moment; power_limit_w: the lowest of all limits
        in force; clock_max_mhz: highest SM clock; pcie_generation: at this moment (a GPU without work lowers it),
        `_max`: what card and slot allow.
        """

    def read(self) -> dict[str, float | None]:
        """One reading over all of them, see `combined`."""


def combined(readings: Sequence[Reading | None]) -> dict[str, float | None]:
    """GPU_KEYS over several GPUs: lowest SM and memory clock (MHz), summed power (W), highest temperature (°C), mean
    busy share (percent of time with a kernel running), OR of the throttle masks. A figure that one GPU does not give
    is None: a sum over the others would look like a saving."""
    rules: dict[str, Callable[[list[Any]], float]] = {
        "gpu_clock_mhz": min,
        "gpu_memory_clock_mhz": min,
        "gpu_power_w": sum,
        "gpu_temperature_c": max,
        "gpu_busy_pct": fmean,
        "gpu_throttle": lambda masks: reduce(or_, map(int, masks)),
    }
    figures = {name: [reading and reading.get(name) for reading in readings] for name in GPU_KEYS}
    return {
        name: None if not values or any(value is None for value in values) else float(rules[name](values))
        for name, values in figures.items()
    }


def selected(visible: str | None, uuids: Mapping[int, str]) -> list[int]:
    """Which of the GPUs (index → UUID) a process sees under this value of CUDA_VISIBLE_DEVICES (None: unset).

    As CUDA reads it: indices or UUIDs, which may be cut short as long as they are unique; the first entry that names
    no GPU hides itself and all after it, so an empty value hides all (CUDA C++ Programming Guide, *CUDA Environment
    Variables*). Indices are NVML's, in the order of the bus: CUDA's as well where all GPUs are of one kind or
    CUDA_DEVICE_ORDER is PCI_BUS_ID. A MIG instance names no GPU here.
    """
    if visible is None:
        return sorted(uuids)
    found: list[int] = []
    for entry in (part.strip() for part in visible.split(",")):
        if entry.isdecimal():
            named = [index for index in uuids if index == int(entry)]
        else:
            named = [index for index, uuid in uuids.items() if entry.startswith("GPU-") and uuid.startswith(entry)]
        if len(named) != 1:
            break
        found += named
    return found


class NvmlGpus:
    """GPUs of this machine; `nvml` is the module pynvml after nvmlInit, `handles` are its handles by index."""

    def __init__(self, nvml: Any, handles: Mapping[int, Any]) -> None:
        self._nvml = nvml
        self._handles = dict(handles)

    def describe(self) -> list[dict[str, Any]]:
        """See `Gpus.describe`."""
        return [self._description(index, handle) for index, handle in self._handles.items()]

    def read(self) -> dict[str, float | None]:
        """See `Gpus.read`; a GPU that was lost is a gap in every figure."""
        return combined([self._reading(handle) for handle in self._handles.values()])

    def _description(self, index: int, handle: Any) -> dict[str, Any]:
        memory = self._ask("nvmlDeviceGetMemoryInfo", handle)
        return {
            "index": index,
            "name": self._ask("nvmlDeviceGetName", handle),
            "uuid": self._ask("nvmlDeviceGetUUID", handle),
            "driver": self._ask("nvmlSystemGetDriverVersion"),
            "memory_bytes": memory and int(memory.total),
            "memory_used_bytes": memory and int(memory.used),
            "power_limit_w": _watts(self._ask("nvmlDeviceGetEnforcedPowerLimit", handle)),
            "pcie_width": self._ask("nvmlDeviceGetCurrPcieLinkWidth", handle),
            "pcie_width_max": self._ask("nvmlDeviceGetMaxPcieLinkWidth", handle),
            "pcie_generation": self._ask("nvmlDeviceGetCurrPcieLinkGeneration", handle),
            "pcie_generation_max": self._ask("nvmlDeviceGetMaxPcieLinkGeneration", handle),
            "clock_max_mhz": self._ask("nvmlDeviceGetMaxClockInfo", handle, self._nvml.NVML_CLOCK_SM),
        }

    def _reading(self, handle: Any) -> Reading:
        busy = self._ask("nvmlDeviceGetUtilizationRates", handle)
        return {
            "gpu_clock_mhz": self._ask("nvmlDeviceGetClockInfo", handle, self._nvml.NVML_CLOCK_SM),
            "gpu_memory_clock_mhz": self._ask("nvmlDeviceGetClockInfo", handle, self._nvml.NVML_CLOCK_MEM),
            "gpu_power_w": _watts(self._ask("nvmlDeviceGetPowerUsage", handle)),
            "gpu_temperature_c": self._ask("nvmlDeviceGetTemperature", handle, self._nvml.NVML_TEMPERATURE_GPU),
            "gpu_busy_pct": None if busy is None else busy.gpu,
            "gpu_throttle": self._throttle(handle),
        }

    def _throttle(self, handle: Any) -> int | None:
        """The mask, under the name it has since driver 535, else under the older one."""
        mask = self._ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        return self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle) if mask is None else mask

    def _ask(self, function: str, *arguments: Any) -> Any:
        """What an NVML call answers; None when the GPU does not support it, is lost, or the driver is too old."""
        try:
            return getattr(self._nvml, function)(*arguments)
        except self._nvml.NVMLError:
            return None


def local_gpus(env: Mapping[str, str]) -> NvmlGpus:
    """The GPUs of this machine that a process with this environment sees; none without NVIDIA's driver."""
    try:
        import pynvml
    except ImportError:
        return NvmlGpus(None, {})
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError:
        return NvmlGpus(pynvml, {})
    handles, uuids = {}, {}
    for index in range(count):
        try:
            handles[index] = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuids[index] = pynvml.nvmlDeviceGetUUID(handles[index])
        except pynvml.NVMLError:
            continue
    return NvmlGpus(pynvml, {index: handles[index] for index in selected(env.get("CUDA_VISIBLE_DEVICES"), uuids)})


def _watts(milliwatts: float | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000
