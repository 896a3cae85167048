"""SGLang's account of itself: /server_info, /v1/loads, /model_info, /v1/models.

Without them no test could show that a limit which is only claimed, or null, is told from one that holds.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lab.simulator.dialects import _sglang_log

if TYPE_CHECKING:
    from lab.simulator.dialects.sglang import SGLang

_GIB = 2**30


def capture_sizes(largest: int | None) -> list[int]:
    """The decode batches with a graph: every size to 8, then steps of 8."""
    if not largest:
        return []
    sizes = [*range(1, min(8, largest) + 1), *range(16, largest + 1, 8)]
    return sizes if sizes[-1] == largest else [*sizes, largest]


def arguments(dialect: SGLang) -> dict[str, Any]:
    """Resolved arguments, as far as the lab reads them; the running limit stays null, as when nobody typed it."""
    said, truth = dialect.claims, dialect.truth
    speculating = bool(said.speculative_tokens)
    largest = said.graphs_max_batch
    return {
        "model_path": said.model, "tokenizer_path": said.model, "load_format": "auto", "trust_remote_code": False,
        "context_length": None, "dtype": "auto", "quantization": None,
        "kv_cache_dtype": "auto" if said.kv_dtype == "bfloat16" else said.kv_dtype.replace("float8_e4m3fn", "fp8_e4m3"),
        "mem_fraction_static": 0.85, "max_running_requests": None, "max_queued_requests": None,
        "max_total_tokens": None, "chunked_prefill_size": truth.prefill_chunk_tokens, "max_prefill_tokens": 16384,
        "schedule_policy": "fcfs", "page_size": said.block_tokens, "disable_radix_cache": not said.prefix_cache,
        "tp_size": 1, "pp_size": 1, "dp_size": said.ranks, "attn_dp_size": 1, "ep_size": 1,
        "enable_dp_attention": False, "random_seed": truth.seed, "host": "127.0.0.1", "port": 0, "api_key": None,
        "served_model_name": said.model, "stream_interval": truth.tokens_per_chunk, "enable_metrics": True,
        "decode_log_interval": _sglang_log.DECODE_LOG_INTERVAL, "attention_backend": "flashinfer",
        "decode_attention_backend": None, "prefill_attention_backend": None, "fp8_gemm_runner_backend": "auto",
        "fp4_gemm_runner_backend": "auto", "moe_runner_backend": "auto", "moe_a2a_backend": "none",
        "disable_cuda_graph": largest == 0, "disable_decode_cuda_graph": largest == 0,
        "disable_custom_all_reduce": False,
        "speculative_algorithm": said.speculative_method.upper() if speculating else None,
        "speculative_num_steps": said.speculative_tokens if speculating else None,
        "speculative_eagle_topk": 1 if speculating else None,
        "speculative_num_draft_tokens": said.speculative_tokens + 1 if speculating else None,
    }  # fmt: skip


def server_info(dialect: SGLang) -> dict[str, Any]:
    """/server_info."""
    said = dialect.claims
    known = arguments(dialect)
    gib = _sglang_log.cache_bytes(dialect) / _GIB
    command = f"--model-path {said.model} --host 127.0.0.1 --port 0 --enable-metrics"
    state: dict[str, Any] = {
        **known,
        "effective_max_running_requests_per_dp": said.cap,
        "last_gen_throughput": 0.0,
        "memory_usage": {
            "weight": 16.1, "kvcache": round(gib, 3), "startup_available": 12.13, "token_capacity": said.kv_tokens,
            "token_capacity_swa": None,
            "graph": {"prefill": 0.0, "decode": 0.17 if said.graphs_max_batch else 0.0, "target_verify": 0.0,
                      "draft_prefill": 0.0, "draft_decode": 0.0, "draft_extend": 0.0},
        },
        "decode_cuda_graph_memory_gb": 0.17 if said.graphs_max_batch else 0.0,
    }  # fmt: skip
    if said.graphs_max_batch is not None:
        state["decode_cuda_graph_bs"] = capture_sizes(said.graphs_max_batch)
    writer = dialect.batch_lines
    if writer.lifetime_drafts:
        state["avg_spec_accept_length"] = 1 + writer.lifetime_accepted / writer.lifetime_drafts
    states = [{**state, "last_gen_throughput": rate} for rate in dialect.throughput][: said.ranks]
    states += [state] * (said.ranks - len(states))
    return {
        **known,
        "launch_command": command,
        "status": "ready",
        "max_total_num_tokens": said.kv_tokens,
        "max_req_input_len": said.context_tokens - 6,
        "startup_time": {"load_weight": 3.1, "kv_cache_allocation": 0.9, "scheduler_e2e": 12.0, "tokenizer_e2e": 20.0},
        "version": said.version,
        "internal_states": states,
    }


def loads(dialect: SGLang) -> dict[str, Any]:
    """/v1/loads: one entry for each rank."""
    service, said = dialect.service, dialect.claims
    gib = _sglang_log.cache_bytes(dialect) / _GIB
    rows = []
    for index in range(len(service.ranks)):
        gauges, tally = service.gauges(index), service.tallies[index]
        queried = tally.prefix_queries
        row: dict[str, Any] = {
            "timestamp": time.time(),
            "dp_rank": index,
            "num_running_reqs": gauges.running,
            "num_waiting_reqs": gauges.waiting,
            "num_used_tokens": gauges.kv_tokens,
            "num_total_tokens": gauges.kv_tokens,
            "num_active_tokens": gauges.kv_tokens,
            "max_total_num_tokens": said.kv_tokens,
            "max_running_requests": said.cap,
            "token_usage": round(gauges.kv_tokens / dialect.truth.cache_tokens, 4),
            "gen_throughput": round(dialect.throughput[index], 2),
            "cache_hit_rate": tally.prefix_hits / queried if queried else 0.0,
            "utilization": 0.0,
            "total_prefill_uncached_tokens": tally.prompt_computed,
            "memory": {
                "weight_gb": 16.1, "kv_cache_gb": round(gib, 3), "graph_gb": 0.17, "token_capacity": said.kv_tokens,
            },
            "queues": {"waiting": gauges.waiting, "grammar": 0, "paused": 0, "retracted": 0, "prealloc_ready": 0},
        }  # fmt: skip
        if said.speculative_tokens and dialect.truth.speculation.tokens:
            length = dialect.accept_length[index]
            rate = max(0.0, length - 1) / dialect.truth.speculation.tokens
            row["speculative"] = {"accept_length": round(length, 3), "accept_rate": round(rate, 3)}
        rows.append(_altered(row, dialect))
    return {
        "timestamp": datetime.now(UTC).isoformat(),
        "version": said.version,
        "accelerator": None,
        "num_accelerators": 1,
        "loads": rows,
    }


def _altered(row: dict[str, Any], dialect: SGLang) -> dict[str, Any]:
    """A row without the keys that are to be missing, and with zeroes where ordered."""
    metrics = dialect.truth.metrics
    return {key: 0 if key in metrics.zero else value for key, value in row.items() if key not in metrics.absent}


def model_info(dialect: SGLang) -> dict[str, Any]:
    """/model_info."""
    model = dialect.claims.model
    return {
        "model_path": model, "tokenizer_path": model, "is_generation": True, "preferred_sampling_params": None,
        "weight_version": "default", "model_type": "llama", "architectures": ["LlamaForCausalLM"],
        "load_format": "auto",
    }  # fmt: skip


def models(dialect: SGLang) -> dict[str, Any]:
    """/v1/models."""
    model = dialect.claims.model
    card = {
        "id": model, "object": "model", "created": int(time.time()), "owned_by": "sglang", "root": model,
        "parent": None, "max_model_len": dialect.claims.context_tokens,
    }  # fmt: skip
    return {"object": "list", "data": [card]}
