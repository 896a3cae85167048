"""NCCL LL protocol on a ring: lower latency for the small all-reduces of decode.

Without asking the engine first, a lever about collectives would be "measured" on one device and called no effect.
"""

from __future__ import annotations

from lab.campaign import Arm
from lab.engines.base import Engine
from lab.levers.base import Lever, Proof, register
from lab.predictions import Planned, Prediction, of_ring
from lab.records import Launch
from lab.roofline.model import Model


@register
class NcclLlRing(Lever):
    """NCCL_PROTO=LL and NCCL_ALGO=Ring."""

    title = "NCCL LL + Ring"
    notebook = "02_nccl_ll_ring"
    mechanism = (
        "Decode all-reduces are a few KiB; the LL protocol trades bandwidth for latency by flagging every eight bytes, "
        "and a ring avoids the tree's extra hops on few GPUs."
    )
    predicted = "positive on PCIe-connected GPUs at small batch"
    backfires = "for large messages (prefill, large batch) LL moves half the bytes a second"

    def not_applicable(self, engine: Engine, model: Model) -> str | None:
        capabilities = engine.capabilities()
        if capabilities.collectives:
            return f"no treatment is defined for {engine.name}"
        return f"{engine.name} runs on {capabilities.devices} device here: there are no collectives to tune"

    def treatments(self, control: Arm, engine: Engine) -> list[Arm]:
        return []

    def prediction(self, control: Planned, treatment: Planned) -> Prediction:
        return of_ring(control)

    def proof(self, control: Launch, treatment: Launch, engine: Engine) -> Proof:
        raise NotImplementedError("this lever has no treatment on any engine known here")
