"""What the server wrote into its log during the window, and which of it must not happen there.

Without it a kernel that is compiled for the first time, a graph capture or a weight load in the middle of a window
counts as the server's ordinary speed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

MOST_EVENTS = 5
MOST_CHARACTERS = 200

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_BREAK = re.compile(rb"[\r\n]+")  # progress bars rewrite their line with a bare carriage return

EVENTS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        # Triton, TileLang and CuTe-DSL kernels after warm-up, as vLLM's jit_monitor reports them (sources of 0.2x-0.32)
        ("jit", r"JIT compilation during inference: "),
        # SGLang, layers/deep_gemm_wrapper/compile_utils.py; the bar is vLLM's as well (deep_gemm_warmup.py)
        ("jit", r"Entering DeepGEMM JIT "),
        ("jit", r"Try DeepGEMM JIT Compiling for "),
        ("jit", r"\bDeepGEMM warmup: "),
        # the libraries' own words: tilelang/jit/kernel.py, FlashInfer's and vLLM's CuTe-DSL kernels
        ("jit", r"TileLang begins to compile kernel "),
        ("jit", r"Compiling CuTe-DSL kernel"),
        # vLLM: compilation/{backends,decorators,monitor}.py, v1/worker/*_worker.py, *_model_runner.py
        ("compile", r"Dynamo bytecode transform time: "),
        ("compile", r"Compiling a graph for "),
        ("compile", r"Compiling model again due to a load failure"),
        ("compile", r"saved AOT compiled function to "),
        ("compile", r"torch\.compile (?:takes|took|and initial profiling) "),
        ("compile", r"Initial profiling/warmup run took "),
        ("compile", r"Compile and warming up model for size "),
        ("compile", r"Warming up model for the compilation"),
        # PyTorch: it recompiled that often that it gives up
        ("compile", r"torch\._dynamo hit config\.(?:recompile|cache_size|accumulated_\w+)_limit"),
        # SGLang up to 0.5.12 `Capture cuda graph begin.`, later `Capture target decode CUDA graph begin.`; its bar
        ("capture", r"\bCapture (?:[a-z]+ )*(?:cuda|CUDA|cpu|CPU|npu|NPU) graph (?:begin|end)\b"),
        ("capture", r"\bCapturing batches \("),
        # vLLM: bar and summary of the model runner
        ("capture", r"\bCapturing (?:CUDA graphs|cudagraphs)\b"),
        ("capture", r"\bGraph capturing finished in "),
        # FlashInfer (flashinfer/autotuner.py), vLLM's call of it, Triton with TRITON_PRINT_AUTOTUNING, PyTorch Inductor
        ("autotune", r"\[Auto[Tt]uner\]: (?:Autotuning process|Tuning )"),
        ("autotune", r"Running FlashInfer autotune "),
        ("autotune", r"Triton autotuning for function "),
        ("autotune", r"Autotuning kernel \w+ with config"),
        ("autotune", r"\bAUTOTUNE (?:benchmarking takes |\w+\()"),
        # SGLang: model_runner, weight updater
        ("load", r"\bLoad weight (?:begin|end)\b"),
        ("load", r"Update engine weights online from "),
        # vLLM: model loaders, reload in place; the bar is SGLang's as well
        ("load", r"Starting to load model "),
        ("load", r"\bLoading weights took "),
        ("load", r"\bModel loading took "),
        ("load", r"Reloading weights inplace"),
        ("load", r"Loading (?:safetensors|pt) checkpoint shards: "),
        # llama.cpp: a model loaded on demand, and its empty run
        ("load", r"\bload_model: loading model "),
        ("load", r"\bload_tensors: loading model tensors"),
        ("load", r"warming up the model with an empty run"),
    )
)
"""Kind and pattern. Not here, since they also appear without work being done: FlashInfer's `Loading JIT ops` (from
its cache too), lines that name the tuned MoE file in use, llama.cpp's re-instantiated CUDA graphs (debug lines)."""


def lines_between(log: Path | str, timeline: pd.DataFrame, opened_s: float, closed_s: float) -> list[str]:
    """The lines written for certain inside the window: begun after the first sample in it, ended before the last.

    `log`: the file, or its text (UTF-8); `timeline`: with `t_s` and `log_bytes`. What was written within one sample
    of an edge is left out, as is everything when the log was out of reach or fewer than two samples lie inside. A line
    counts when it was written: a server that holds its output back in a buffer is late. Raises OSError when the file
    cannot be read.
    """
    sizes = timeline.loc[timeline["t_s"].between(opened_s, closed_s), "log_bytes"].dropna()
    if len(sizes) < 2:
        return []
    begin, end = int(sizes.iloc[0]), int(sizes.iloc[-1])
    if begin >= end:
        return []
    margin = 1 if begin else 0  # the byte before tells whether a line begins here
    piece = _piece(log, begin - margin, end)
    breaks = list(_BREAK.finditer(piece))
    if not breaks:
        return []
    start = breaks[0].end() if margin else 0
    whole = piece[start : breaks[-1].start()]
    return [line.decode(errors="replace") for line in _BREAK.split(whole) if line.strip()]


def events(lines: Iterable[str]) -> list[dict[str, str]]:
    """What must not happen inside a window, in the order of the log: `{"kind": …, "text": …}`.

    kind: jit, compile, capture, autotune or load. The first line of each pattern, at most MOST_EVENTS, without ANSI
    codes, at most MOST_CHARACTERS long.
    """
    found: dict[re.Pattern[str], dict[str, str]] = {}
    for line in lines:
        text = _ANSI.sub("", line).strip()
        for kind, pattern in EVENTS:
            if pattern not in found and pattern.search(text):
                found[pattern] = {"kind": kind, "text": text[:MOST_CHARACTERS]}
                break
    return list(found.values())[:MOST_EVENTS]


def _piece(log: Path | str, begin: int, end: int) -> bytes:
    if isinstance(log, str):
        return log.encode()[begin:end]
    with log.open("rb") as file:
        file.seek(begin)
        return file.read(end - begin)
