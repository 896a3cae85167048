"""The floor on a decode step's time, and so the ceiling on tokens per second.

Without it, a lever is tuned for a week on a server whose real trouble is elsewhere, and an impossible
measurement (a batch larger than believed, prompt tokens counted as output) looks like a success.

The bound is the memory bound M: a step must read the weights once and the KV cache of every running
sequence, and nothing is faster than reading those bytes at full bandwidth (Williams, Waterman & Patterson,
*Roofline*, CACM 52(4), 2009). Compute, communication and launch overhead only make a step longer. Nothing
is clamped: a measurement above its bound means that an input is wrong, and it must be seen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from lab.errors import InputError, LabError
from lab.roofline.hardware import Hardware
from lab.roofline.model import Model


@dataclass(frozen=True)
class Layout:
    """Parallel degrees: tensor, expert, data, pipeline."""

    tp: int = 1
    ep: int = 1
    dp: int = 1
    pp: int = 1


@dataclass(frozen=True)
class Bound:
    """The limit at one batch and context.

    bound_tok_s       tokens per second that no server of this model on this memory exceeds, caches aside
    bound_hard_tok_s  the same if the last-level cache spared each step as many bytes as it can hold; None
                      when it holds them all (memory is then no limit) or its size is unknown
    step_ms           floor on one step, milliseconds
    components_ms     its parts: weights, kv
    batch             sequences per step
    context           tokens of context per sequence
    tokens_per_step   tokens each sequence gains per step
    limited_by        the largest part
    """

    bound_tok_s: float
    bound_hard_tok_s: float | None
    step_ms: float
    components_ms: dict[str, float]
    batch: float
    context: float
    tokens_per_step: float
    limited_by: str


def bound(
    model: Model,
    hardware: Hardware,
    layout: Layout,
    batch: float,
    context: float,
    *,
    kv_dtype_k: str = "f16",
    kv_dtype_v: str = "f16",
    tokens_per_step: float = 1.0,
) -> Bound:
    """Ceiling on decode throughput: batch x tokens_per_step / ((weights + batch x context x kv) / bandwidth).

    `batch` is what the server really ran and `context` the tokens in the cache of one sequence (prompt plus
    half the output), both as means over the measurement; bytes and tokens are linear in their sums, so
    means lose nothing as long as batch and context do not move together. `tokens_per_step` is 1 plus the
    accepted draft tokens per sequence and step; a draft model's own bytes are not counted, which keeps the
    result a ceiling. A prefix that sequences share is counted once for each of them.

    Raises InputError for a batch, context or tokens_per_step out of range or an unknown KV type, LabError
    for an architecture or layout that is not modelled.
    """
    if model.not_modelled:
        raise LabError(f"no bound for {model.name}: {model.not_modelled}")
    if layout != Layout():
        raise LabError(f"no bound for {layout}: only one device (tp, ep, dp, pp all 1) is modelled yet")
    for name, value, valid in (
        ("batch", batch, batch > 0),
        ("context", context, context >= 0),
        ("tokens_per_step", tokens_per_step, tokens_per_step >= 1),
    ):
        if not (valid and math.isfinite(value)):
            raise InputError(f"{name} is {value}; a step has batch > 0, context >= 0, tokens_per_step >= 1")

    bytes_read = {
        "weights": float(model.weight_bytes_per_step),
        "kv": batch * context * model.kv_bytes_per_token(kv_dtype_k, kv_dtype_v),
    }
    total = sum(bytes_read.values())
    tokens = batch * tokens_per_step
    bandwidth = hardware.memory_bandwidth_bytes_s
    uncached = None if hardware.cache_bytes is None else total - hardware.cache_bytes
    components_ms = {part: 1e3 * size / bandwidth for part, size in bytes_read.items()}
    return Bound(
        bound_tok_s=tokens * bandwidth / total,
        bound_hard_tok_s=tokens * bandwidth / uncached if uncached is not None and uncached > 0 else None,
        step_ms=sum(components_ms.values()),
        components_ms=components_ms,
        batch=batch,
        context=context,
        tokens_per_step=tokens_per_step,
        limited_by=max(components_ms, key=components_ms.__getitem__),
    )
