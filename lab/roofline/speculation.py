"""What drafting gains and costs.

Without it marginal acceptance rates are multiplied as if they were conditional (2.85 tokens per step instead of 3.70),
and speculation is switched on at a batch where the longer verification step eats all it gains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from operator import mul
from typing import Any

import numpy as np

from lab.errors import InputError, LabError
from lab.roofline.arrays import Numbers, plain
from lab.roofline.experts import UNIFORM, distinct
from lab.roofline.hardware import Hardware
from lab.roofline.layout import Layout
from lab.roofline.model import Model
from lab.roofline.step import bound
from lab.roofline.traffic import elements


def tokens_per_step_marginal(rates: Sequence[float]) -> float:
    """Tokens per sequence and step from the share of steps in which the draft at each position was accepted, 1 + sum of
    p: how vLLM counts (vllm-project/vllm v1/spec_decode/metrics.py).

    Raises InputError for a rate outside 0 to 1, and for rates that rise: a draft is only accepted after all before it.
    """
    checked = _rates(rates)
    for position, (before, rate) in enumerate(pairwise(checked), start=2):
        if rate > before:
            raise InputError(
                f"acceptance rises from {before:g} to {rate:g} at position {position}; give the share of all steps in "
                "which each position was accepted, as vLLM counts it, which never rises; for chances that hold once "
                "the position before is accepted, give their running products"
            )
    return 1 + sum(checked)


def tokens_per_step_conditional(rates: Sequence[float]) -> float:
    """The same from the chance that a position is accepted once all before it are: 1 + sum of running products."""
    return 1 + sum(accumulate(_rates(rates), mul))


def tokens_per_step_iid(rate: float, draft_tokens: int) -> float:
    """The same where each of `draft_tokens` drafts is accepted with one chance: (1 - a^(g+1)) / (1 - a)
    (Leviathan, Kalman & Matias, ICML 2023, equation 1)."""
    return tokens_per_step_conditional([rate] * draft_tokens)


def draft_step_ms(
    model: Model,
    hardware: Hardware,
    layout: Layout,
    batch: Numbers,
    context: Numbers,
    *,
    kv_dtype: str | None = None,
    routing: str | float = UNIFORM,
) -> Numbers:
    """Floor on one draft step of the checkpoint's own MTP layer: its weights, output matrix, experts and cache from
    memory.

    Milliseconds, shape of batch and context. Raises LabError for a model without such a layer.
    """
    draft = model.draft
    if draft is None:
        raise LabError(f"{model.name} has no layer for next-token prediction; give the drafter's time as draft_step_ms")
    sequences = np.maximum(np.asarray(batch) / (layout.dp * layout.pp), np.minimum(batch, 1.0))
    size = draft.weight_bytes_per_step / layout.tp
    if draft.expert_bytes is not None and model.experts is not None:
        touched = distinct(model.n_experts, model.experts.per_token, sequences * layout.expert_groups, routing)
        size = size + touched * draft.expert_bytes / layout.expert_devices
    of = elements(model, kv_dtype, None, None)
    cache = replace(draft.attention, layers=1).read_bytes(np.asarray(context, dtype=float), layout.tp, of)
    milliseconds = 1e3 * (size + sequences * cache) / hardware.memory_bandwidth_bytes_s
    return plain(milliseconds)


def break_even_tokens_per_step(
    model: Model,
    hardware: Hardware,
    layout: Layout,
    batch: Numbers,
    context: Numbers,
    *,
    draft_tokens: int,
    draft_step_ms: Numbers = 0.0,
    **inputs: Any,
) -> Numbers:
    """Tokens per step above which drafting pays at this batch: time of a verification step and its drafts over that of
    a plain step. `inputs`: as `step.bound` takes them, for both.
    """
    plain = bound(model, hardware, layout, batch, context, **inputs)
    verified = {**inputs, "draft_tokens": draft_tokens, "draft_step_ms": draft_step_ms}
    return bound(model, hardware, layout, batch, context, **verified).step_ms / plain.step_ms


def _rates(rates: Sequence[float]) -> list[float]:
    for rate in rates:
        if not 0 <= rate <= 1:
            raise InputError(f"acceptance rate {rate} is outside 0 to 1")
    return list(rates)
