"""What vLLM's workers say they do, line by line of the log: kernels, backends, memory, collectives.

Without it a record repeats the front end's configuration: kernels that were replaced, experts that were never spread
and graphs that were never captured all look as asked.

A line that is not there is None, "not said": many are printed only on GPUs, and by some releases only. Forms from the
source of vLLM 0.32.0; those of a CPU were seen in its logs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from lab.engines._vllm_log import Line
from lab.engines.server import Fact

GIB = 2**30
_MOE = re.compile(r"Using '?([\w ]+?)'? (?:(Unquantized|\w*[Ff]p\d\w*|MXFP8|Int8|W\w+)\s)?(?:Int8 )?MoE backend\b")
_KERNEL = re.compile(r"^(?:Selected (\S+) for (\S+)|Using (\S+) for (NVFP4) GEMM)")
_WEIGHTS = re.compile(r"Model loading took ([\d.]+) (?:GiB|GB)")
_CHECKPOINT = re.compile(r"Checkpoint size: ([\d.]+) GiB")
_KV_ROOM = re.compile(r"Available KV cache memory: ([\d.]+) GiB|Explicitly set \(([\d.]+)/[\d.]+\) GiB for KV cache")
_GRAPHS = re.compile(r"Graph capturing finished in [\d.]+ secs, took (-?[\d.]+) GiB")
_NO_GRAPHS = re.compile(r"Skipping (?:encoder and decoder )?CUDA graph capture")
_LOWERED = re.compile(r"setting cudagraph_mode=(\w+)|Overriding to (\w+)\.")
_COMPILED = re.compile(
    r"saved AOT compiled function|Warming up model for the compilation|\(compilation: [\d.]+ s\)|torch\.compile took|"
    r"Directly load the compiled graph|Compiling a graph for"
)
_STARTED = re.compile(r"^init engine \(profile")
_EXPERTS = re.compile(
    r"\[EP Rank \d+/(\d+)\] Expert parallelism is enabled\..*Local/global number of experts: (\d+/\d+)"
)
_ALL_TO_ALL = re.compile(r"Using (\w+) all2all manager")
_REDUCE = re.compile(r"Using \[(.*?)\] all-reduce backends \(in dispatch order\) for group '?tp")
_NCCL = re.compile(r"vLLM is using nccl==(\S+)")
_TUNED = re.compile(r"Using configuration from (\S+) for MoE layer")
_UNTUNED = re.compile(r"Using default MoE config\.")
_AUTOTUNE = re.compile(r"^(Running|Skipping) FlashInfer autotune")
_DRAFT = re.compile(r"Loading drafter model|Detected (?:MTP|EAGLE) model")
# Lines that say: something asked for was replaced, or what runs is not what the arm is called.
_CAUTIONS = re.compile(
    r"^Cannot use .* backend|[Ff]alling back|setting cudagraph_mode=|Overriding to|is overridden by|"
    r"forcing chunked prefill|Async scheduling not supported|Unknown vLLM environment variable|"
    r"Using KV cache scaling factor 1\.0|slow and unoptimized emulation|is not set\. This may cause garbage"
)


def facts(log: list[Line], has_log: bool) -> dict[str, Fact]:
    """Everything that a log of vLLM may say beyond its endpoints; all None without a log."""
    workers = [line for line in log if line.process != "APIServer"]
    silent = "no such line in the log" if has_log else "the log is out of reach"

    def first(pattern: re.Pattern[str], lines: list[Line] = workers) -> tuple[re.Match[str], str] | None:
        found = ((pattern.search(line.message), line.message) for line in lines)
        return next(((match, text) for match, text in found if match), None)

    def value(pattern: re.Pattern[str]) -> Fact:
        found = first(pattern)
        return Fact(next(filter(None, found[0].groups()), None), found[1]) if found else Fact(None, silent)

    def gib(pattern: re.Pattern[str]) -> Fact:
        """Bytes, added over the workers that said them."""
        said = {line.process: (match, line) for line in workers if (match := pattern.search(line.message))}
        if not said:
            return Fact(None, silent)
        sizes = [float(next(filter(None, match.groups()))) for match, _ in said.values()]
        text = next(iter(said.values()))[1].message
        return Fact(round(sum(sizes) * GIB), text if len(sizes) == 1 else f"{len(sizes)} workers: {text}")

    def both(yes: re.Pattern[str], no: re.Pattern[str]) -> Fact:
        """True or false by the line that stands there, the positive one first."""
        if found := first(yes):
            return Fact(True, found[1])
        return Fact(False, found[1]) if (found := first(no)) else Fact(None, silent)

    reduces = value(_REDUCE)
    return {
        "moe_backend": value(_MOE),
        "gemm_kernels": _several(_kernels(workers), silent),
        "weight_bytes": gib(_WEIGHTS),
        "checkpoint_bytes": gib(_CHECKPOINT),
        "kv_bytes": gib(_KV_ROOM),
        "graph_bytes": gib(_GRAPHS),
        "graphs_captured": both(_GRAPHS, _NO_GRAPHS),
        "graph_mode_lowered": value(_LOWERED),
        "compiled": both(_COMPILED, _STARTED),
        "expert_parallel": both(_EXPERTS, _STARTED),
        "all2all": value(_ALL_TO_ALL),
        "all_reduce": Fact(re.findall(r"'(\w+)'", reduces.value) if reduces.value else None, reduces.source),
        "nccl_version": value(_NCCL),
        "moe_tuned": both(_TUNED, _UNTUNED),
        "flashinfer_autotune": _autotune(first(_AUTOTUNE), silent),
        "draft_loaded": both(_DRAFT, _STARTED),
    }


def cautions(log: list[Line]) -> list[str]:
    """Lines that say that something was replaced, once each."""
    return list(dict.fromkeys(line.message for line in log if _CAUTIONS.search(line.message)))


def nccl_variables(text: str | None) -> dict[str, str] | None:
    """The NCCL variables among `NAME=VALUE` lines, as the server process got them; None: it does not show its own."""
    if text is None:
        return None
    pairs = (line.partition("=") for line in text.splitlines() if line.startswith("NCCL_"))
    return {name: value for name, _, value in pairs}


def _kernels(log: Iterable[Line]) -> dict[str, str]:
    """What is computed → by which kernel, of every line that names one."""
    found = (_KERNEL.search(line.message) for line in log)
    return {one[2] or one[4]: one[1] or one[3] for one in found if one}


def _several(found: dict[str, Any], silent: str) -> Fact:
    return Fact(found, "Selected … for … lines") if found else Fact(None, silent)


def _autotune(found: tuple[re.Match[str], str] | None, silent: str) -> Fact:
    return Fact(found[0][1] == "Running", found[1]) if found else Fact(None, silent)
