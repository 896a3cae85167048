"""What the machine did during the window: the `machine` section of a trial.

Without it a trial does not say that its GPUs were throttled or its memory was full, and an arm measured under worse
conditions looks worse by itself.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from lab.observe.throttle import reasons

if TYPE_CHECKING:
    import pandas as pd

MEANS = (
    "memory_bytes",
    "machine_memory_bytes",
    "gpu_clock_mhz",
    "gpu_memory_clock_mhz",
    "gpu_power_w",
    "gpu_temperature_c",
    "gpu_busy_pct",
)


def machine_section(timeline: pd.DataFrame, opened_s: float, closed_s: float) -> dict[str, Any]:
    """Means over the samples in the window, and every throttle reason (see `throttle.REASONS`) that one of them shows.

    Times on the clock of `t_s`. A figure that no sample has is None; `gpu_throttle` is [] when the GPUs said none.
    """
    inside = timeline[timeline["t_s"].between(opened_s, closed_s)]
    section: dict[str, Any] = {}
    for name in MEANS:
        values = inside[name].dropna()
        section[name] = float(values.mean()) if len(values) else None
    masks = inside["gpu_throttle"].dropna().astype("int64")
    section["gpu_throttle"] = reasons(reduce(or_, (int(mask) for mask in masks))) if len(masks) else None
    return section
