"""How much context and how many sequences fit beside the weights.

Without it a batch is planned that the cache cannot hold, or tensor parallelism is believed to multiply a cache of which
every rank keeps a full copy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from lab.errors import InputError
from lab.roofline.hardware import Hardware
from lab.roofline.layout import Layout, check, weight_bytes_per_device
from lab.roofline.model import Model
from lab.roofline.step import check_context
from lab.roofline.traffic import elements

# Buffers of NCCL by ranks, and what activations, graphs and the runtime take (ai-dynamo/aiconfigurator
# systems/rtx_pro_6000_server.yaml, misc: planning constants, not measurements of one engine).
NCCL_BYTES = {1: 0, 2: 342 << 20}
NCCL_BYTES_MANY = 392 << 20
OTHER_BYTES = 3584 << 20
BLOCK_TOKENS = 16  # vLLM and SGLang hand out cache in blocks of so many tokens


@dataclass(frozen=True)
class Capacity:
    """What one deployment holds.

    budget_bytes             cache memory on each device
    weight_bytes             weights on each device, draft layers included where they are loaded
    bytes_per_token          cache that one token takes on each device at a long context
    fixed_bytes              what a sequence takes on each device whatever its length
    kv_tokens                tokens that fit in all groups together, in whole blocks; None where cache does not grow
    max_batch                sequences of the asked context that fit in all groups together; None where one more takes
                             no memory of its own, since all of its context is shared: no limit
    """

    budget_bytes: float
    weight_bytes: float
    bytes_per_token: float
    fixed_bytes: float
    kv_tokens: int | None
    max_batch: int | None


def capacity(
    model: Model,
    hardware: Hardware,
    layout: Layout,
    context: float,
    *,
    memory_fraction: float = 0.9,
    of_free_memory: bool = False,
    speculation: bool = False,
    shared_prefix: float = 0.0,
    kv_dtype_k: str | None = None,
    kv_dtype_v: str | None = None,
    state_dtype: str | None = None,
    other_bytes: float = OTHER_BYTES,
) -> Capacity:
    """Cache budget, tokens and largest batch of sequences of `context` tokens.

    Each device gives `memory_fraction` of its memory to the engine, less weights, NCCL's buffers and `other_bytes`
    (vLLM, SGLang); with `of_free_memory` that fraction of what those leave (TensorRT-LLM, ai-dynamo/aiconfigurator
    memory.py).
    speculation    the checkpoint's draft layers are loaded: their weights and cache count
    shared_prefix  tokens that all sequences share, stored once
    kv_dtype_k, kv_dtype_v, state_dtype  as in `step.bound`

    Raises InputError where the hardware's memory is not known or nothing is left, for a prefix longer than the context
    and a context out of range, and as `layout.check`.
    """
    check(model, hardware, layout)
    check_context(context, shared_prefix)
    if hardware.memory_bytes is None:
        raise InputError(f"{hardware.name}: how much memory it has is not known, so no capacity can be given")
    of = elements(model, kv_dtype_k, kv_dtype_v, state_dtype)
    weights = weight_bytes_per_device(model, layout)
    kinds = list(model.attention_layers)
    if speculation and model.draft is not None:
        weights += model.draft.weight_bytes / layout.tp
        kinds.append(model.draft.attention)
    reserved = other_bytes + NCCL_BYTES.get(layout.tp, NCCL_BYTES_MANY)
    if of_free_memory:
        budget = (hardware.memory_bytes - weights - reserved) * memory_fraction
    else:
        budget = hardware.memory_bytes * memory_fraction - weights - reserved
    if budget <= 0:
        raise InputError(
            f"{model.name} leaves no cache on {hardware.name}: {memory_fraction:g} of its "
            f"{hardware.memory_bytes / 1e9:.1f} GB, less {weights / 1e9:.1f} of weights and {reserved / 1e9:.1f} of "
            f"buffers, is {budget / 1e9:.1f} GB"
        )

    def stored(length: float) -> float:
        return float(sum(kind.stored_bytes(length, layout.tp, of) for kind in kinds)) / layout.pp

    growth = sum(kind.growth_bytes(layout.tp, of) for kind in kinds) / layout.pp
    fixed = sum(kind.fixed_bytes(layout.tp, of) for kind in kinds) / layout.pp
    own = context - shared_prefix
    once, each = stored(context) - stored(own), stored(own) + fixed
    without_limit = each == 0 and once <= budget
    return Capacity(
        budget_bytes=budget,
        weight_bytes=weights,
        bytes_per_token=growth,
        fixed_bytes=fixed,
        kv_tokens=layout.dp * BLOCK_TOKENS * math.floor(budget / growth / BLOCK_TOKENS) if growth else None,
        max_batch=None if without_limit else layout.dp * max(0, math.floor((budget - once) / each)) if each else 0,
    )
