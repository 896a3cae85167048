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
    others, cores = other_cores(trial), trial.launch.record["machine"].get("cpu_cores_logical")
    if others is None or others < OTHER_CORES:
        return None
    text = f"other programs used {others:.1f} of {cores} cores during the window"
    return Code("machine-shared", WARNING, text, {"others": others, "server": trial.server["cores"], "cores": cores})


def other_cores(trial: Trial) -> float | None:
    """Cores that neither the server nor the client's processes used, on average over the window; None: unknown."""
    server, client = trial.server, trial.client
    cores, busy_pct = trial.launch.record["machine"].get("cpu_cores_logical"), server["machine_cpu_pct"]
    if cores is None or busy_pct is None or server["cores"] is None or client["cpu_share"] is None:
        return None
    return cores * busy_pct / 100 - server["cores"] - client["cpu_share"] * (client["processes"] or 1)
