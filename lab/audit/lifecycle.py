"""Did the server come up, live and end as it should, in the time that was planned?

Without it a server that answers its health check and nothing else, or shares its GPU with the one before, is measured
and believed; and a stage that takes a night is noticed in the morning.
"""

from __future__ import annotations

from typing import Any

from lab.audit.base import FINDING, INVALID, WARNING, Code, Context, launch_check
from lab.audit.thresholds_comparison import COST_RATIO, COST_SECONDS_MIN, GPU_IDLE_BYTES
from lab.records import BURN_IN, Launch


@launch_check("false-ready")
def false_ready(launch: Launch, context: Context) -> Code | None:
    """The health check said yes, and no completion with tokens ever came."""
    ready = launch.record.get("ready") or {}
    if launch.ok or not ready.get("health") or ready.get("completion_tokens"):
        return None
    text = f"the health check answered, a completion did not ({_reason(launch)}): the server was never ready"
    return Code("false-ready", INVALID, text, {"health": True, "completion_tokens": ready.get("completion_tokens")})


@launch_check("orphan-process")
def orphan_process(launch: Launch, context: Context) -> Code | None:
    """Somebody else's process held the port or GPU memory before the start, or ours outlived its launch."""
    if _failure(launch).get("kind") == "port-in-use":
        text = f"the port was taken before the start: {_reason(launch)}; end the process that holds it"
        return Code("orphan-process", INVALID, text)
    used = {
        f"gpu{gpu.get('index')}_used_bytes": gpu["memory_used_bytes"]
        for gpu in launch.record["machine"].get("gpus") or []
        if (gpu.get("memory_used_bytes") or 0) > GPU_IDLE_BYTES
    }
    if used:
        said = ", ".join(f"{name.partition('_')[0]} {size / 1024**3:.1f} GiB" for name, size in used.items())
        text = f"GPU memory was in use before the start ({said}): another process held it"
        return Code("orphan-process", INVALID, text, {**used, "idle_bytes": GPU_IDLE_BYTES})
    left = (launch.record.get("exit") or {}).get("left")
    if not left:
        return None
    text = f"{left} processes of this server outlived it; the launches that follow share the machine with them"
    return Code("orphan-process", WARNING, text, {"left": left})


@launch_check("hang")
def hang(launch: Launch, context: Context) -> Code | None:
    """The server lived and stopped answering, as a whole or for single requests."""
    if _failure(launch).get("kind") == "unresponsive":
        return Code("hang", WARNING, f"the server hung: {_reason(launch)}")
    stalled = {trial.folder.name: trial.client["errors"].get("stalled", 0) for trial in launch.trials}
    count = sum(stalled.values())
    if not count:
        return None
    said = ", ".join(f"{found} in {name}" for name, found in stalled.items() if found)
    return Code("hang", WARNING, f"requests fell silent until they were given up: {said}", {"stalled": count})


@launch_check("oom-stops-sweep")
def oom_stops_sweep(launch: Launch, context: Context) -> Code | None:
    """This arm does not fit into memory; the failure is on record, and the campaign went on without it."""
    if _failure(launch).get("kind") != "out-of-memory":
        return None
    return Code(
        "oom-stops-sweep", WARNING, f"this arm does not fit ({_reason(launch)}); the campaign went on without it"
    )


@launch_check("sweep-cost")
def sweep_cost(launch: Launch, context: Context) -> Code | None:
    """The launch took far longer than the plan said; in server seconds, as all that is judged."""
    timings, factor = launch.record.get("timings", {}), launch.record.get("time_factor") or 1.0
    if timings.get("seconds") is None or timings.get("planned_seconds") is None:
        return None
    took, planned = factor * timings["seconds"], factor * timings["planned_seconds"]
    if took <= COST_RATIO * planned or took - planned <= COST_SECONDS_MIN:
        return None
    text = f"took {took:.0f} s, planned were {planned:.0f} s; plan the rest of the campaign anew"
    return Code("sweep-cost", WARNING, text, {"seconds": took, "planned_seconds": planned})


@launch_check("first-launch")
def first_launch(launch: Launch, context: Context) -> Code | None:
    """A burn-in launch: the engine compiled or tuned for the first time, so its figures are recorded, never judged."""
    if launch.role != BURN_IN:
        return None
    return Code("first-launch", FINDING, "burn-in: the engine's first launch of this arm is recorded and never judged")


def _failure(launch: Launch) -> dict[str, Any]:
    return launch.record["failure"] or {}


def _reason(launch: Launch) -> str:
    failure = _failure(launch)
    return f"{failure['kind']}: {failure['reason']}" if failure else "no failure recorded"
