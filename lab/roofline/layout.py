"""How a model is spread over devices, and which spreads are impossible.

Without it a bound is printed for a deployment that could never start: heads that do not divide, weights that do not
fit.
"""

from __future__ import annotations

from dataclasses import dataclass

from lab.errors import InputError, LabError
from lab.roofline.hardware import Hardware
from lab.roofline.model import Model


@dataclass(frozen=True)
class Layout:
    """Parallel degrees.

    tp  devices over which the attention, and all else that is not a routed expert, of one sequence is sliced
    dp  groups of such devices, each with its own sequences
    ep  devices over which whole experts are spread. Up to tp the groups stay replicas of each other and tokens are on
        every rank; beyond it experts serve ep/tp groups, and tokens travel to them (DP attention with expert
        parallelism). What ep leaves of tp slices each expert
    pp  stages of layers, passed one behind another
    """

    tp: int = 1
    ep: int = 1
    dp: int = 1
    pp: int = 1

    @property
    def devices(self) -> int:
        """All devices of the deployment."""
        return self.tp * self.dp * self.pp

    @property
    def expert_devices(self) -> int:
        """Devices of one stage that hold one full set of experts between them."""
        return max(self.tp, self.ep)

    @property
    def expert_groups(self) -> int:
        """Groups of sequences whose tokens meet in one set of experts."""
        return self.expert_devices // self.tp

    @property
    def travels(self) -> bool:
        """Whether tokens travel to their experts (all-to-all) instead of being on every rank."""
        return self.ep > self.tp


def weight_bytes_per_device(model: Model, layout: Layout) -> float:
    """Bytes of weights in each device's memory, small replicated tensors counted as if sharded, draft layers aside."""
    routed = model.all_expert_bytes
    return ((model.weight_bytes - routed) / layout.tp + routed / layout.expert_devices) / layout.pp


def check(model: Model, hardware: Hardware, layout: Layout) -> None:
    """Raises InputError with the arithmetic for a layout that this model or hardware cannot have, LabError for a model
    that is not modelled."""
    if model.not_modelled:
        raise LabError(f"no bound for {model.name}: {model.not_modelled}")
    for name in ("tp", "ep", "dp", "pp"):
        degree = getattr(layout, name)
        if not (isinstance(degree, int) and degree >= 1):
            raise InputError(f"{name} is {degree!r}; a parallel degree is a whole number from 1")
    for kind in model.attention_layers:
        if layout.tp > 1 and (why := kind.refusal(layout.tp)):
            raise InputError(f"tp {layout.tp} is impossible for {model.name}: {why}")
    if layout.pp > model.layers:
        raise InputError(f"pp {layout.pp} is impossible for {model.name}: it has {model.layers} layers")
    _check_experts(model, layout)
    ranks = max(layout.tp, layout.ep)
    if hardware.joined is not None and ranks > hardware.joined:
        raise InputError(
            f"{ranks} ranks are impossible: {hardware.joined} {hardware.name} are joined in a node, and collectives "
            "between nodes are not modelled"
        )
    needed = weight_bytes_per_device(model, layout)
    if hardware.memory_bytes is not None and needed > hardware.memory_bytes:
        raise InputError(
            f"{model.name} ({model.format}) does not fit: of {model.weight_bytes / 1e9:.1f} GB of weights each of "
            f"{layout.devices} {hardware.name} would hold {needed / 1e9:.1f} GB, and it has "
            f"{hardware.memory_bytes / 1e9:.1f} GB"
        )


def _check_experts(model: Model, layout: Layout) -> None:
    if layout.ep == 1:
        return
    if model.experts is None:
        raise InputError(f"ep {layout.ep} is impossible for {model.name}: it has no experts")
    if model.n_experts % layout.ep:
        raise InputError(
            f"ep {layout.ep} is impossible for {model.name}: {model.n_experts} experts do not divide into {layout.ep}"
        )
    if layout.tp % layout.ep and layout.ep % layout.tp:
        raise InputError(f"ep {layout.ep} is impossible with tp {layout.tp}: one must divide the other")
    if layout.travels and (layout.tp * layout.dp) % layout.ep:
        raise InputError(
            f"ep {layout.ep} is impossible on tp {layout.tp} x dp {layout.dp} = {layout.tp * layout.dp} devices: "
            f"they do not divide into sets of {layout.ep}"
        )
