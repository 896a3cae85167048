"""How a server is spread over its devices, from what it says of itself.

Without it the bound of four cards is taken for that of one, and a sound server looks four times too fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.roofline.layout import Layout

TENSOR = ("tp_size", "tensor_parallel_size")


def layout_of(facts: Mapping[str, Any], mixture: bool) -> Layout | None:
    """The layout of a server with these facts; None where a degree is not shown, or the layout is not modelled.

    `mixture`: whether the model has experts. An engine without a degree for tensor parallelism runs on one device.
    SGLang and vLLM differ in what their tensor degree counts: with attention data parallelism SGLang's ranks lie on
    the devices of the tensor group, so that each slices its sequences over `tp_size / ranks` of them. The experts of
    both are spread over all groups that decode together.
    """
    name = next((name for name in TENSOR if name in facts), None)
    if name is None:
        return Layout()
    tensor, ranks, gpus = facts[name], facts.get("ranks") or 1, facts.get("gpus")
    if tensor is None:
        return None
    if name == "tensor_parallel_size":
        stages = gpus // (tensor * ranks) if gpus else 1
        return Layout(tp=tensor, ep=tensor * ranks if mixture and ranks > 1 else 1, dp=ranks, pp=stages)
    stages = facts.get("pp_size") or 1
    if ranks == 1 or gpus == tensor * stages * ranks:
        return Layout(tp=tensor, ep=facts.get("ep_size") or 1, dp=ranks, pp=stages)
    if gpus != tensor * stages or tensor % ranks or not mixture:
        return None
    return Layout(tp=tensor // ranks, ep=tensor, dp=ranks, pp=stages)
