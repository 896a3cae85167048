"""Why a GPU's clocks are where they are: NVML's bit mask in words.

Without it a lever can look good because the other arm's GPUs were hot, and a mask is a number nobody reads.

Bits and meanings: NVML API Reference Guide, NvmlClocksEventReasons
(https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html; called NvmlClocksThrottleReasons before
release 535); `nvidia-smi` prints the same mask. The last two bits are in NVIDIA's Python binding (nvidia-ml-py
13.615), but not explained in the guide: they are named, and not counted as throttling.
"""

from __future__ import annotations

REASONS: dict[int, str] = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "reliability",
}

THROTTLING: frozenset[str] = frozenset(
    {"sw_power_cap", "hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"}
)
"""Heat or power holds the clocks below what was asked. The others do not: idleness lowers clocks of a GPU without
work, application and display clocks are what somebody set, sync boost keeps a group of GPUs at one clock."""


def reasons(mask: int) -> list[str]:
    """The names of the set bits, lowest first; one without a name is `unknown_0x…`."""
    return [REASONS.get(1 << bit, f"unknown_{1 << bit:#x}") for bit in range(mask.bit_length()) if mask & (1 << bit)]
