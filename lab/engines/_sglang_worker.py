"""What SGLang's schedulers say they do: memory, captured graphs, kernels, collectives.

Without it a record repeats the arguments, of which many stay "auto" for ever, and the memory that a draft model takes
is nobody's.

Lines are read by their keys (`key=value`), since their order differs from release to release; a value that no line has
is None. Forms of a GPU are from the source of SGLang 0.5.23, those of a CPU were seen in its logs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lab.engines._sglang_log import Line
from lab.engines.server import Fact

GIB = 2**30
_PAIR = re.compile(r"([\w ]*?\w)=(\[[^\]]*\]|\{[^}]*\}|[^,\s]+)")
_WEIGHTS = re.compile(r"^Load weight end\.")
_CAPTURE_BEGIN = re.compile(r"^Capture (?:(?P<model>target|draft) )?(?P<phase>\w+ )?(?:cuda|CUDA) graph begin\.")
_CAPTURE_END = re.compile(r"^Capture (?:(?P<model>target|draft) )?(?P<phase>\w+ )?(?:cuda|CUDA) graph end\.")
_MOE_CONFIG = re.compile(r"Using MoE kernel config from ([^\s;]+?)\.?(?: |$)")
_NO_MOE_CONFIG = re.compile(r"Using default MoE kernel config")
_MOE_RUNNER = re.compile(r"(?:Use|Using) (\w+) as MoE runner backend")
_NCCL = re.compile(r"(?:sglang is using nccl==|NCCL version )(\S+)")
_NCCL_READ = re.compile(r"NCCL_(\w+) set (?:by environment )?to (\S+)")
_CAUTIONS = re.compile(
    r"is reset to \d+ for speculative decoding|was reduced from the requested|is capped to \d+ by|"
    r"no scaling factors provided|might lead to an accuracy drop|is disabled because|NCCL_ALGO is set to|"
    r"expert parallel size is adjusted|Auto-enabling FlashInfer AllReduce|fallback to \w+ backend|[Ff]all(?:ing)? back|"
    r"Performance might be sub-optimal|KV cache pool is full"
)
_REDUCE_PATHS = (
    ("enable_mscclpp", True, "mscclpp"),
    ("enable_symm_mem", True, "symmetric memory"),
    ("enable_torch_symm_mem", True, "torch symmetric memory"),
    ("disable_custom_all_reduce", False, "custom"),
)


def pairs(message: str) -> dict[str, str]:
    """Every `key=value` of a line; values without a unit, lists and groups as they are written."""
    return {key.strip(): value.rstrip(".") for key, value in _PAIR.findall(message)}


def facts(log: list[Line], state: Mapping[str, Any], path: str, has_log: bool) -> dict[str, Fact]:
    """What the log and a rank's own state say of memory and kernels; `path`: where the state was asked."""
    silent = "no such line in the log" if has_log else "the log is out of reach"

    def value(pattern: re.Pattern[str]) -> Fact:
        found = next(((one, line.message) for line in log if (one := pattern.search(line.message))), None)
        return Fact(found[0][1], found[1]) if found else Fact(None, silent)

    tuned, untuned = value(_MOE_CONFIG), any(_NO_MOE_CONFIG.search(line.message) for line in log)
    runner, read = value(_MOE_RUNNER), dict(one for line in log for one in _NCCL_READ.findall(line.message))
    return {
        **_memory(log, state, path, silent),
        **_captures(log, silent),
        "moe_backend": runner if runner.value else _resolved(state, path, "moe_runner_backend"),
        "moe_config": tuned,
        "moe_tuned": Fact(True if tuned.value else False if untuned else None, tuned.source),
        "gemm_kernels": _gemm(state, path),
        "expert_parallel": Fact(_above_one(state.get("ep_size")), f"{path} ep_size"),
        "all2all": _resolved(state, path, "moe_a2a_backend"),
        "all_reduce": _all_reduce(state, path),
        "nccl_version": value(_NCCL),
        "nccl_variables": Fact(
            {f"NCCL_{name}": text for name, text in read.items()} or None,
            "lines of NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=INIT,ENV,TUNING",
        ),
        "cautions": Fact(
            list(dict.fromkeys(line.message for line in log if _CAUTIONS.search(line.message))) if has_log else None,
            "lines of the log" if has_log else silent,
        ),
    }


