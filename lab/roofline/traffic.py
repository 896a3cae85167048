"""What one device reads and computes in one decode step, part by part.

Without it the nominal and the hard bound would each count bytes in their own way, and differ in more than their inputs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lab.roofline.arrays import Numbers
from lab.roofline.attention import Compressed
from lab.roofline.experts import distinct, fewest
from lab.roofline.hardware import Hardware
from lab.roofline.kv_types import SMALLEST_KV_BYTES, SMALLEST_STATE_BYTES, ElementBytes, element_bytes
from lab.roofline.layout import Layout
from lab.roofline.model import Model


@dataclass(frozen=True)
class Step:
    """One decode step: the sequences on all devices, their mean context, and the tokens verified for each of them.

    shared   tokens of prefix that all sequences share and that are read once; routing as in `experts.distinct`
    """

    batch: Numbers
    context: Numbers
    tokens: float
    of: ElementBytes
    shared: Numbers
    routing: str | float | None

    def share(self, parts: float) -> Numbers:
        """Sequences that one of `parts` equal parts runs at once: a busy part has one at least."""
        return np.maximum(self.batch / parts, np.minimum(self.batch, 1.0))

    def experts(self, model: Model, layout: Layout) -> Numbers | None:
        """Distinct experts per layer in one set of them; None for a dense model. `routing` None: the fewest of all
        laws."""
        if model.experts is None:
            return None
        count, per_token, tokens = model.n_experts, model.experts.per_token, self.meeting(layout)
        if self.routing is None:
            return fewest(count, per_token, tokens)
        return distinct(count, per_token, tokens, self.routing)

    def sequences(self, layout: Layout) -> Numbers:
        """Sequences whose attention one group of `tp` devices runs at once; stages are passed one after another."""
        return self.share(layout.pp * layout.dp)

    def meeting(self, layout: Layout) -> Numbers:
        """Tokens that meet in one set of experts."""
        return self.share(layout.pp * layout.dp / layout.expert_groups) * self.tokens


def usual_kv_dtype(model: Model) -> str:
    """The cache type of a server that was told none: BF16; FP8 for DeepSeek-V4, which knows no other."""
    return "fp8" if any(isinstance(kind, Compressed) for kind in model.attention) else "bfloat16"


def elements(model: Model, kv_dtype_k: str | None, kv_dtype_v: str | None, state_dtype: str | None) -> ElementBytes:
    """Bytes of a cached element; where a type is not known: the usual one, and the state as the checkpoint asks.
    Raises InputError for an unknown name."""
    usual = usual_kv_dtype(model)
    key, value = (
        element_bytes(next(name for name in (*names, usual) if name is not None))
        for names in ((kv_dtype_k, kv_dtype_v), (kv_dtype_v, kv_dtype_k))
    )
    return ElementBytes(key, value, element_bytes(state_dtype or model.state_dtype or "float32"))


def cheapest(step: Step, kv_known: bool, state_known: bool, shared: Numbers) -> Step:
    """The step with every unknown input at its cheapest: smallest cache types, `shared` tokens read once, the fewest
    experts, and drafts that are routed like the token before them."""
    of = step.of
    if not kv_known:
        of = replace(of, key=min(of.key, SMALLEST_KV_BYTES), value=min(of.value, SMALLEST_KV_BYTES))
    if not state_known:
        of = replace(of, state=min(of.state, SMALLEST_STATE_BYTES))
    return replace(step, of=of, tokens=1.0, routing=None, shared=shared)


def read_bytes(model: Model, layout: Layout, step: Step, experts: Numbers | None) -> dict[str, Numbers]:
    """Bytes that one device reads in one pass through all stages: weights, experts, kv, state (where it has them).

    Of experts spread over devices each reads its mean share; the device with the most sets the step, so this is a
    floor.
    """
    tp, sequences = layout.tp, step.sequences(layout)
    found: dict[str, Numbers] = {"weights": model.weight_bytes_per_step / tp + 0.0 * sequences}
    if model.experts is not None and experts is not None:
        found["experts"] = experts * model.experts.layers * model.experts.bytes / layout.expert_devices

    def cached(length: Numbers) -> Numbers:
        return sum(kind.read_bytes(length, tp, step.of) for kind in model.attention_layers)

    # The first sequence reads its whole context, each other one what it does not share.
    own = step.context - np.minimum(step.shared, step.context)
    found["kv"] = np.minimum(sequences, 1.0) * cached(step.context) + np.maximum(sequences - 1.0, 0.0) * cached(own)
    state = sum(kind.moved_state_bytes(tp, step.of) for kind in model.attention_layers)
    if state:
        found["state"] = sequences * state
    return found


def shared_fits(
    model: Model, hardware: Hardware, layout: Layout, shared: Numbers, of: ElementBytes
) -> NDArray[np.bool_]:
    """Whether one layer's shared keys and values stay in the last-level cache while all sequences read them."""
    if hardware.cache_bytes is None:
        return np.zeros(np.shape(shared), dtype=bool)
    largest = [kind.read_bytes(shared, layout.tp, of) / kind.layers for kind in model.attention_layers if kind.layers]
    return np.maximum.reduce([np.asarray(size, dtype=float) for size in largest]) <= hardware.cache_bytes


def flops(model: Model, layout: Layout, step: Step) -> dict[str, Numbers]:
    """FLOPs of the parts of `read_bytes`, on one device; weights whose parameters are not known are left out.

    2 FLOPs per weight and token; attention by what it reads of the cache.
    """
    tokens = step.sequences(layout) * step.tokens
    found: dict[str, Numbers] = {
        "kv": tokens * sum(kind.flops(step.context, layout.tp) for kind in model.attention_layers)
    }
    if model.params_per_step is not None:
        found["weights"] = 2.0 * model.params_per_step / layout.tp * tokens
    if (experts := model.experts) is not None:
        chosen = experts.per_token * experts.params * experts.layers / layout.expert_devices
        found["experts"] = 2.0 * chosen * step.meeting(layout)
    return found


def compute_s(
    model: Model, hardware: Hardware, layout: Layout, step: Step, activations: str | None
) -> dict[str, Numbers]:
    """Seconds of arithmetic of the parts of `read_bytes`, on one device; parts of unknown precision or peak are left
    out. Attention computes in BF16, in FP8 where its cache is no wider."""
    peaks = {
        "kv": hardware.peak("fp8" if step.of.key <= 1 else "bf16"),
        "weights": hardware.peak(model.compute, activations),
        "experts": hardware.peak(model.experts.compute, activations) if model.experts else None,
    }
    return {part: count / peak for part, count in flops(model, layout, step).items() if (peak := peaks[part])}
