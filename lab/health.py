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
from lab.roofline.step import Bound
from lab.served_bound import cache_types, served_bound


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
    """The nominal bound for the batch and context that ran: with the tokens that speculation gained, and with what the
    verification of its drafts costs where their number is known; None where a part is unknown.

    A cache type that the server does not prove is taken as asked, else as usual (`served_bound.cache_types`).
    """
    return verified_bound(trial, hardware) or plain_bound(trial, hardware)


def plain_bound(trial: Trial, hardware: Hardware | None) -> Bound | None:
    """`trial_bound` of a step that verifies no drafts, although it gains their tokens: what drafting costs is the
    difference of both."""
    context = trial.metrics["mean_context_tokens"]
    return _bound_that_ran(trial, hardware, context) if context else None


def verified_bound(trial: Trial, hardware: Hardware | None) -> Bound | None:
    """`trial_bound` with the drafted tokens in the step: they touch experts, travel and compute; None where the server
    does not speculate, or nothing tells how many tokens it drafts."""
    context, drafted = trial.metrics["mean_context_tokens"], drafted_per_step(trial)
    if drafted is None or not context:
        return None
    return _bound_that_ran(trial, hardware, context, draft_tokens=drafted)


def hard_bound_tok_s(trial: Trial, hardware: Hardware | None) -> float | None:
    """What no server can exceed at the batch that ran, with every unknown input at its cheapest; None where memory is
    no limit or a part is unknown.

    A cache type that is not proven counts as the smallest that any engine could hold, drafts as routed like the token
    before them. The last-level cache spares each step what it can hold, and where the workload shares prefixes the
    cache of the context may be read once for all sequences, so it counts nothing.
    """
    context = 0.0 if trial.prompts.get("reuse") else trial.metrics["mean_context_tokens"]
    limit = _bound_that_ran(trial, hardware, context, proven=True) if context is not None else None
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


def bound_at(trial: Trial, hardware: Hardware, batch: float, context: float, **inputs: Any) -> Bound | None:
    """The bound of a trial's model, layout and cache at any batch and context (`inputs`: as `served_bound` takes them);
    None where a part is unknown, or this hardware could not serve it so."""
    try:
        return served_bound(trial.launch.effective, model_of(trial), hardware, batch, context, **inputs)
    except LabError:
        return None


def model_of(trial: Trial) -> Model:
    """The model that the trial's launch served."""
    return Model.from_record(trial.launch.record["model"])


def cache_words(trial: Trial) -> str:
    """The cache types that its bound takes, and how they are known: `fp8 (asked, not proven)`."""
    return cache_types(trial.launch.effective).words(model_of(trial))


def _bound_that_ran(trial: Trial, hardware: Hardware | None, context: float, **inputs: Any) -> Bound | None:
    batch, gained = trial.server["running"], tokens_per_step(trial)
    if not batch or hardware is None or gained is None:
        return None
    return bound_at(trial, hardware, batch, context, tokens_per_step=gained, **inputs)


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


def drafted_per_step(trial: Trial) -> float | None:
    """Drafted tokens that a sequence has verified in a step: the mean by the server's counters (a drafter by n-gram
    does not fire in every step), else as many as were configured; None where it does not speculate, or neither is
    shown."""
    facts, delta = trial.launch.effective, trial.server["delta"]
    if not facts.get("speculative"):
        return None
    drafted, emitted, accepted = (delta.get(name) for name in ("draft_tokens", "output_tokens", "draft_accepted"))
    if drafted is not None and emitted and accepted is not None and emitted > accepted:
        return drafted / (emitted - accepted)
    return facts.get("speculative_tokens") or None
