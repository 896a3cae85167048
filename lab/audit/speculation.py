"""Was speculation measured for real: on text that a user would send, over the whole window, with true answers?

Without these checks acceptance on random tokens, of a model that repeats itself, or made up on order is sold as a
property of the lever.
"""

from __future__ import annotations

from lab.audit.base import INVALID, WARNING, Code, Context, check
from lab.audit.thresholds import REPEATS_SHARE
from lab.records import Trial


@check("spec-random-tokens")
def spec_random_tokens(trial: Trial, context: Context) -> Code | None:
    """Drafts were checked against text that nobody sends or wants: synthetic prompts, no chat template, loops."""
    if not trial.launch.effective.get("speculative") and trial.metrics["acceptance"] is None:
        return None
    prompts, repeats = trial.prompts, trial.client["repeats_share"]
    reasons = []
    if prompts["synthetic"]:
        reasons.append("prompts are random tokens")
    elif not prompts["templated"]:
        reasons.append("prompts go without the model's chat template")
    if repeats is not None and repeats > REPEATS_SHARE:
        reasons.append(f"{repeats:.0%} of the answers end in a short repeating cycle")
    if not reasons:
        return None
    text = f"speculation was measured on text that no user sends: {'; '.join(reasons)}"
    figures = {"acceptance": trial.metrics["acceptance"], "repeats_share": repeats, "kind": prompts["kind"]}
    return Code("spec-random-tokens", INVALID, text, figures)


@check("spec-gauge-snapshot")
def spec_gauge_snapshot(trial: Trial, context: Context) -> Code | None:
    """Acceptance read from a gauge is that of its last interval, not of the window."""
    if trial.metrics["acceptance_source"] != "gauge":
        return None
    text = "acceptance comes from a gauge, which shows the last interval only; read counters or requests"
    figures = {name: trial.metrics[name] for name in ("acceptance", "acceptance_length")}
    return Code("spec-gauge-snapshot", WARNING, text, figures, withdraws=("acceptance", "acceptance_length"))


@check("faked-output")
def faked_output(trial: Trial, context: Context) -> Code | None:
    """The engine was told to make acceptance, routing or retraction up: neither answers nor speed are the model's."""
    faked = trial.launch.effective.get("faked")
    if not faked:
        return None
    text = f"the server runs with a testing switch that makes its results up ({faked}); start it without"
    return Code("faked-output", INVALID, text, {"faked": faked})
