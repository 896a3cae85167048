"""What workers say in their logs and states is told with its line, and what they do not say is not made up."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from lab import engines
from lab.engines import _sglang_log, _sglang_worker, _vllm_log, _vllm_worker
from lab.engines.server import Fact
from tests.engines import web
from tests.engines.web import Web

GIB = 2**30
RESET = "Max running requests is reset to 48 for speculative decoding. You can override this"


def vllm(*messages: str, process: str = "Worker_TP0") -> dict[str, Fact]:
    log = "".join(f"({process} pid=7) INFO 11-30 21:30:22 [x.py:1] {message}\n" for message in messages)
    return _vllm_worker.facts(_vllm_log.lines(log), True)


def sglang(*messages: str, **state: Any) -> dict[str, Fact]:
    log = "".join(f"[2026-11-30 21:02:52 TP0] {message}\n" for message in messages)
    return _sglang_worker.facts(_sglang_log.lines(log), state, "/server_info", True)


@pytest.mark.parametrize(
    ("message", "key", "value"),
    [
        (
            "Using 'FLASHINFER_CUTLASS' NvFp4 MoE backend out of potential backends: ['A']",
            "moe_backend",
            "FLASHINFER_CUTLASS",
        ),
        ("Using CPU Unquantized MoE backend out of potential backends: ['CPU'].", "moe_backend", "CPU"),
        ("Selected CutlassFp8 for ModelOptFp8", "gemm_kernels", {"ModelOptFp8": "CutlassFp8"}),
        ("Using FlashInferCutlass for NVFP4 GEMM", "gemm_kernels", {"NVFP4": "FlashInferCutlass"}),
        ("Model loading took 1.5 GiB memory and 3.0 seconds", "weight_bytes", 1.5 * GIB),
        ("Available KV cache memory: 2.0 GiB", "kv_bytes", 2 * GIB),
        ("Explicitly set (0.25/20.21) GiB for KV cache on node 0.", "kv_bytes", GIB / 4),
        ("Graph capturing finished in 7 secs, took 0.50 GiB", "graph_bytes", GIB / 2),
        ("Graph capturing finished in 7 secs, took 0.50 GiB", "graphs_captured", True),
        ("Skipping CUDA graph capture. To turn on", "graphs_captured", False),
        (
            "FULL is not supported with X backend; setting cudagraph_mode=PIECEWISE because",
            "graph_mode_lowered",
            "PIECEWISE",
        ),
        ("saved AOT compiled function to /cache", "compiled", True),
        ("init engine (profile, create kv cache, warmup model) took 0.19 s", "compiled", False),
        ("[EP Rank 0/2] Expert parallelism is enabled. Local/global number of experts: 4/8.", "expert_parallel", True),
        ("rank 0 in world size 1 is assigned as DP rank 0, EP rank 0", "expert_parallel", None),
        (
            "Using ['CUSTOM', 'PYNCCL'] all-reduce backends (in dispatch order) for group 'tp:0'",
            "all_reduce",
            ["CUSTOM", "PYNCCL"],
        ),
        ("vLLM is using nccl==2.27.5", "nccl_version", "2.27.5"),
        ("Using configuration from /mine/E=8.json for MoE layer.", "moe_tuned", True),
        ("Using default MoE config. Performance might be sub-optimal!", "moe_tuned", False),
        ("Skipping FlashInfer autotune because it is disabled.", "flashinfer_autotune", False),
        ("Running FlashInfer autotune with 8 tokens", "flashinfer_autotune", True),
        ("Loading drafter model...", "draft_loaded", True),
    ],
)
def test_a_line_of_vllms_workers_is_a_fact(message: str, key: str, value: Any) -> None:
    assert vllm(message)[key].value == value
    quiet = vllm("Starting to load model")
    assert quiet[key].value is None
    assert "no such line" in quiet[key].source


def test_the_front_end_proves_nothing_of_a_worker() -> None:
    assert vllm("Using CPU Unquantized MoE backend out of", process="APIServer")["moe_backend"].value is None


def test_memory_of_several_workers_is_added_and_repeats_are_not() -> None:
    line = "({} pid=7) INFO 11-30 21:30:22 [x.py:1] Model loading took 1.5 GiB memory and 3.0 seconds\n"
    log = _vllm_log.lines(line.format("Worker_TP0") * 2 + line.format("Worker_TP1"))
    found = _vllm_worker.facts(log, True)["weight_bytes"]
    assert (found.value, found.source[:10]) == (3 * GIB, "2 workers:")


def test_without_a_log_nothing_is_said() -> None:
    found = _vllm_worker.facts([], False)
    assert {fact.value for fact in found.values()} == {None}
    assert found["moe_backend"].source == "the log is out of reach"


def test_lines_that_void_an_arm_are_kept_and_ordinary_ones_are_not() -> None:
    log = _vllm_log.lines(
        "(Worker pid=7) INFO 11-30 21:30:22 [x.py:1] Cannot use AttentionBackendEnum.FLASHINFER backend on CPU.\n"
        "(Worker pid=7) INFO 11-30 21:30:22 [x.py:1] Using CPU_MLA backend.\n" * 2
    )
    assert _vllm_worker.cautions(log) == ["Cannot use AttentionBackendEnum.FLASHINFER backend on CPU."]


def described(dtype: str, cache: str) -> dict[str, Fact]:
    info = copy.deepcopy(web.content("vllm_server_info_ngram.json"))
    info["vllm_config"]["model_config"]["dtype"] = dtype
    info["vllm_config"]["cache_config"]["cache_dtype"] = cache
    with Web(web.vllm(**{"/server_info?config_format=json": info})) as server:
        return engines.readers()["vllm"].attach(server.url, "m").describe()


def test_a_cache_in_half_the_bits_of_the_arithmetic_is_noted() -> None:
    (text,) = described("torch.float32", "bfloat16")["cautions"].value
    assert text.startswith("kv_cache_dtype bfloat16 under dtype float32")
    assert not described("torch.bfloat16", "bfloat16")["cautions"].value
    assert not described("torch.float32", "auto")["cautions"].value


def test_nccl_variables_are_those_that_arrived() -> None:
    assert _vllm_worker.nccl_variables("A=1\nNCCL_PROTO=LL\nNCCL_ALGO=Ring\n") == {
        "NCCL_PROTO": "LL",
        "NCCL_ALGO": "Ring",
    }
    assert _vllm_worker.nccl_variables("A=1\n") == {}
    assert _vllm_worker.nccl_variables(None) is None


@pytest.mark.parametrize(
    ("message", "key", "value"),
    [
        ("Using MoE kernel config from /mine/E=8,N=128.json.", "moe_config", "/mine/E=8,N=128.json"),
        ("Using MoE kernel config from /mine/E=8,N=128.json.", "moe_tuned", True),
        ("Using default MoE kernel config. Performance might be sub-optimal!", "moe_tuned", False),
        ("Use flashinfer_cutlass as MoE runner backend on SM110/SM120 for NVFP4", "moe_backend", "flashinfer_cutlass"),
        ("NCCL version 2.27.5+cuda13.0", "nccl_version", "2.27.5+cuda13.0"),
        ("NCCL INFO NCCL_PROTO set by environment to LL", "nccl_variables", {"NCCL_PROTO": "LL"}),
        (
            "Capture target decode CUDA graph begin. backend=full, num_tokens_per_req=1, bs=[1, 2, 4], avail mem=9 GB",
            "graph_sizes",
            "[1, 2, 4]",
        ),
        (
            "Capture target decode CUDA graph end. elapsed=1.0 s, mem usage=0.5 GB, avail mem=9 GB.",
            "graphs_captured",
            ["target decode"],
        ),
        (
            "Capture draft extend cuda graph end. Time elapsed: 1 s. mem usage=1 GB. avail mem=9 GB.",
            "graphs_captured",
            ["draft extend"],
        ),
        (
            "Load weight end. elapsed=1 s, type=X, quant=fp8, avail mem=9 GB, mem usage=1.5 GB.",
            "weight_quantization",
            "fp8",
        ),
        (RESET, "cautions", [RESET]),
    ],
)
def test_a_line_of_sglangs_schedulers_is_a_fact(message: str, key: str, value: Any) -> None:
    assert sglang(message)[key].value == value
    assert not sglang("Init torch distributed begin.")[key].value


def test_a_capture_that_only_began_is_none() -> None:
    assert sglang("Capture target decode CUDA graph begin. backend=full, bs=[1]")["graphs_captured"].value is None


def test_the_draft_models_weights_are_those_of_the_second_load() -> None:
    loads = [f"Load weight end. elapsed=1 s, type=X, avail mem=9 GB, mem usage={size} GB." for size in ("3.0", "0.5")]
    assert sglang(*loads)["draft_weight_bytes"].value == GIB / 2
    assert sglang(loads[0])["draft_weight_bytes"].value is None


def test_memory_is_the_states_own_and_graphs_are_added() -> None:
    used = {"weight": 2.0, "kvcache": 1.0, "graph": {"prefill": 0.25, "decode": 0.5}}
    found = sglang(memory_usage=used)
    assert [found[key].value for key in ("weight_bytes", "kv_bytes", "graph_bytes")] == [2 * GIB, GIB, 0.75 * GIB]
    assert sglang()["weight_bytes"].value is None


def test_auto_is_no_answer() -> None:
    assert sglang(moe_runner_backend="auto", fp8_gemm_runner_backend="auto")["moe_backend"].value is None
    assert sglang(moe_runner_backend="triton")["moe_backend"].value == "triton"
    found = sglang(fp8_gemm_runner_backend="cutlass", fp4_gemm_runner_backend="auto")
    assert found["gemm_kernels"].value == {"fp8": "cutlass"}


@pytest.mark.parametrize(
    ("state", "paths"),
    [
        ({"disable_custom_all_reduce": False}, ["custom", "nccl"]),
        ({"disable_custom_all_reduce": True}, ["nccl"]),
        ({"disable_custom_all_reduce": True, "enable_mscclpp": True}, ["mscclpp", "nccl"]),
        (
            {"disable_custom_all_reduce": True, "flashinfer_allreduce_fusion_backend": "auto"},
            ["flashinfer fusion", "nccl"],
        ),
    ],
)
def test_paths_before_nccl_are_named(state: dict[str, Any], paths: list[str]) -> None:
    assert sglang(tp_size=2, **state)["all_reduce"].value == paths
    assert sglang(tp_size=1, **state)["all_reduce"].value is None
