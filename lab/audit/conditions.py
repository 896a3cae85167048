"""Did both arms run under the same conditions: server age, clocks, power, link?

Without it a hot GPU, a card in a narrow slot or a server that has aged for a day reads as a property of the lever.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.audit.base import WARNING, Code, Context, check
from lab.audit.thresholds_comparison import (
    CLOCK_SHARE,
    SERVER_AGE_RATIO,
    SERVER_AGE_REQUESTS_MIN,
    SERVER_AGE_SECONDS_MIN,
    THROTTLING,
)
from lab.records import Trial

_CLOCKS = ("gpu_clock_mhz", "gpu_memory_clock_mhz")
_CARD = ("power_limit_w", "pcie_width")


@check("server-age")
def server_age(trial: Trial, context: Context) -> Code | None:
    """One arm's server had served far more, or lived far longer, than the control's when its window opened."""
    control = context.control
    if control is None:
        return None
    served = (trial.server.get("requests_before"), control.server.get("requests_before"))
    lived = (_age_s(trial), _age_s(control))
    said, figures = [], {}
    if _apart(served, SERVER_AGE_REQUESTS_MIN):
        said.append(f"it had served {served[0]:g} requests before the window, the control's {served[1]:g}")
        figures |= {"requests_before": served[0], "requests_before_control": served[1]}
    if _apart(lived, SERVER_AGE_SECONDS_MIN):
        said.append(f"it had been ready for {lived[0]:.0f} s, the control's for {lived[1]:.0f} s")
        figures |= {"age_s": lived[0], "age_control_s": lived[1]}
    if not said:
        return None
    return Code("server-age", WARNING, f"servers of different age: {'; '.join(said)}", figures)


@check("throttled")
def throttled(trial: Trial, context: Context) -> Code | None:
    """GPU clocks, power limit or PCIe link differ from the nearest control's, or only one of the two was held back."""
    control = context.control
    if control is None:
        return None
    said, figures = [], {}
    here, there = trial.record.get("machine", {}), control.record.get("machine", {})
    for name in _CLOCKS:
        mine, theirs = here.get(name), there.get(name)
        if mine and theirs and abs(mine / theirs - 1) > CLOCK_SHARE:
            said.append(f"{name} {mine:.0f}, in the control {theirs:.0f}")
            figures |= {name: mine, f"{name}_control": theirs}
    for name in _CARD:
        mine, theirs = _cards(trial, name), _cards(control, name)
        if mine and theirs and mine != theirs:
            said.append(f"{name} {mine}, in the control {theirs}")
            figures |= {name: mine, f"{name}_control": theirs}
    mine, theirs = _reasons(here), _reasons(there)
    if mine is not None and theirs is not None:
        for arm, reasons in (("here", mine - theirs), ("in the control", theirs - mine)):
            if reasons:
                said.append(f"held back only {arm} by {', '.join(sorted(reasons))}")
        if mine != theirs:
            figures |= {"throttle": ", ".join(sorted(mine)), "throttle_control": ", ".join(sorted(theirs))}
    if not said:
        return None
    return Code("throttled", WARNING, f"the GPUs did not run alike: {'; '.join(said)}", figures)


def _age_s(trial: Trial) -> float | None:
    """Server seconds from the server's first completion to the opening of the window."""
    timings = trial.launch.record.get("timings", {})
    started_s, ready_seconds = timings.get("started_s"), timings.get("ready_seconds")
    if started_s is None or ready_seconds is None:
        return None
    return (trial.window["opened_s"] - started_s - ready_seconds) * (trial.window["time_factor"] or 1.0)


def _apart(values: tuple[float | None, float | None], least: float) -> bool:
    """Whether both are known, the larger is more than twice the smaller, and they differ by at least `least`."""
    if values[0] is None or values[1] is None:
        return False
    low, high = sorted(values)
    return high > SERVER_AGE_RATIO * low and high - low >= least


def _cards(trial: Trial, name: str) -> str:
    """One property of all GPUs, in their order; empty when none says it."""
    values = [gpu.get(name) for gpu in trial.launch.record["machine"].get("gpus") or []]
    return ", ".join(f"{value:g}" for value in values if value is not None)


def _reasons(machine: Mapping[str, Any]) -> set[str] | None:
    """What held the clocks down in the window; None where nobody looked."""
    reasons = machine.get("gpu_throttle")
    return None if reasons is None else THROTTLING & set(reasons)
