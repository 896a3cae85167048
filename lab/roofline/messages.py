"""Which collectives a decode step makes in a layout, and what they cost.

Without it the same two all-reduces per layer would be charged to every layout, and expert parallelism over groups of
their own sequences would seem free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lab.errors import LabError
from lab.roofline import collectives
from lab.roofline.arrays import Numbers
from lab.roofline.collectives import Latency
from lab.roofline.hardware import Hardware
from lab.roofline.layout import Layout
from lab.roofline.model import Model

HIDDEN_BYTES = 2  # activations travel in BF16
DISPATCH_BYTES, COMBINE_BYTES = 1, 2  # FP8 to the experts, BF16 back (deepseek-ai/DeepEP README)


@dataclass(frozen=True)
class Collective:
    """Calls of one kind in one step: how many, bytes of each on each rank, and what one costs and how it is known."""

    count: int
    message_bytes: Numbers
    latency: Latency

    @property
    def ms(self) -> Numbers:
        """Milliseconds of all calls, one after another: nothing is overlapped."""
        return self.count * self.latency.us / 1e3


def of_step(
    model: Model, hardware: Hardware, layout: Layout, tokens: Numbers, library: str | None
) -> Mapping[str, Collective]:
    """Collectives of one pass through all stages, `tokens` tokens in each group of `tp` devices.

    tp > 1       all_reduce after attention and after the feed-forward part, T·hidden·2 bytes; where tokens travel to
                 their experts, the mixtures need none
    ep > tp      dispatch and combine around each mixture: T/tp tokens of a rank, one copy for each of min(k, ep-1)
                 other ranks (ai-dynamo/aiconfigurator operators/fpm_sol.rs, trtllm_alltoall)
    pp > 1       send to the next stage, pp-1 times
    Embedding and logits (two more per step) are left out. Raises LabError where width or link are unknown.
    """
    if layout.tp == layout.pp == 1 and not layout.travels:
        return {}
    if model.hidden is None:
        raise LabError(f"no bound for {model.name} on several devices: the width of its activations is not known")
    row = tokens * model.hidden
    moe_layers = model.experts.layers if model.experts else 0
    found = {}
    if layout.tp > 1:
        count = model.all_reduces * model.layers - (moe_layers if layout.travels else 0)
        message = row * HIDDEN_BYTES
        latency = collectives.all_reduce(hardware, layout.tp, message, library)
        found["all_reduce"] = Collective(count, message, latency)
    if layout.travels and model.experts:
        copies = row / layout.tp * min(model.experts.per_token, layout.ep - 1)
        for name, size in (("dispatch", DISPATCH_BYTES), ("combine", COMBINE_BYTES)):
            latency = collectives.all_to_all(hardware, layout.ep, copies * size)
            found[name] = Collective(moe_layers, copies * size, latency)
    if layout.pp > 1:
        message = row * HIDDEN_BYTES
        found["send"] = Collective(layout.pp - 1, message, collectives.send(hardware, message))
    return found
