"""The floor on a decode step's time, and so the ceiling on tokens per second.

Without it, a lever is tuned for a week on a server whose real trouble is elsewhere, and an impossible
measurement (a batch larger than believed, prompt tokens counted as output) looks like a success.

A step must read the weights it uses and the cache of every running sequence, and nothing is faster than reading those
bytes at full bandwidth (Williams, Waterman & Patterson, *Roofline*, CACM 52(4), 2009); where a part computes longer
than it reads, its arithmetic counts (per operation, as hahnyuan/LLM-Viewer roofline_model.py); messages between devices
come on top. Launch overhead and inefficiency only make a step longer. Nothing is clamped: a measurement above its bound
means that an input is wrong, and it must be seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab.errors import InputError
from lab.roofline import messages, traffic
from lab.roofline.arrays import Numbers, plain
from lab.roofline.experts import UNIFORM
from lab.roofline.hardware import Hardware
from lab.roofline.layout import Layout, check
from lab.roofline.messages import Collective
from lab.roofline.model import Model
from lab.roofline.traffic import Step


@dataclass(frozen=True)
class Bound:
    """The limit at a batch and context; every figure is a number, or an array where batch or context are arrays.

    bound_tok_s         output tokens per second of the whole deployment: memory, arithmetic and collectives
    bound_memory_tok_s  the same from memory alone
    bound_hard_tok_s    what nothing exceeds, from memory with every unknown input at its cheapest (`bound`) and the
                        last-level cache sparing each step as many bytes as it can hold; None (in arrays NaN) when it
                        holds them all (memory is then no limit), None when its size is unknown. Of hardware whose
                        edition is not known it is the largest over `hardware_catalogue.editions`
    step_ms             one step: the sum of its parts, milliseconds
    components_ms       the parts that there are: weights (all that every step reads), experts, kv, state; compute (what
                        arithmetic takes beyond the reading); all_reduce, all_to_all, sends; draft; fixed
    batch               sequences per step on the whole deployment
    context             tokens of context per sequence
    tokens_per_step     tokens each sequence gains per step
    limited_by          the largest part
    devices             devices of the deployment
    distinct_experts    experts that one layer touches; None for a dense model
    expected_tok_s      tokens per second with the fixed cost; None without one (a fixed cost is never part of a bound)
    collectives         all_reduce, dispatch, combine, send: calls, bytes, latency and how it was found
    bytes_per_step      what one device reads in one step
    flops_per_step      what one device computes in one step, FLOPs; None where the count of parameters is not known
    """

    bound_tok_s: Numbers
    bound_hard_tok_s: Numbers | None
    step_ms: Numbers
    components_ms: dict[str, Numbers]
    batch: Numbers
    context: Numbers
    tokens_per_step: float
    limited_by: str | NDArray[np.str_]
    bound_memory_tok_s: Numbers
    bytes_per_step: Numbers
    flops_per_step: Numbers | None = None
    devices: int = 1
    distinct_experts: Numbers | None = None
    expected_tok_s: Numbers | None = None
    collectives: Mapping[str, Collective] = field(default_factory=dict)

    @property
    def bound_tok_s_per_user(self) -> Numbers:
        """Of one sequence."""
        return self.bound_tok_s / self.batch

    @property
    def bound_tok_s_per_gpu(self) -> Numbers:
        """Of one device."""
        return self.bound_tok_s / self.devices


def bound(
    model: Model,
    hardware: Hardware,
    layout: Layout,
    batch: Numbers,
    context: Numbers,
    *,
    kv_dtype_k: str | None = None,
    kv_dtype_v: str | None = None,
    state_dtype: str | None = None,
    shared_prefix: Numbers | None = None,
    routing: str | float = UNIFORM,
    tokens_per_step: float = 1.0,
    draft_tokens: float = 0,
    draft_step_ms: Numbers = 0.0,
    activations: str | None = None,
    all_reduce_library: str | None = None,
    fixed_ms_per_layer: float | None = None,
) -> Bound:
    """Ceiling on decode throughput: batch x tokens_per_step / time of a step.

    `batch` is what the server really ran and `context` the tokens in the cache of one sequence (prompt plus half the
    output), both as means over the measurement; numbers, or arrays that broadcast.

    What may be unknown (None) is BF16 caches (DeepSeek-V4: FP8), the checkpoint's recurrent state and no shared prefix
    in the nominal bound; in the hard one 4-bit caches, a 16-bit state and a context shared as a whole.
    kv_dtype_k, kv_dtype_v  cache types, as engines name them; a latent or compressed cache is of type kv_dtype_k
    state_dtype             type of the recurrent state
    shared_prefix           tokens of context that all sequences share: read once where one layer of them fits the
                            last-level cache (in the hard bound always), once for each sequence otherwise
    routing                 which experts tokens pick (`experts.distinct`); the hard bound takes the law that picks
                            fewest
    tokens_per_step         1 plus the accepted draft tokens per sequence and step (`speculation.tokens_per_step_*`)
    draft_tokens            tokens verified per sequence beside its own: they touch experts, travel and compute
    draft_step_ms           time of one draft token (`speculation.draft_step_ms`); 0 leaves the drafter out: a ceiling
    activations             their precision where it is not that of the weights: bf16 for W4A16 (Marlin)
    all_reduce_library      whose measured latencies count; None: NCCL's
    fixed_ms_per_layer      what a layer costs beyond all this (`fit.fixed_ms_per_layer`), for `expected_tok_s`

    Raises InputError for a batch, context, tokens_per_step or draft_tokens out of range, a shared prefix longer than
    the context, an unknown type or an impossible layout (`layout.check`); LabError for an architecture that is not
    modelled or a link that is not known.
    """
    check(model, hardware, layout)
    batch, context = (np.asarray(value, dtype=float) for value in (batch, context))
    asked_shared = np.asarray(0.0 if shared_prefix is None else shared_prefix, dtype=float)
    _check_ranges(batch, tokens_per_step, draft_tokens)
    check_context(context, asked_shared)
    batch, context = np.broadcast_arrays(batch, context)
    of = traffic.elements(model, kv_dtype_k, kv_dtype_v, state_dtype)
    shared = asked_shared + 0.0 * context
    fits = traffic.shared_fits(model, hardware, layout, shared, of)
    step = Step(batch, context, 1.0 + draft_tokens, of, np.where(fits, shared, 0.0), routing)

    experts = step.experts(model, layout)
    read = traffic.read_bytes(model, layout, step, experts)
    rate = hardware.memory_bandwidth_bytes_s
    parts = {name: 1e3 * size / rate for name, size in read.items()}
    memory_ms = sum(parts.values())
    if arithmetic := traffic.compute_s(model, hardware, layout, step, activations):
        parts["compute"] = sum(np.maximum(0.0, 1e3 * taken - parts[name]) for name, taken in arithmetic.items())
    sent = messages.of_step(model, hardware, layout, step.sequences(layout) * step.tokens, all_reduce_library)
    for name, kinds in (("all_reduce", ("all_reduce",)), ("all_to_all", ("dispatch", "combine")), ("sends", ("send",))):
        if any(kind in sent for kind in kinds):
            parts[name] = sum(sent[kind].ms for kind in kinds)
    if np.any(draft_step_ms):
        parts["draft"] = draft_tokens * draft_step_ms + 0.0 * batch
    bound_ms = sum(parts.values())
    if fixed_ms_per_layer is not None:
        parts["fixed"] = model.layers * fixed_ms_per_layer + 0.0 * batch
    step_ms = sum(parts.values())

    tokens = 1e3 * batch * tokens_per_step
    kv_known = kv_dtype_k is not None or kv_dtype_v is not None
    hard = traffic.cheapest(step, kv_known, state_dtype is not None, context if shared_prefix is None else shared)
    return Bound(
        bound_tok_s=plain(tokens / bound_ms),
        bound_hard_tok_s=_hard(model, hardware, layout, hard, tokens),
        step_ms=plain(step_ms),
        components_ms={name: plain(value) for name, value in parts.items()},
        batch=plain(batch),
        context=plain(context),
        tokens_per_step=tokens_per_step,
        limited_by=_largest(parts),
        bound_memory_tok_s=plain(tokens / memory_ms),
        bytes_per_step=plain(sum(read.values())),
        flops_per_step=None
        if model.params_per_step is None
        else plain(sum(traffic.flops(model, layout, step).values())),
        devices=layout.devices,
        distinct_experts=None if experts is None else plain(experts),
        expected_tok_s=None if fixed_ms_per_layer is None else plain(tokens / step_ms),
        collectives=sent,
    )


def _hard(model: Model, hardware: Hardware, layout: Layout, step: Step, tokens: Numbers) -> Numbers | None:
    """No messages and no arithmetic: they may be hidden behind the reading."""
    if hardware.cache_bytes is None:
        return None
    total = sum(traffic.read_bytes(model, layout, step, step.experts(model, layout)).values())
    uncached = np.asarray(total - hardware.cache_bytes)
    limit = np.where(
        uncached > 0, tokens * hardware.memory_bandwidth_bytes_s / 1e3 / np.where(uncached > 0, uncached, 1), np.nan
    )
    if limit.ndim:
        return limit
    return None if np.isnan(limit) else float(limit)


def check_context(context: Numbers, shared_prefix: Numbers) -> None:
    """Raises InputError for a context, or a part of it that sequences share, that no sequence can have."""
    lengths, shared = (np.asarray(value, dtype=float) for value in np.broadcast_arrays(context, shared_prefix))
    for name, value in (("context", lengths), ("shared_prefix", shared)):
        if (wrong := value[~((value >= 0) & np.isfinite(value))]).size:
            raise InputError(f"{name} is {wrong[0]:g}; it is a number of tokens, 0 or more")
    if (longer := shared > lengths).any():
        raise InputError(
            f"shared_prefix is {shared[longer][0]:.12g} tokens, more than the {lengths[longer][0]:.12g} of the context "
            "that it is a part of"
        )


def _check_ranges(batch: Any, tokens_per_step: float, draft_tokens: float) -> None:
    for name, value, valid in (
        ("batch", batch, batch > 0),
        ("tokens_per_step", tokens_per_step, tokens_per_step >= 1),
        ("draft_tokens", draft_tokens, draft_tokens >= 0),
    ):
        if not np.all(valid & np.isfinite(value)):
            raise InputError(
                f"{name} is {value}; a step has batch > 0, tokens_per_step >= 1 and draft_tokens >= 0, all finite"
            )


def _largest(parts: Mapping[str, Numbers]) -> str | NDArray[np.str_]:
    names = np.array(list(parts))
    found = names[np.argmax(np.stack(np.broadcast_arrays(*parts.values())), axis=0)]
    return found if np.ndim(found) else str(found)
