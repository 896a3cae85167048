"""Trials against their roofline: how much of what the hardware allows was reached.

Without the batch and context that the server really ran, the fraction flatters whoever asked for more than it did.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lab.errors import LabError
from lab.records import Trial
from lab.roofline.hardware import Hardware
from lab.roofline.model import Model
from lab.roofline.step import Bound, bound
from lab.served import layout_of


@dataclass(frozen=True)
class Health:
    """Mean bound (tok/s) and mean share of it over some trials; None where it cannot be known."""

    bound_tok_s: float | None = None
    bound_fraction: float | None = None


def hardware_of(record: dict[str, Any] | None) -> Hardware | None:
    """The hardware that a campaign.json holds."""
    if record is None:
        return None
    return Hardware.from_record(record)


def health(trials: Sequence[Trial], hardware: Hardware | None) -> Health:
    """Each trial against the bound for its own batch and context, averaged; never clamped."""
    pairs = [(trial.metrics["output_tok_s"], trial_bound(trial, hardware)) for trial in trials]
    known = [(value, limit.bound_tok_s) for value, limit in pairs if value is not None and limit is not None]
    if not known:
        return Health()
    return Health(
        bound_tok_s=statistics.fmean(limit for _, limit in known),
        bound_fraction=statistics.fmean(value / limit for value, limit in known),
    )


def trial_bound(trial: Trial, hardware: Hardware | None) -> Bound | None:
    """The memory bound for the batch and context that ran, speculation included; None where a part is unknown."""
    context = trial.metrics["mean_context_tokens"]
    return _bound_that_ran(trial, hardware, context) if context else None


def verified_bound(trial: Trial, hardware: Hardware | None) -> Bound | None:
    """`trial_bound` with the drafted tokens in the step: they touch experts, travel and compute; None where the server
    does not speculate, or does not say how many tokens it drafts."""
    facts, context = trial.launch.effective, trial.metrics["mean_context_tokens"]
    drafted = facts.get("speculative_tokens")
    if not facts.get("speculative") or not drafted or not context:
        return None
    return _bound_that_ran(trial, hardware, context, drafted)


def hard_bound_tok_s(trial: Trial, hardware: Hardware | None) -> float | None:
    """What no server can exceed at the batch that ran, with every unknown input at its cheapest; None where memory is
    no limit or a part is unknown.

    The last-level cache spares each step what it can hold, and where the workload shares prefixes the cache of the
    context may be read once for all sequences, so it counts nothing.
    """
    context = 0.0 if trial.prompts.get("reuse") else trial.metrics["mean_context_tokens"]
    limit = _bound_that_ran(trial, hardware, context) if context is not None else None
    return limit.bound_hard_tok_s if limit else None


def predicted_effect_pct(
    treatment: Sequence[Trial], control: Sequence[Trial], hardware: Hardware | None
) -> float | None:
    """What the memory bound expects: weights, KV type and the batch that each arm's cap admits, at equal context.

    None where the bound does not see the lever at all (speculation, threads, graphs): that is not a prediction of 0.
    """
    if not treatment or not control or hardware is None:
        return None
    context = control[0].metrics["mean_context_tokens"]
    if not context:
        return None
    mine, theirs = (bound_at(trials[0], hardware, _admitted(trials[0]), context) for trials in (treatment, control))
    if mine is None or theirs is None or mine == theirs:
        return None
    return 100 * (mine.bound_tok_s / theirs.bound_tok_s - 1)


def _admitted(trial: Trial) -> float:
    """The most requests that can run of those offered."""
    cap = trial.launch.effective.get("cap")
    return trial.concurrency if cap is None else min(trial.concurrency, cap)


def bound_at(
    trial: Trial,
    hardware: Hardware,
    batch: float,
    context: float,
    tokens_per_step: float = 1.0,
    draft_tokens: int = 0,
) -> Bound | None:
    """The bound of a trial's model, layout and KV type at any batch and context; None where a part is unknown, or this
    hardware could not serve it so."""
    model = Model.from_record(trial.launch.record["model"])
    facts = trial.launch.effective
    layout = layout_of(facts, mixture=model.experts is not None)
    if layout is None or facts.get("kv_dtype_k") is None or facts.get("kv_dtype_v") is None:
        return None
    try:
        return bound(
            model,
            hardware,
            layout,
            batch,
            context,
            kv_dtype_k=facts["kv_dtype_k"],
            kv_dtype_v=facts["kv_dtype_v"],
            shared_prefix=0.0,
            tokens_per_step=tokens_per_step,
            draft_tokens=draft_tokens,
        )
    except LabError:
        return None


def _bound_that_ran(trial: Trial, hardware: Hardware | None, context: float, draft_tokens: int = 0) -> Bound | None:
    batch, gained = trial.server["running"], tokens_per_step(trial)
    if not batch or hardware is None or gained is None:
        return None
    return bound_at(trial, hardware, batch, context, gained, draft_tokens)


def tokens_per_step(trial: Trial) -> float | None:
    """Each verified step emits one token of its own and the accepted drafts; None when it speculates and nothing tells
    how many were accepted."""
    delta = trial.server["delta"]
    emitted, accepted = delta.get("output_tokens"), delta.get("draft_accepted")
    if emitted and accepted is not None and emitted > accepted:
        return emitted / (emitted - accepted)
    if length := trial.metrics.get("acceptance_length"):
        return length
    return None if trial.launch.effective.get("speculative") else 1.0
