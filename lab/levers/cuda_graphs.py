"""CUDA graphs, or what the engine has in their place: on llama.cpp the reuse of its compute graph.

Without naming the real mechanism, a CPU run would claim to say something about CUDA.
"""

from __future__ import annotations

from lab.campaign import Arm
from lab.engines.base import Engine
from lab.levers.base import Lever, Proof, register
from lab.predictions import Planned, Prediction, of_fixed_cost
from lab.records import Launch
from lab.roofline.model import Model

_SWITCH = "LLAMA_GRAPH_REUSE_DISABLE"


@register
class CudaGraphs(Lever):
    """Turns the engine's graph mechanism to the other state than the control's."""

    title = "Graphs (llama.cpp: compute-graph reuse)"
    notebook = "03_cuda_graphs"
    mechanism = (
        "A captured graph replays the kernels of a decode step without building and launching them one by one. "
        "llama.cpp has no CUDA graphs on a CPU; the nearest thing is reusing the compute graph of the previous step."
    )
    predicted = "turning it off costs a fixed time per step: negative, and small where a step is long"
    backfires = "captured shapes take memory, and a batch beyond the largest one falls back to the slow path"

    def not_applicable(self, engine: Engine, model: Model) -> str | None:
        if engine.name != "llamacpp":
            return f"no treatment is defined for {engine.name}"
        return None if engine.capabilities().graph_mechanism else f"{engine.name} has no graphs to reuse"

    def treatments(self, control: Arm, engine: Engine) -> list[Arm]:
        if control.env.get(_SWITCH, "0") == "0":
            return [self.arm(control, "graph reuse off", env={_SWITCH: "1"})]
        return [self.arm(control, "graph reuse on", env={_SWITCH: None})]

    def prediction(self, control: Planned, treatment: Planned) -> Prediction:
        return of_fixed_cost(control)

    def proof(self, control: Launch, treatment: Launch, engine: Engine) -> Proof:
        launches = (control, treatment)
        states = [launch.effective.get("graph_reuse") for launch in launches]
        reused = [launch.effective.get("graphs_reused") for launch in launches]
        text = f"graph reuse {_word(states[0])} → {_word(states[1])} (log), graphs reused {reused[0]} → {reused[1]}"
        moved = [bool(count) for count in reused] == [bool(state) for state in states]
        return Proof(None not in states and states[0] != states[1] and moved, text)


def _word(state: bool | None) -> str:
    return "unknown" if state is None else "on" if state else "off"
