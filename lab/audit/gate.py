"""Can the server's own account be believed at all?

Without these checks a gauge that is always zero, or one that was read twice, is set against the client's word.
"""

from __future__ import annotations

from lab.audit.base import INVALID, Code, Context, check
from lab.audit.client import slow_client
from lab.audit.thresholds import BUSY_SAMPLES_MIN, SAMPLES_MIN
from lab.records import Trial

# Gauges and counters that cannot be zero while requests run; no queue and no preemption are good news.
NEVER_ZERO_GAUGES = ("running", "kv_usage")
NEVER_ZERO_COUNTERS = ("prompt_tokens", "output_tokens", "requests_finished")


@check("metric-absent")
def metric_absent(trial: Trial, context: Context) -> Code | None:
    """Without the server's own gauges there is no concurrency account; nor with one that is zero while it works."""
    server = trial.server
    missing = [name for name in ("running", "waiting") if server[name] is None]
    if missing:
        text = f"the server reported no value for {' and '.join(missing)}; the running batch is unknown"
        return Code("metric-absent", INVALID, text, {"samples": server["samples"]})
    zeros = constant_zeros(trial)
    if not zeros:
        return None
    text = (
        f"{' and '.join(zeros)} of the server stayed exactly 0 while {trial.client['completed']} requests completed: "
        "not measured, whatever it is called"
    )
    return Code("metric-absent", INVALID, text, {"samples": server["samples"], "completed": trial.client["completed"]})


def constant_zeros(trial: Trial) -> list[str]:
    """Gauges and token counters that were zero throughout although requests completed.

    A gauge counts only where enough samples should have met a request in flight: an open loop at a low rate leaves most
    samples idle, and a client that is slow to read believes in flight what ended long ago.
    """
    server, client = trial.server, trial.client
    if not client["completed"]:
        return []
    expected = 0.0 if slow_client(trial) else min(1.0, client["littles_law"] or 0.0) * server["samples"]
    gauges = [n for n in NEVER_ZERO_GAUGES if n in server["zero_gauges"] and expected >= BUSY_SAMPLES_MIN]
    counters = [n for n in NEVER_ZERO_COUNTERS if n in server["zero_counters"] and server["delta"].get(n) == 0]
    all_cached = bool(server["delta"].get("cached_tokens"))
    return gauges + [name for name in counters if not (name == "prompt_tokens" and all_cached)]


@check("gate-misaligned")
def gate_misaligned(trial: Trial, context: Context) -> Code | None:
    """Too few gauge samples inside the window to believe a mean, or samples that do not reach over all of it.

    Samples from before and after the window do no harm: means are cut to it.
    """
    server, seconds = trial.server, trial.window["seconds"]
    samples, first_s, last_s = server["samples"], server["sampled_from_s"], server["sampled_to_s"]
    if server["running"] is None:
        return None
    figures = {"samples": samples, "sampled_from_s": first_s, "sampled_to_s": last_s, "seconds": seconds}
    if samples < SAMPLES_MIN:
        text = f"only {samples} samples of the server inside the window; at least {SAMPLES_MIN} are needed"
        return Code("gate-misaligned", INVALID, text, figures)
    interval_s = seconds / samples
    if first_s is None or last_s is None or (first_s <= interval_s and last_s >= seconds - interval_s):
        return None
    text = f"the server was sampled from {first_s:.1f} s to {last_s:.1f} s of a window of {seconds:.1f} s"
    return Code("gate-misaligned", INVALID, text, figures)
