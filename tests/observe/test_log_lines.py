"""Log lines of a window, and the events among them: every pattern fires, steady serving is silent."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.observe.log_lines import EVENTS, MOST_EVENTS, events, lines_between

ENGINE_LOGS = Path(__file__).parents[1] / "engines" / "fixtures"
SAMPLES = Path(__file__).parents[3] / "shared" / "samples"
VLLM = "(EngineCore pid=7879) INFO 11-30 21:28:37 "
DEEP_GEMM = "<GEMM_NT_F8F8BF16> N=2048, K=2048, num_groups=1 with all Ms."

LINES = {  # one line for every pattern; those of vLLM on CPU, SGLang on CPU and llama.cpp are our own captures
    "jit": (
        f"{VLLM}[jit_monitor.py:141] Triton kernel JIT compilation during inference: _topk_kernel. This causes a "
        "latency spike; consider extending warmup to cover this shape/config.",
        "[2026-11-30 20:57:35 TP0] Entering DeepGEMM JIT Pre-Compile session. It may take a long time",
        f"[2026-11-30 20:57:35 TP0] Try DeepGEMM JIT Compiling for {DEEP_GEMM}",
        "DeepGEMM warmup:  10%|█         | 3276/32768 [00:10<01:30, 327.5it/s]",
        "2026-11-30 10:14:52  [TileLang:tilelang.jit.kernel:INFO]: TileLang begins to compile kernel `main`",
        f"{VLLM}[kernel.py:88] Compiling CuTe-DSL kernel W4A16FusedMoeKernel",
    ),
    "compile": (
        f"{VLLM}[backends.py:1048] Dynamo bytecode transform time: 9.48 s",
        f"{VLLM}[backends.py:387] Compiling a graph for compile range (1, 16384) takes 20.50 s",
        f"{VLLM}[decorators.py:333] [backbone] Compiling model again due to a load failure from ~/.cache/vllm/model",
        f"{VLLM}[decorators.py:743] [backbone] saved AOT compiled function to ~/.cache/vllm/torch_compile_cache/model",
        f"{VLLM}[monitor.py:48] torch.compile took 48.00 s in total",
        f"{VLLM}[monitor.py:91] [backbone] Initial profiling/warmup run took 0.20 s",
        f"{VLLM}[gpu_worker.py:300] Compile and warming up model for size 8192",
        f"{VLLM}[cpu_model_runner.py:87] Warming up model for the compilation...",
        "W1130 20:57:35.000000 1 torch/_dynamo/convert_frame.py:906] [21/8] torch._dynamo hit "
        "config.recompile_limit (8)",
    ),
    "capture": (
        "[2026-11-30 20:57:35 TP0] Capture target decode CUDA graph begin. backend=full, num_tokens_per_req=1, bs=[1]",
        "Capturing batches (bs=4 avail_mem=18.72 GB):  33%|███▎      | 1/3 [00:00<00:01,  1.2it/s]",
        "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE): 100%|██████████| 51/51 [00:02<00:00, 21.18it/s]",
        f"{VLLM}[gpu_model_runner.py:6046] Graph capturing finished in 4 secs, took 0.31 GiB",
    ),
    "autotune": (
        "2026-11-30 06:57:26,008 - INFO - autotuner.py:256 - flashinfer.jit: [Autotuner]: Autotuning process starts",
        f"{VLLM}[kernel_warmup.py:70] Running FlashInfer autotune with 8192 tokens and token buckets",
        "Triton autotuning for function _chunk_state_fwd_kernel finished after 1.26s; best config selected: …",
        "Autotuning kernel attn_fwd with config BLOCK_M: 128, BLOCK_N: 128",
        "AUTOTUNE mm(8x2048, 2048x3072)",
    ),
    "load": (
        "[2026-11-30 20:58:10] Load weight begin. avail mem=18.30 GB",
        "[2026-11-30 20:58:10] Update engine weights online from disk begin. avail mem=18.30 GB",
        f"{VLLM}[cpu_model_runner.py:68] Starting to load model /models/glm4moe-tiny...",
        f"{VLLM}[default_loader.py:501] Loading weights took 0.37 seconds",
        f"{VLLM}[gpu_model_runner.py:4959] Model loading took 5.29 GiB memory and 5.4 seconds",
        f"{VLLM}[gpu_model_runner.py:2900] Reloading weights inplace...",
        "Loading safetensors checkpoint shards: 100% Completed | 1/1 [00:00<00:00,  4.84it/s]",
        "0.00.019.518 I srv    load_model: loading model '/models/SmolLM2-135M-Instruct.Q4_1.gguf'",
        "0.00.119.518 I load_tensors: loading model tensors, this can take a while... (load_mode = mmap)",
        "0.01.119.518 I cmn  common_init_: warming up the model with an empty run - please wait ...",
    ),
}
STEADY = (
    "[2026-11-30 20:58:54] Decode batch, #running-req: 16, #token: 1144, token usage: 0.03, cuda graph: True, gen "
    "throughput (token/s): 10.34, #queue-req: 0",
    "[2026-11-30 20:58:13] Prefill batch, #new-seq: 1, #new-token: 11, #cached-token: 0, cuda graph: False",
    "[2026-11-30 20:58:13] KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_tokens_gained: 64",
    '[2026-11-30 20:58:13] INFO:     127.0.0.1:33312 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
    f"{VLLM}[loggers.py:335] Engine 000: Avg prompt throughput: 129.6 tokens/s, Avg generation throughput: 117.1 "
    "tokens/s, Running: 0 reqs, Waiting: 0 reqs, CPU KV cache usage: 0.0%, Prefix cache hit rate: 0.0%",
    f"{VLLM}[cuda_graph.py:123] **CUDAGraph Stats:**",
    f"{VLLM}[shm_broadcast.py:871] No available shared memory broadcast block found in 60 seconds. This typically "
    "happens when some processes are hanging or doing some time-consuming work (e.g. compilation, weight loading)",
    f"{VLLM}[launcher.py:195] Route: /update_weights, Methods: POST",
    "0.03.736.213 I slot print_timing: id  1 | task 0 |    graphs reused =         46",
    "2026-11-30 21:06:35,733 - INFO - flashinfer.jit: Loading JIT ops: cascade",
)
CASES = [(kind, line) for kind, lines in LINES.items() for line in lines]


@pytest.mark.parametrize(("kind", "line"), CASES)
def test_fires(kind: str, line: str):
    assert events([line]) == [{"kind": kind, "text": line[:200]}]


def test_every_pattern_is_tried_by_a_line_of_its_own():
    firing = [[p.pattern for _, p in EVENTS if p.search(line)] for _, line in CASES]
    assert sorted(pattern for found in firing for pattern in found) == sorted(p.pattern for _, p in EVENTS)


@pytest.mark.parametrize("tag", ["Capture draft extend cuda graph end. Time elapsed: 1 s", "Capture cuda graph begin."])
def test_older_capture_lines(tag: str):
    assert events([tag])[0]["kind"] == "capture"


@pytest.mark.parametrize("line", STEADY)
def test_steady_serving_is_silent(line: str):
    assert events([line]) == []


@pytest.mark.parametrize("log", sorted(ENGINE_LOGS.glob("*_trimmed.log")), ids=lambda path: path.name)
def test_llamacpp_loads_before_it_listens_and_never_after(log: Path):
    before, _, after = log.read_text().partition("listening on")
    assert {event["kind"] for event in events(before.splitlines())} == {"load"}
    assert events(after.splitlines()) == []


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the captured logs of other engines are not on this machine")
@pytest.mark.parametrize(
    ("log", "ready", "kinds"),
    [
        ("sglang/server_c16.log", "fired up and ready", {"load"}),
        ("sglang/server_16_asked_4_ran.log", "fired up and ready", {"load"}),
        ("vllm/logs/moe_compile_second_start.log", "Application startup complete", {"compile", "load"}),
        ("vllm/logs/moe_observability_ep_tp1.log", "Application startup complete", {"load"}),
    ],
)
def test_other_engines_start_with_events_and_serve_without(log: str, ready: str, kinds: set[str]):
    before, found, after = (SAMPLES / log).read_text().partition(ready)
    assert found
    assert {event["kind"] for event in events(before.splitlines())} == kinds
    assert events(after.splitlines()) == []


def test_few_texts_without_colours_and_one_of_each_pattern():
    coloured = "\x1b[1;36m(EngineCore pid=1)\x1b[0;0m Compiling a graph for compile range (1, 8) takes 2.0 s"
    assert events([coloured, coloured])[0]["text"].startswith("(EngineCore pid=1) Compiling")
    assert len(events([coloured, coloured])) == 1
    assert len(events([line for _, line in CASES])) == MOST_EVENTS


def sampled(*rows: tuple[float, float]) -> pd.DataFrame:
    """A timeline of (t_s, log_bytes)."""
    return pd.DataFrame(rows, columns=["t_s", "log_bytes"], dtype="float64")


LOG = "early\nedge\nin one\nin two\nlate\n"  # begins of lines: 0, 6, 11, 18, 25; end 30


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (11, 25, ["in one", "in two"]),
        (8, 25, ["in one", "in two"]),  # a line begun before
        (11, 24, ["in one"]),  # a line not ended
        (11, 14, []),
        (0, 30, ["early", "edge", "in one", "in two", "late"]),
        (11, 11, []),
        (25, 11, []),  # the log began anew
    ],
)
def test_only_whole_lines_between_the_samples_in_the_window(tmp_path: Path, first: int, last: int, expected: list[str]):
    path = tmp_path / "server.log"
    path.write_text(LOG)
    timeline = sampled((0.9, 0), (1.1, first), (1.5, math.nan), (1.9, last), (2.1, 30))
    assert lines_between(path, timeline, 1.0, 2.0) == expected
    assert lines_between(LOG, timeline, 1.0, 2.0) == expected


def test_a_log_out_of_reach_has_no_lines():
    assert lines_between("x\n", sampled((1.0, math.nan), (2.0, math.nan)), 0, 3) == []
    assert lines_between("x\n", sampled((1.0, 2)), 0, 3) == []


def test_progress_bars_are_lines_and_broken_text_is_read(tmp_path: Path):
    path = tmp_path / "server.log"
    path.write_bytes(b"a\r 10%|\r 20%|\xe2\x96\r\nend\n")
    assert lines_between(path, sampled((0, 2), (1, path.stat().st_size)), 0, 1) == [" 10%|", " 20%|\ufffd", "end"]


@given(st.lists(st.text("ab é", min_size=1, max_size=6).filter(str.strip)), st.data())
def test_every_line_counts_in_one_of_two_adjoining_windows_or_crosses_their_border(
    lines: list[str], data: st.DataObject
):
    text = "".join(f"{line}\n" for line in lines)
    size = len(text.encode())
    border = data.draw(st.integers(0, size))
    timeline = sampled((0, 0), (1, border), (2, size))
    both = lines_between(text, timeline, 0, 1) + lines_between(text, timeline, 1, 2)
    crossing = [
        line
        for i, line in enumerate(lines)
        if (begin := len("".join(f"{one}\n" for one in lines[:i]).encode())) < border < begin + len(line.encode()) + 1
    ]
    assert sorted(both + crossing) == sorted(lines)
