"""The machine section: means of the window alone, reasons in words, missing as None."""

from __future__ import annotations

import math

import pandas as pd

from lab.observe.machine_section import MEANS, machine_section


def timeline(**columns: list[float]) -> pd.DataFrame:
    """Samples at 0, 1, 2, … seconds; what is not given is NaN."""
    length = len(next(iter(columns.values())))
    rest = {name: [math.nan] * length for name in (*MEANS, "gpu_throttle")}
    return pd.DataFrame({"t_s": [float(i) for i in range(length)], **rest, **columns})


def test_means_over_the_window():
    frame = timeline(gpu_clock_mhz=[1, 2000, 2400, 1], memory_bytes=[9, 4, math.nan, 9], gpu_throttle=[8, 0, 4, 64])
    section = machine_section(frame, 0.5, 2.5)
    assert (section["gpu_clock_mhz"], section["memory_bytes"], section["gpu_power_w"]) == (2200, 4, None)
    assert section["gpu_throttle"] == ["sw_power_cap"]


def test_all_reasons_that_any_sample_shows():
    assert machine_section(timeline(gpu_throttle=[1, 4, 64]), 0, 2)["gpu_throttle"] == [
        "gpu_idle",
        "sw_power_cap",
        "hw_thermal_slowdown",
    ]


def test_no_reason_is_not_the_same_as_no_gpu():
    assert machine_section(timeline(gpu_throttle=[0, math.nan]), 0, 1)["gpu_throttle"] == []
    assert set(machine_section(timeline(gpu_throttle=[math.nan]), 0, 1).values()) == {None}
    assert set(machine_section(timeline(gpu_throttle=[4.0]), 5, 6).values()) == {None}
