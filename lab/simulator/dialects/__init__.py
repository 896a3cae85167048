"""The engines that the simulator can play, by name.

Without a table here the server would have to know each of them.
"""

from __future__ import annotations

from lab.simulator.dialects.base import Dialect


def dialect_of(name: str) -> type[Dialect]:
    """The dialect of that name: sglang, vllm or llamacpp."""
    if name == "sglang":
        from lab.simulator.dialects.sglang import SGLang

        return SGLang
    if name == "llamacpp":
        from lab.simulator.dialects.llamacpp import LlamaCpp

        return LlamaCpp
    from lab.simulator.dialects.vllm import VLLM

    return VLLM
