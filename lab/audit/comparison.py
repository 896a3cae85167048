"""Were both arms asked the same, on the same stack, and do we know what they were?

Without it the arm with shorter answers, another driver or another sampling temperature "wins", and the lever gets the
credit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from lab.audit.base import INVALID, WARNING, Code, Context, check
from lab.audit.thresholds_comparison import (
    INPUT_LENGTH_SHARE,
    LENGTH_PAIRS_MIN,
    OUTPUT_LENGTH_ERRORS,
    OUTPUT_LENGTH_SHARE,
    WINDOW_SECONDS_SHARE,
)
from lab.records import Launch, Trial

# Facts that say which server was measured; a placeholder in one of them leaves the arm without a name.
IDENTITY = ("cap", "kv_dtype_k", "kv_dtype_v", "model_path", "model_name", "checkpoint_path", "quantization")
_REQUEST = ("kind", "api", "templated", "synthetic", "input_tokens", "ignore_eos", "thinking", "arrivals", "rate_rps")
_MACHINE = ("cpu_model", "architecture", "kernel", "cpu_cores_logical", "cpu_cores_usable")


@check("prompt-set-differs")
def prompt_set_differs(trial: Trial, context: Context) -> Code | None:
    """The arms of one pass share a salt, so the ordered digest of their prompts must be the same.

    Passes differ in salt by design, and are never compared.
    """
    control = context.control
    if control is None or control.launch.pass_number != trial.launch.pass_number:
        return None
    mine, theirs = trial.prompts["digest"], control.prompts["digest"]
    if mine == theirs:
        return None
    text = f"other prompts than those of {control.id} in the same pass (digest {mine[:12]}, there {theirs[:12]})"
    salts = {"salt": trial.prompts["salt"], "salt_control": control.prompts["salt"]}
    return Code("prompt-set-differs", INVALID, text, {"digest": mine, "digest_control": theirs, **salts})


def input_length_between(trial: Trial, context: Context) -> Code | None:
    """`input-length-drift` between arms: the same prompts, counted by two servers.

    Only prompts that both arms finished take part: the faster arm gets further down the list, and a mean over more
    prompts is another mean.
    """
    pairs = _pairs(trial, context.control, "prompt_tokens_measured")
    theirs = sum(old for _, old in pairs)
    if not theirs:
        return None
    mine = sum(new for new, _ in pairs)
    share = mine / theirs - 1
    if abs(share) <= INPUT_LENGTH_SHARE:
        return None
    text = f"the same {len(pairs)} prompts count {mine:g} tokens here and {theirs:g} in the control ({share:+.1%})"
    return Code("input-length-drift", INVALID, text, {"tokens": mine, "tokens_control": theirs, "prompts": len(pairs)})


@check("output-length-drift")
def output_length_drift(trial: Trial, context: Context) -> Code | None:
    """Answers to the same prompts are longer or shorter than the control's, by more than chance and by much.

    A lever that may change the text gets a warning: its throughput stands, the work per request is another.
    """
    pairs = _pairs(trial, context.control, "lengths_measured")
    if len(pairs) < LENGTH_PAIRS_MIN:
        return None
    differences = [new - old for new, old in pairs]
    mean = sum(differences) / len(pairs)
    variance = sum((value - mean) ** 2 for value in differences) / (len(pairs) - 1)
    error = math.sqrt(variance / len(pairs))
    theirs = sum(old for _, old in pairs) / len(pairs)
    if not theirs or abs(mean) <= OUTPUT_LENGTH_ERRORS * error or abs(mean) <= OUTPUT_LENGTH_SHARE * theirs:
        return None
    text = (
        f"answers to the same {len(pairs)} prompts hold {theirs + mean:.1f} tokens, the control's {theirs:.1f} "
        f"({mean / theirs:+.1%}, standard error {error / theirs:.1%})"
    )
    figures = {"mean": theirs + mean, "mean_control": theirs, "standard_error": error, "prompts": len(pairs)}
    return Code("output-length-drift", WARNING if context.lever_changes_text else INVALID, text, figures)


@check("arms-not-comparable")
def arms_not_comparable(trial: Trial, context: Context) -> Code | None:
    """Something besides the lever differs from the nearest control: build, driver, GPUs, machine, checkpoint, window
    or a field of the requests.

    What the arm itself declares (its runtime, its checkpoint, its GPUs) is the lever, and may differ. A fact of machine
    or engine that one of the two records does not say is not compared.
    """
    control = context.control
    if control is None:
        return None
    pairs = [
        *((f"request {name}", trial.prompts.get(name), control.prompts.get(name)) for name in _REQUEST),
        *_sampling(trial, control),
        *_launch_facts(trial.launch, control.launch),
        ("time factor", trial.window.get("time_factor"), control.window.get("time_factor")),
        *_seconds(trial, control),
    ]
    different = [(name, mine, theirs) for name, mine, theirs in pairs if mine != theirs]
    if not different:
        return None
    said = "; ".join(f"{name} {mine}, there {theirs}" for name, mine, theirs in different)
    text = f"differs from {control.id} in more than the lever: {said}"
    return Code("arms-not-comparable", INVALID, text, {name: f"{mine} | {theirs}" for name, mine, theirs in different})


@check("config-unresolved")
def config_unresolved(trial: Trial, context: Context) -> Code | None:
    """A fact that names the arm is `auto`, `null` or a placeholder, so nobody can say what was measured.

    A fact that the server does not state (None) is a gap, not a falsehood; where it is the very setting that the lever
    changed, that is a warning.
    """
    launch = trial.launch
    facts = {name: launch.effective[name] for name in IDENTITY if name in launch.effective}
    facts |= {"checkpoint": launch.record["arm"]["checkpoint"]}
    facts |= {f"checkpoint {name}": launch.record.get("checkpoint", {}).get(name) for name in ("path", "format")}
    open_facts = {name: value for name, value in facts.items() if _unresolved(value)}
    if open_facts:
        said = ", ".join(f"{name} '{value}'" for name, value in open_facts.items())
        text = f"recorded as fact, but not resolved: {said}; the arm cannot be named"
        return Code("config-unresolved", INVALID, text, open_facts)
    silent = [name for name in _set_by_lever(trial, context) if launch.effective.get(name, "") is None]
    if not silent:
        return None
    text = f"the server does not say which {' and '.join(silent)} it uses, which is what the lever sets"
    return Code("config-unresolved", WARNING, text, {name: None for name in silent})


def _pairs(trial: Trial, control: Trial | None, name: str) -> list[tuple[float, float]]:
    """(treatment, control) values of the prompts that both arms answered, empty when their prompts differ."""
    if control is None or control.prompts["digest"] != trial.prompts["digest"]:
        return []
    mine, theirs = _by_prompt(trial, name), _by_prompt(control, name)
    return [(mine[prompt], theirs[prompt]) for prompt in mine if prompt in theirs]


def _by_prompt(trial: Trial, name: str) -> dict[int, float]:
    prompts, values = trial.client.get("prompts_measured") or [], trial.client.get(name) or []
    return {prompt: value for prompt, value in zip(prompts, values, strict=False) if value is not None}


Pair = tuple[str, Any, Any]


def _sampling(trial: Trial, control: Trial) -> list[Pair]:
    mine, theirs = trial.prompts.get("sampling"), control.prompts.get("sampling")
    if mine is None or theirs is None:
        return []
    return [(f"sampling {name}", mine.get(name), theirs.get(name)) for name in sorted({*mine, *theirs})]


def _seconds(trial: Trial, control: Trial) -> list[Pair]:
    mine, theirs = trial.window["seconds"], control.window["seconds"]
    return [] if abs(mine - theirs) <= WINDOW_SECONDS_SHARE * theirs else [("window seconds", mine, theirs)]


def _launch_facts(mine: Launch, theirs: Launch) -> list[Pair]:
    """What the two launches ran on, less what their arms declare to differ."""
    pairs = [
        *_known("machine", mine.record["machine"], theirs.record["machine"], _MACHINE),
        *_known("simulated", mine.record, theirs.record, ("simulated",)),
        *_gpus(mine, theirs),
    ]
    arm, other = mine.record["arm"], theirs.record["arm"]
    if (arm["engine"], arm["runtime"]) == (other["engine"], other["runtime"]):
        pairs += _known("engine", mine.record, theirs.record, ("build",))
        pairs += _known("engine", mine.effective, theirs.effective, ("version",))
    if arm["checkpoint"] == other["checkpoint"]:
        checkpoints = [launch.record.get("checkpoint", {}) for launch in (mine, theirs)]
        pairs += _known("checkpoint", *checkpoints, ("sha256",))
    return pairs


def _known(what: str, mine: Mapping[str, Any], theirs: Mapping[str, Any], names: tuple[str, ...]) -> list[Pair]:
    found = [(name, mine.get(name), theirs.get(name)) for name in names]
    return [(f"{what} {name}", new, old) for name, new, old in found if new is not None and old is not None]


def _gpus(mine: Launch, theirs: Launch) -> list[Pair]:
    cards = [launch.record["machine"].get("gpus") for launch in (mine, theirs)]
    if cards[0] is None or cards[1] is None:
        return []
    drivers = [", ".join(sorted({str(gpu.get("driver")) for gpu in side})) for side in cards]
    names = [", ".join(f"{gpu.get('name')} {gpu.get('uuid')}" for gpu in side) for side in cards]
    chosen = [launch.record["arm"]["env"].get("CUDA_VISIBLE_DEVICES") for launch in (mine, theirs)]
    return [("driver", *drivers), *([("GPUs", *names)] if chosen[0] == chosen[1] else [])]


def _unresolved(value: Any) -> bool:
    return isinstance(value, str) and (value.strip().lower() in ("auto", "null") or "${" in value)


def _set_by_lever(trial: Trial, context: Context) -> list[str]:
    """The facts named like a flag or variable that the treatment sets otherwise than the control."""
    if context.control is None:
        return []
    arm, other = (launch.record["arm"] for launch in (trial.launch, context.control.launch))
    mine = {**arm["flags"], **arm["env"]}
    theirs = {**other["flags"], **other["env"]}
    return [name.lower() for name, value in mine.items() if theirs.get(name) != value]