def _memory(log: list[Line], state: Mapping[str, Any], path: str, silent: str) -> dict[str, Fact]:
    """Bytes of weights, cache and graphs of the target, in one worker, and of the draft model's weights."""
    used = state.get("memory_usage") or {}
    loads = [line.message for line in log if _WEIGHTS.match(line.message)]
    sizes = [size for message in loads if (size := _gib(pairs(message).get("mem usage"))) is not None]
    quantised = pairs(loads[0]) if loads else {}
    graphs = [size for size in (used.get("graph") or {}).values() if isinstance(size, float | int)]
    return {
        "weight_bytes": _bytes(used.get("weight"), f"{path} memory_usage.weight: the target's, in one worker"),
        "kv_bytes": _bytes(used.get("kvcache"), f"{path} memory_usage.kvcache: the target's, in one worker"),
        "graph_bytes": _bytes(sum(graphs) if graphs else None, f"{path} memory_usage.graph, all phases"),
        "draft_weight_bytes": Fact(
            round(sizes[1] * GIB) if len(sizes) > 1 else None, loads[1] if len(loads) > 1 else silent
        ),
        "weight_quantization": Fact(
            quantised.get("quant") or quantised.get("quant_algo"), loads[0] if loads else silent
        ),
    }


def _captures(log: list[Line], silent: str) -> dict[str, Fact]:
    """Which graphs were captured, of which batch sizes: begin and end, so that a capture that failed is none."""
    ended = [
        (found["model"] or "target", (found["phase"] or "decode").strip(), line.message)
        for line in log
        if (found := _CAPTURE_END.match(line.message))
    ]
    sizes = [
        pairs(line.message).get("bs")
        for line in log
        if (found := _CAPTURE_BEGIN.match(line.message)) and (found["model"] or "target") == "target"
    ]
    names = list(dict.fromkeys(f"{model} {phase}" for model, phase, _ in ended))
    return {
        "graphs_captured": Fact(names or None, ended[0][2] if ended else silent),
        "graph_sizes": Fact(next(filter(None, sizes), None), "bs of the target's capture" if sizes else silent),
    }


def _resolved(state: Mapping[str, Any], path: str, key: str) -> Fact:
    """An argument that names a backend; `auto` is no answer, whatever the server then takes."""
    said = state.get(key)
    source = f"{path} {key}"
    return (
        Fact(None, f"{source} stays auto: only a log line or a profile tells") if said == "auto" else Fact(said, source)
    )


def _gemm(state: Mapping[str, Any], path: str) -> Fact:
    names = ("fp4_gemm_runner_backend", "fp8_gemm_runner_backend", "bf16_gemm_backend")
    chosen = {name.split("_")[0]: state[name] for name in names if state.get(name) not in (None, "auto")}
    return Fact(chosen or None, f"{path} {', '.join(names)}: auto is resolved without a word")


def _all_reduce(state: Mapping[str, Any], path: str) -> Fact:
    """Paths that stand before NCCL in one worker's all-reduce; they take what they can before NCCL sees it."""
    if (state.get("tp_size") or 1) == 1 or "disable_custom_all_reduce" not in state:
        return Fact(None, f"{path} tp_size 1: nothing to reduce")
    found = [name for key, wanted, name in _REDUCE_PATHS if state.get(key) is wanted]
    if state.get("flashinfer_allreduce_fusion_backend") and not state.get(
        "enforce_disable_flashinfer_allreduce_fusion"
    ):
        found.append("flashinfer fusion")
    return Fact([*found, "nccl"], f"{path}: paths switched on, in front of NCCL")


def _gib(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None


def _bytes(gib: float | None, source: str) -> Fact:
    return Fact(None if gib is None else round(gib * GIB), source)


def _above_one(value: int | None) -> bool | None:
    return None if value is None else value > 1
