"""Expert parallelism: whole experts per GPU instead of a slice of each.

Without asking the model first, the lever would be "measured" on a dense model and called no effect.
"""

from __future__ import annotations

from lab.campaign import Arm
from lab.engines.base import Engine
from lab.levers.base import Lever, Proof, register
from lab.predictions import Planned, Prediction, of_experts
from lab.records import Launch
from lab.roofline.model import Model


@register
class ExpertParallel(Lever):
    """Experts spread over the GPUs of a tensor-parallel group."""

    title = "Expert parallelism"
    notebook = "04_expert_parallel"
    mechanism = (
        "Each GPU holds whole experts, so that a matrix product is larger and fewer weights are touched per GPU, at "
        "the price of an all-to-all of tokens in every layer."
    )
    predicted = "positive for many experts and large batches over a fast link"
    backfires = "at small batch the busiest GPU sets the step, and over PCIe the all-to-all costs more than it saves"

    def not_applicable(self, engine: Engine, model: Model) -> str | None:
        if not model.n_experts:
            return f"{model.name} is a dense model: it has no experts to spread"
        if not engine.capabilities().collectives:
            devices = engine.capabilities().devices
            return f"{engine.name} runs on {devices} device here: there is nothing to spread experts over"
        return f"no treatment is defined for {engine.name}"

    def treatments(self, control: Arm, engine: Engine) -> list[Arm]:
        return []

    def prediction(self, control: Planned, treatment: Planned) -> Prediction:
        return of_experts(control, treatment)

    def proof(self, control: Launch, treatment: Launch, engine: Engine) -> Proof:
        raise NotImplementedError("this lever has no treatment on any engine known here")
