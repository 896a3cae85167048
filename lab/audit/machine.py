"""Was the machine ours alone?

Without this check another program's minute on the same cores reads as a property of the arm.
"""

from __future__ import annotations

from lab.audit.base import WARNING, Code, Context, check
from lab.audit.thresholds import OTHER_CORES
from lab.records import Trial


@check("machine-shared")
def machine_shared(trial: Trial, context: Context) -> Code | None:
    """Cores that were busy in the window with neither the server nor the client."""
    server, cores = trial.server, trial.launch.record["machine"].get("cpu_cores_logical")
    busy_pct, ours, client = server["machine_cpu_pct"], server["cores"], trial.client["cpu_share"]
    if cores is None or busy_pct is None or ours is None or client is None:
        return None
    others = cores * busy_pct / 100 - ours - client
    if others < OTHER_CORES:
        return None
    text = f"other programs used {others:.1f} of {cores} cores during the window"
    return Code("machine-shared", WARNING, text, {"others": others, "server": ours, "cores": cores})
