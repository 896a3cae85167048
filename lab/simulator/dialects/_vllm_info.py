"""vLLM's account of its configuration: /server_info, /v1/models and the lines of its log.

Without them no test could show that a limit which is only claimed is told from one that holds.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lab.simulator.dialects.vllm import VLLM

Totals = tuple[int, int, int, int, list[int]]
_CAPTURE_STEP = 8


def models(dialect: VLLM) -> dict[str, Any]:
    """/v1/models."""
    now = int(time.time())
    model = dialect.claims.model
    permission = {
        "id": "modelperm-0000000000000000", "object": "model_permission", "created": now,
        "allow_create_engine": False, "allow_sampling": True, "allow_logprobs": True, "allow_search_indices": False,
        "allow_view": True, "allow_fine_tuning": False, "organization": "*", "group": None, "is_blocking": False,
    }  # fmt: skip
    card = {
        "id": model, "object": "model", "created": now, "owned_by": "vllm", "root": model, "parent": None,
        "max_model_len": dialect.claims.context_tokens, "permission": [permission],
    }  # fmt: skip
    return {"object": "list", "data": [card]}


def capture_sizes(largest: int | None) -> list[int]:
    """The sizes (tokens of a step) with a graph: 1, 2, 4, then steps of 8."""
    if not largest:
        return []
    sizes = [size for size in (1, 2, 4) if size <= largest] + list(range(8, largest + 1, _CAPTURE_STEP))
    return sizes if sizes[-1] == largest else [*sizes, largest]


def server_info(dialect: VLLM) -> dict[str, Any]:
    """/server_info?config_format=json: the parts of the tree that a reader needs, under their real names."""
    said = dialect.claims
    sizes = capture_sizes((said.graphs_max_batch or 0) * (1 + said.speculative_tokens))
    speculative = None
    if said.speculative_tokens:
        speculative = {
            "enforce_eager": None, "num_speculative_tokens": said.speculative_tokens, "model": said.model,
            "method": said.speculative_method, "draft_tensor_parallel_size": 1,
            "rejection_sample_method": "synthetic" if dialect.truth.speculation.synthetic else "standard",
        }  # fmt: skip
    model = {
        "model": said.model, "tokenizer": said.model, "dtype": "torch.bfloat16", "seed": 0,
        "max_model_len": said.context_tokens, "quantization": None, "enforce_eager": not sizes,
        "served_model_name": said.model, "hf_token": None,
    }  # fmt: skip
    cache = {
        "block_size": said.block_tokens, "user_specified_block_size": False, "gpu_memory_utilization": 0.92,
        "cache_dtype": "auto" if said.kv_dtype == "bfloat16" else said.kv_dtype,
        "enable_prefix_caching": said.prefix_cache, "num_gpu_blocks": said.kv_tokens // said.block_tokens,
        "kv_cache_size_tokens": said.kv_tokens, "kv_cache_max_concurrency": said.kv_tokens / said.context_tokens,
        "kv_cache_memory_bytes": None,
    }  # fmt: skip
    scheduler = {
        "runner_type": "generate", "max_num_batched_tokens": dialect.truth.prefill_chunk_tokens,
        "max_num_scheduled_tokens": dialect.truth.prefill_chunk_tokens, "max_num_seqs": said.cap,
        "max_num_active_seqs": None, "enable_chunked_prefill": True, "policy": "fcfs", "async_scheduling": True,
        "stream_interval": dialect.truth.tokens_per_chunk,
    }  # fmt: skip
    compilation = {
        "mode": 3 if sizes else 0, "cudagraph_mode": [2, 1] if sizes else 0, "cudagraph_capture_sizes": sizes,
        "max_cudagraph_capture_size": sizes[-1] if sizes else None,
    }  # fmt: skip
    if said.graphs_max_batch is None:
        compilation = {"mode": 3}
    return {
        "vllm_config": {
            "model_config": model,
            "cache_config": cache,
            "parallel_config": {
                "pipeline_parallel_size": 1, "tensor_parallel_size": 1, "data_parallel_size": said.ranks,
                "enable_expert_parallel": False, "disable_custom_all_reduce": False,
            },
            "scheduler_config": scheduler,
            "device_config": {"device": "cuda"},
            "attention_config": {"backend": None},
            "speculative_config": speculative,
            "compilation_config": compilation,
        },
        "vllm_env": {"VLLM_SERVER_DEV_MODE": True},
        "system_env": {
            "vllm_version": said.version, "nvidia_driver_version": None, "nvidia_gpu_models": None, "env_vars": "",
        },
    }  # fmt: skip


def start_lines(dialect: VLLM, url: str) -> list[str]:
    """From the arguments to ready."""
    said, line = dialect.claims, dialect.line
    arguments = {"model_tag": said.model, "host": "127.0.0.1", "model": said.model, "max_num_seqs": said.cap}
    lines = [
        line("APIServer", f"non-default args: {arguments}", "api_utils.py:286"),
        line("APIServer", f"Using max model len {said.context_tokens}", "model.py:2152"),
        line(
            "EngineCore",
            f"Initializing a V1 LLM engine (v{said.version}) with config: model='{said.model}'",
            "core.py:133",
        ),
        line("Worker", "Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN'].", "cuda.py:426"),
    ]
    if said.speculative_tokens:
        lines.append(line("Worker", "Loading drafter model...", "gpu_model_runner.py:4403"))
    concurrency = said.kv_tokens / said.context_tokens
    room = f"Maximum concurrency for {said.context_tokens:,} tokens per request: {concurrency:.2f}x"
    lines.append(line("EngineCore", f"GPU KV cache size: {said.kv_tokens:,} tokens, {room}", "kv_cache_utils.py:2327"))
    if said.graphs_max_batch:
        lines.append(line("Worker", "Graph capturing finished in 3 secs, took 0.52 GiB", "gpu_model_runner.py:5102"))
    elif said.graphs_max_batch == 0:
        lines.append(line("Worker", "Skipping CUDA graph capture.", "gpu_model_runner.py:5050", "WARNING"))
    lines += [
        line("EngineCore", "init engine (profile, create kv cache, warmup model) took 4.15 s", "core.py:402"),
        line("APIServer", f"Starting vLLM server on {url}", "entry.py:140"),
        "INFO:     Application startup complete.",
    ]
    return lines


def statistics_lines(dialect: VLLM, before: Totals, now: Totals, seconds: float) -> list[str]:
    """The throughput line of each rank's engine, and the speculation line; rates per server second.

    The counters are those of all ranks; with several the rates of the first line are shared out evenly.
    """
    service = dialect.service
    ranks = len(service.ranks)
    prompt, output = ((now[i] - before[i]) / seconds / ranks for i in range(2))
    lines = []
    for index, tally in enumerate(service.tallies):
        gauges = service.gauges(index)
        usage = 100 * gauges.kv_tokens / dialect.truth.cache_tokens
        text = (
            f"Engine {index:03d}: Avg prompt throughput: {prompt:.1f} tokens/s, Avg generation throughput: "
            f"{output:.1f} tokens/s, Running: {gauges.running} reqs, Waiting: {gauges.waiting} reqs, GPU KV cache "
            f"usage: {usage:.1f}%"
        )
        if dialect.claims.prefix_cache and tally.prefix_queries:
            text += f", Prefix cache hit rate: {100 * tally.prefix_hits / tally.prefix_queries:.1f}%"
        lines.append(dialect.line("APIServer", text, "loggers.py:335"))
    drafts, accepted = now[2] - before[2], now[3] - before[3]
    if drafts:
        drafted = drafts * dialect.truth.speculation.tokens
        rates = ", ".join(f"{(new - old) / drafts:.3f}" for new, old in zip(now[4], before[4], strict=True))
        text = (
            f"SpecDecoding metrics: Mean acceptance length: {1 + accepted / drafts:.2f}, Accepted throughput: "
            f"{accepted / seconds:.2f} tokens/s, Drafted throughput: {drafted / seconds:.2f} tokens/s, Accepted: "
            f"{accepted} tokens, Drafted: {drafted} tokens, Per-position acceptance rate: {rates}, Avg Draft "
            f"acceptance rate: {100 * accepted / drafted:.1f}%"
        )
        lines.append(dialect.line("APIServer", text, "metrics.py:120"))
    return lines
