"""What an arm's flags promise about its server, under the names by which the server will confirm them.

Without it the roofline could say nothing before the first launch, and a campaign that spreads over more devices than
its file names would be noticed when the night is over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LLAMACPP, SGLANG, VLLM = "llamacpp", "sglang", "vllm"
# Flags that say a fact of `describe()`, the first that is set counts; underscores, as in an arm.
_NAMES: dict[str, dict[str, tuple[str, ...]]] = {
    LLAMACPP: {"cap": ("n_parallel",), "kv_dtype_k": ("cache_type_k",), "kv_dtype_v": ("cache_type_v",)},
    SGLANG: {
        "tp_size": ("tp_size", "tp", "tensor_parallel_size"),
        "ranks": ("dp_size", "dp", "data_parallel_size"),
        "ep_size": ("ep_size", "ep", "expert_parallel_size"),
        "pp_size": ("pp_size", "pp", "pipeline_parallel_size"),
        "cap": ("max_running_requests",),
        "kv_dtype_asked": ("kv_cache_dtype",),
    },
    VLLM: {
        "tensor_parallel_size": ("tensor_parallel_size",),
        "ranks": ("data_parallel_size",),
        "pp_size": ("pipeline_parallel_size",),
        "cap": ("max_num_seqs",),
        "kv_dtype_asked": ("kv_cache_dtype",),
    },
}
_USUAL: dict[str, dict[str, Any]] = {
    LLAMACPP: {"kv_dtype_k": "f16", "kv_dtype_v": "f16"},
    SGLANG: {"tp_size": 1},
    VLLM: {"tensor_parallel_size": 1},
}
"""What these engines do when told nothing, as far as a bound needs it."""


def facts_of_flags(engine: str, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Facts that follow from the flags of an arm; those that a server would only resolve are no key.

    gpus: all devices, where the engine spreads at all. SGLang's attention data parallelism keeps to the tensor group;
    vLLM's limit of running requests counts for each data-parallel rank.
    """
    names = _NAMES.get(engine, {})
    asked = {fact: [flags[name] for name in spelt if flags.get(name) is not None] for fact, spelt in names.items()}
    told = {fact: _read(fact, values[0]) for fact, values in asked.items() if values}
    facts = {**_USUAL.get(engine, {}), **told}
    degrees = [facts.get(name, 1) for name in (_tensor(engine), "ranks", "pp_size")]
    if engine not in (SGLANG, VLLM) or None in degrees:
        return facts
    tensor, ranks, stages = degrees
    within = engine == SGLANG and flags.get("enable_dp_attention")
    facts["gpus"] = tensor * stages * (1 if within else ranks)
    if engine == VLLM and facts.get("cap") is not None:
        facts["cap"] *= ranks
    return facts


def _read(fact: str, value: Any) -> Any:
    """A type as text, everything else as a whole number from 1; None for what is neither: the engine will say so."""
    if fact.startswith("kv_dtype"):
        return str(value)
    text = str(value)
    return int(text) if not isinstance(value, bool) and text.isdecimal() and int(text) else None


def _tensor(engine: str) -> str:
    return "tp_size" if engine == SGLANG else "tensor_parallel_size"
