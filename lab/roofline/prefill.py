"""How long a chunk of prompt takes at best.

Without it a slow first token is blamed on the kernels when, over PCIe, nine tenths of it are all-reduces.
"""

from __future__ import annotations

from dataclasses import dataclass

from lab.errors import InputError, LabError
from lab.roofline.experts import UNIFORM, distinct
from lab.roofline.hardware import Hardware
from lab.roofline.layout import Layout, check
from lab.roofline.messages import of_step
from lab.roofline.model import Model


@dataclass(frozen=True)
class Prefill:
    """Milliseconds of one chunk; queueing comes on top for the time to the first token.

    weights_ms    reading the weights once
    products_ms   arithmetic of the linear layers; the longer of both counts
    attention_ms  arithmetic of the causal attention
    messages_ms   collectives
    """

    weights_ms: float
    products_ms: float
    attention_ms: float
    messages_ms: float

    @property
    def total_ms(self) -> float:
        """The longer of reading and products, and the rest."""
        return max(self.weights_ms, self.products_ms) + self.attention_ms + self.messages_ms


def prefill(
    model: Model,
    hardware: Hardware,
    layout: Layout,
    tokens: int,
    *,
    utilisation: float = 1.0,
    routing: str | float = UNIFORM,
    activations: str | None = None,
    all_reduce_library: str | None = None,
) -> Prefill:
    """Time of a prompt of `tokens` tokens, processed alone, by one group of devices.

    max(2·params·S / (peak·utilisation), weights / bandwidth) + attention S²/2 + messages of S tokens, per device.
    `utilisation`: share of the peak that products reach (model FLOPs utilisation); 1 is the floor. `activations`: as in
    `step.bound`. Raises InputError for no tokens or a layout that is impossible, LabError where a peak is unknown.
    """
    check(model, hardware, layout)
    if tokens < 1:
        raise InputError(f"tokens is {tokens}; a prompt has at least one")
    linear = [(model.params_per_step, model.compute, layout.tp)]
    read = model.weight_bytes_per_step / layout.tp
    if (experts := model.experts) is not None:
        linear.append((experts.per_token * experts.params * experts.layers, experts.compute, layout.expert_devices))
        met = tokens * layout.expert_groups
        touched = float(distinct(model.n_experts, experts.per_token, met, routing))
        read += touched * experts.layers * experts.bytes / layout.expert_devices
    attention = sum(kind.prefill_flops(float(tokens), layout.tp) for kind in model.attention_layers)
    sent = of_step(model, hardware, layout, float(tokens), all_reduce_library)
    products = sum(
        _seconds(hardware, 2.0 * (params or 0.0) * tokens / parts, precision, activations)
        for params, precision, parts in linear
    )
    return Prefill(
        weights_ms=1e3 * read / hardware.memory_bandwidth_bytes_s,
        products_ms=1e3 * products / utilisation,
        attention_ms=1e3 * _seconds(hardware, float(attention), "bf16", None),
        messages_ms=float(sum(collective.ms for collective in sent.values())),
    )


def _seconds(hardware: Hardware, flops: float, precision: str | None, activations: str | None) -> float:
    peak = hardware.peak(precision, activations)
    if peak is None:
        raise LabError(f"no prefill time for {hardware.name}: its peak for {precision or 'these weights'} is not known")
    return flops / peak
