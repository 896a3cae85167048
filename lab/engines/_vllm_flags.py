"""vLLM's flags and variables as the lab treats them: pinned, refused, renamed, and where their effect shows.

Without it a flag of an older release would be a spelling mistake, and a variable that is gone a lever without effect.
Names of 0.32.0; which of them a build has is asked of the build itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.engines._options import Renamed

NEEDED: Mapping[str, str] = {
    "VLLM_SERVER_DEV_MODE": "1",  # shows /server_info; the server listens on 127.0.0.1 only
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "DO_NOT_TRACK": "1",
}
PINNED: Mapping[str, Any] = {}
_WHERE = "the lab's servers listen on 127.0.0.1 only, at a port that it picks"
REFUSED: Mapping[str, str] = {
    "model": "name the model in 'checkpoint'",
    "served_model_name": "the lab names the model",
    **dict.fromkeys(("host", "port", "uds", "root_path"), _WHERE),
    "api_key": "the lab's servers listen on 127.0.0.1 only and need no key",
    "config": "a second file would hide what the arm changes; write its flags into the arm",
    "headless": "a server without a front end answers nobody",
    "disable_log_stats": "the lab reads /metrics",
}
REFUSED_VARIABLES: Mapping[str, str] = {
    "VLLM_SERVER_DEV_MODE": "the lab reads /server_info",
    "VLLM_KEEP_ALIVE_ON_ENGINE_DEATH": "a dead engine must be seen as dead",
    "VLLM_LOGGING_LEVEL": "the lab reads the log at its usual level",
    "VLLM_CONFIGURE_LOGGING": "the lab reads the log in its usual form",
    "VLLM_LOGGING_CONFIG_PATH": "the lab reads the log in its usual form",
}
GONE_VARIABLES: Mapping[str, str] = {
    "VLLM_ATTENTION_BACKEND": "attention_backend",
    "VLLM_ALL2ALL_BACKEND": "all2all_backend",
    "VLLM_NVFP4_GEMM_BACKEND": "linear_backend",
    "VLLM_USE_TRTLLM_ATTENTION": "attention_config.use_trtllm_attention",
    "VLLM_FLASH_ATTN_VERSION": "attention_config.flash_attn_version",
    **dict.fromkeys(
        (
            "VLLM_FLASHINFER_MOE_BACKEND",
            "VLLM_MXFP4_USE_MARLIN",
            *(f"VLLM_USE_FLASHINFER_MOE_{width}" for width in ("FP4", "FP8", "FP16")),
        ),
        "moe_backend",
    ),
}
RENAMED: tuple[Renamed, ...] = (
    Renamed("cuda_graph_sizes", "cudagraph_capture_sizes"),
    Renamed("max_seq_len_to_capture", "max_cudagraph_capture_size"),
    Renamed("disable_log_requests", "enable_log_requests", "it is off unless enable_log_requests is true"),
    Renamed("speculative_model", "speculative_config", "write speculative_config.model"),
    Renamed("num_speculative_tokens", "speculative_config", "write speculative_config.num_speculative_tokens"),
    Renamed("ngram_prompt_lookup_max", "speculative_config", "write speculative_config.prompt_lookup_max"),
    Renamed("ngram_prompt_lookup_min", "speculative_config", "write speculative_config.prompt_lookup_min"),
    Renamed("num_redundant_experts", "eplb_config", "write eplb_config.num_redundant_experts"),
    Renamed("guided_decoding_backend", "structured_outputs_config", "write structured_outputs_config.backend"),
    Renamed("task", "runner"),
)
SHOWN_BY: Mapping[str, tuple[str, ...]] = {
    "max_num_seqs": ("cap_asked", "cap"),
    "max_num_active_seqs": ("cap",),
    "max_num_batched_tokens": ("max_batched_tokens",),
    "max_model_len": ("context_tokens",),
    "dtype": ("dtype",),
    "quantization": ("quantization",),
    "kv_cache_dtype": ("kv_bytes_per_token", "kv_tokens"),
    "kv_cache_memory_bytes": ("kv_tokens",),
    "gpu_memory_utilization": ("kv_tokens",),
    "block_size": ("block_tokens",),
    "enable_prefix_caching": ("prefix_caching",),
    "enable_chunked_prefill": ("chunked_prefill",),
    "scheduling_policy": ("schedule_policy",),
    "async_scheduling": ("async_scheduling",),
    "enforce_eager": ("compiled",),
    "compilation_config.mode": ("compilation_mode",),
    "compilation_config.cudagraph_mode": ("graphs_captured", "graph_bytes"),
    "cudagraph_capture_sizes": ("graph_max_batch",),
    "max_cudagraph_capture_size": ("graph_max_batch",),
    "speculative_config.method": ("speculative_method",),
    "speculative_config.num_speculative_tokens": ("speculative_tokens",),
    "speculative_config.prompt_lookup_max": ("prompt_lookup_max",),
    "speculative_config.prompt_lookup_min": ("prompt_lookup_min",),
    "attention_backend": ("attention_backend",),
    "moe_backend": ("moe_backend",),
    "linear_backend": ("gemm_kernels",),
    "enable_expert_parallel": ("expert_parallel",),
    "all2all_backend": ("all2all",),
    "disable_custom_all_reduce": ("all_reduce",),
    "enable_flashinfer_autotune": ("flashinfer_autotune",),
    "VLLM_TUNED_CONFIG_FOLDER": ("moe_tuned",),
    "tensor_parallel_size": ("tensor_parallel_size",),
    "data_parallel_size": ("ranks",),
    "checkpoint": ("model_path", "weight_bytes", "quantization"),
    **dict.fromkeys(("NCCL_PROTO", "NCCL_ALGO", "NCCL_DEBUG", "NCCL_P2P_LEVEL"), ("nccl_variables",)),
}
