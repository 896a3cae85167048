"""The concurrency account: how many requests the server really ran.

Without it "C=16" is believed although the server ran 8 and let 8 wait.
"""

from __future__ import annotations

from lab.audit.base import FINDING, INVALID, Code, Context, check
from lab.audit.thresholds import CAP_FILLED_SHARE, SAMPLES_MIN, WAITING_MIN, WAITING_SHARE
from lab.records import Trial


@check("batch-cap")
def batch_cap(trial: Trial, context: Context) -> Code | None:
    """A queue stands before a server that is full.

    What the client held in flight and the server did not run waits, whether the server's queue gauge shows it or not
    (llama.cpp counts a request as deferred only when its loop next looks at the queue).
    Where the control could run more than this arm, the lever made the cap: finding `capacity-limited`. Where the
    control has the same cap, the label C is false for everybody: invalid.
    """
    figures, offered = _account(trial), trial.concurrency
    cap, running, little = figures["cap"], figures["running"], figures["littles_law"]
    if cap is None or running is None or offered <= cap:
        return None
    waiting = max(figures["waiting"] or 0.0, little - running)
    if running < CAP_FILLED_SHARE * cap or waiting < max(WAITING_MIN, WAITING_SHARE * offered):
        return None
    source = trial.launch.effective.get("cap_source")
    said = f"asked {offered}, ran {running:.1f}, {waiting:.1f} waited: the server runs at most {cap:g} ({source})"
    if context.control_cap is not None and context.control_cap > cap:
        text = f"{said}; the control runs up to {context.control_cap:g}, so the lever made this cap"
        return Code("capacity-limited", FINDING, text, {**figures, "control_cap": context.control_cap})
    return Code("batch-cap", INVALID, f"{said}; raise the cap or measure at C={cap:g}", figures)


@check("metric-absent")
def metric_absent(trial: Trial, context: Context) -> Code | None:
    """Without the server's own gauges there is no concurrency account."""
    server = trial.server
    missing = [name for name in ("running", "waiting") if server[name] is None]
    if not missing:
        return None
    text = f"the server reported no value for {' and '.join(missing)}; the running batch is unknown"
    return Code("metric-absent", INVALID, text, {"samples": server["samples"]})


@check("gate-misaligned")
def gate_misaligned(trial: Trial, context: Context) -> Code | None:
    """Too few gauge samples inside the window to believe a mean."""
    server = trial.server
    if server["running"] is None or server["samples"] >= SAMPLES_MIN:
        return None
    text = f"only {server['samples']} samples of the server inside the window; at least {SAMPLES_MIN} are needed"
    return Code("gate-misaligned", INVALID, text, {"samples": server["samples"]})


def _account(trial: Trial) -> dict[str, float | None]:
    return {
        "offered": trial.concurrency,
        "littles_law": trial.client["littles_law"],
        "running": trial.server["running"],
        "waiting": trial.server["waiting"],
        "cap": trial.launch.effective.get("cap"),
    }
