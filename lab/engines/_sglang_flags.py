"""SGLang's flags and variables as the lab treats them: pinned, refused, renamed, and where their effect shows.

Without it a flag of an older release would be a spelling mistake, and one whose name moved would be taken for another:
the parser accepts abbreviations. Names of 0.4.6 to 0.5.23; which of them a build has is asked of the build itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.engines._options import Renamed

NEEDED: Mapping[str, str] = {"SGLANG_EXPOSE_OWN_ENV_VARS": "1", "DO_NOT_TRACK": "1"}  # the first shows faked runs
PINNED: Mapping[str, Any] = {"enable_metrics": True}
_WHERE = "the lab's servers listen on 127.0.0.1 only, at a port that it picks"
_KEY = "the lab's servers listen on 127.0.0.1 only and need no key"
REFUSED: Mapping[str, str] = {
    "model_path": "name the model in 'checkpoint'",
    "served_model_name": "the lab names the model",
    **dict.fromkeys(("host", "port"), _WHERE),
    **dict.fromkeys(("api_key", "admin_api_key"), _KEY),
    "config": "a second file would hide what the arm changes; write its flags into the arm",
    "log_level": "the lab reads the log at its usual level",
    "enable_metrics": "the lab reads /metrics",
}
REFUSED_VARIABLES: Mapping[str, str] = {
    "SGLANG_LOGGING_CONFIG_PATH": "the lab reads the log in its usual form",
    "SGLANG_EXPOSE_OWN_ENV_VARS": "the lab reads the server's variables",
}
RENAMED: tuple[Renamed, ...] = (
    Renamed("enable_ep_moe", "ep_size", "write ep_size: N, the number of ranks"),
    Renamed("enable_deepep_moe", "moe_a2a_backend", "write moe_a2a_backend: deepep"),
    Renamed("enable_flashinfer_moe", "moe_runner_backend", "write moe_runner_backend: flashinfer_cutlass"),
    Renamed("enable_flashinfer_cutlass_moe", "moe_runner_backend", "write moe_runner_backend: flashinfer_cutlass"),
    Renamed("enable_flashinfer_trtllm_moe", "moe_runner_backend", "write moe_runner_backend: flashinfer_trtllm"),
    Renamed("cuda_graph_max_bs", "cuda_graph_max_bs_decode"),
    Renamed("cuda_graph_bs", "cuda_graph_bs_decode"),
    Renamed("disable_cuda_graph", "cuda_graph_backend_decode", "write cuda_graph_backend_decode: disabled"),
    Renamed("enable_flashinfer_allreduce_fusion", "flashinfer_allreduce_fusion_backend"),
    Renamed("enable_dp_attention", "attn_dp_size", "write attn_dp_size: N"),
    Renamed("enable_flashinfer_mla", "attention_backend", "write attention_backend: flashinfer"),
    Renamed("disable_flashinfer", "attention_backend", "write attention_backend: triton"),
)
SHOWN_BY: Mapping[str, tuple[str, ...]] = {
    "max_running_requests": ("cap_asked", "cap"),
    "max_total_tokens": ("kv_tokens",),
    "mem_fraction_static": ("mem_fraction_static", "kv_tokens"),
    "chunked_prefill_size": ("max_batched_tokens",),
    "schedule_policy": ("schedule_policy",),
    "disable_radix_cache": ("prefix_caching",),
    "disable_overlap_schedule": ("overlap_schedule",),
    "page_size": ("block_tokens",),
    "context_length": ("context_tokens",),
    "dtype": ("dtype",),
    "kv_cache_dtype": ("kv_dtype_k", "kv_bytes_per_token"),
    "quantization": ("quantization", "weight_quantization"),
    "attention_backend": ("attention_backend",),
    "decode_attention_backend": ("attention_backend",),
    "moe_runner_backend": ("moe_backend",),
    "moe_a2a_backend": ("all2all",),
    "fp4_gemm_backend": ("gemm_kernels",),
    "fp8_gemm_backend": ("gemm_kernels",),
    "speculative_algorithm": ("speculative_method",),
    "speculative_num_draft_tokens": ("speculative_tokens",),
    "cuda_graph_backend_decode": ("graphs",),
    "cuda_graph_max_bs_decode": ("graph_max_batch",),
    "cuda_graph_bs_decode": ("graph_max_batch", "graph_sizes"),
    "tp_size": ("tp_size",),
    "ep_size": ("ep_size",),
    "dp_size": ("ranks",),
    "attn_dp_size": ("ranks",),
    "disable_custom_all_reduce": ("all_reduce",),
    "SGLANG_MOE_CONFIG_DIR": ("moe_config",),
    "checkpoint": ("model_path", "weight_bytes", "quantization"),
    **dict.fromkeys(("NCCL_PROTO", "NCCL_ALGO", "NCCL_P2P_LEVEL"), ("nccl_variables",)),
}
