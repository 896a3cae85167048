"""What a vLLM server resolved, from the answers of its control endpoints.

Without it the front end's configuration is taken for what its workers do: a downgraded graph mode, an ignored attention
backend or a cache type forced by the checkpoint are not in it. Facts of that kind say "front end" in their source.
"""

from __future__ import annotations

import math
from typing import Any

from lab.engines import _vllm_log as log_lines
from lab.engines import _vllm_worker
from lab.engines._prometheus import Page
from lab.engines.server import Fact

CACHE = "vllm:cache_config_info"
DRAFTS = "vllm:spec_decode_num_drafts_total"
STARTED = "process_start_time_seconds"
METRICS = frozenset({CACHE, DRAFTS, STARTED, "vllm:num_requests_running"})
_CONFIG = {
    "model_config?": {"max_model_len?": int, "model?": str},
    "scheduler_config?": {"max_num_seqs?": int, "max_num_active_seqs?": int},
    "parallel_config?": {f"{kind}_parallel_size?": int for kind in ("tensor", "pipeline", "data")},
    "device_config?": {},
    "cache_config?": {},
    "compilation_config?": {"cudagraph_capture_sizes?": [int]},
    "speculative_config?": {"num_speculative_tokens?": int},
    "attention_config?": {},
}
INFO_SHAPE = {
    "vllm_config?": (str, _CONFIG),
    "system_env?": {"env_vars?": str},
}  # text where the release has no other format
MODELS = {"data?": [{"id?": str, "max_model_len?": int, "root?": str}]}
VERSION = {"version?": str}
CAP_FLAG = "--max-num-seqs"
_HALF = ("bfloat16", "float16")
_UNSHOWN = "/server_info is not shown; VLLM_SERVER_DEV_MODE=1 shows it"
_INFO = "/server_info"


def facts(info: dict[str, Any], model: dict[str, Any], version: str | None, page: Page, log: str) -> dict[str, Fact]:
    """Everything that is known, under the lab's keys; `info` without secrets, {} outside of developer mode."""
    config = info.get("vllm_config") if isinstance(info.get("vllm_config"), dict) else {}
    parsed = log_lines.lines(log)
    model_config, scheduler = _part(config, "model_config"), _part(config, "scheduler_config")
    ranks = _ranks(config, page)
    context = model_config.get("max_model_len") or model.get("max_model_len")
    return {
        **_cap(scheduler, ranks.value, parsed),
        "ranks": ranks,
        "gpus": _gpus(config),
        **_kv(config, page, parsed),
        "context_tokens": Fact(context, f"{_INFO} max_model_len, else /v1/models"),
        **_speculation(config, page),
        **_graphs(config),
        "model_path": Fact(model_config.get("model") or model.get("root"), f"{_INFO} model, else /v1/models root"),
        "model_name": Fact(model.get("id"), "/v1/models id"),
        "version": Fact(version, "/version"),
        "quantization": _said(model_config, "quantization"),
        "attention_backend": _attention(config, parsed),
        "max_batched_tokens": _said(scheduler, "max_num_batched_tokens"),
        "tensor_parallel_size": _said(_part(config, "parallel_config"), "tensor_parallel_size"),
        "dtype": _said(model_config, "dtype"),
        "schedule_policy": _said(scheduler, "policy"),
        "chunked_prefill": _said(scheduler, "enable_chunked_prefill"),
        "async_scheduling": _said(scheduler, "async_scheduling"),
        **_vllm_worker.facts(parsed, bool(log)),
        "cautions": _cautions(config, parsed, bool(log)),
        "nccl_variables": _nccl(info),
        "started_unix_s": Fact(page.largest(STARTED), STARTED),
        "faked": _faked(config),
    }


def _part(config: dict[str, Any], name: str) -> dict[str, Any]:
    return config.get(name) or {}


def _said(part: dict[str, Any], key: str) -> Fact:
    return Fact(part.get(key), f"{_INFO} {key}" if part else _UNSHOWN)


def _ranks(config: dict[str, Any], page: Page) -> Fact:
    """Data-parallel ranks behind this URL: those that report, else those the front end was configured with."""
    engines = {one.labels["engine"] for one in page.series("vllm:num_requests_running") if "engine" in one.labels}
    if engines:
        return Fact(len(engines), "engine labels of vllm:num_requests_running")
    return _said(_part(config, "parallel_config"), "data_parallel_size")


def _gpus(config: dict[str, Any]) -> Fact:
    parallel = _part(config, "parallel_config")
    degrees = [parallel.get(f"{kind}_parallel_size") for kind in ("tensor", "pipeline", "data")]
    source = f"{_INFO} tensor x pipeline x data_parallel_size"
    if "cpu" in str(_part(config, "device_config").get("device")) or None in degrees:
        return Fact(None, source if parallel else _UNSHOWN)
    return Fact(math.prod(degrees), source)


def _cap(scheduler: dict[str, Any], ranks: int | None, log: list[log_lines.Line]) -> dict[str, Fact]:
    """`max_num_seqs`, or the lower `max_num_active_seqs`, over all ranks; unknown outside of developer mode.

    The configuration does not tell a typed value from the default: the log does.
    """
    flag = Fact(CAP_FLAG, "vLLM's own option")
    limits = {key: scheduler.get(key) for key in ("max_num_seqs", "max_num_active_seqs")}
    known = {key: value for key, value in limits.items() if value}
    if not known or "max_num_seqs" not in known:
        source = f"unknown: {_UNSHOWN}"
        unknown, said = Fact(None, source), Fact(source, source)
        return {"cap": unknown, "cap_by_rank": unknown, "cap_source": said, "cap_asked": unknown, "cap_flag": flag}
    lowest = min(known, key=lambda key: known[key])
    typed = log_lines.given(log, "max_num_seqs")
    who = f"{CAP_FLAG}, given or by default"
    if lowest != "max_num_seqs":
        who = f"{lowest}, lower than {CAP_FLAG} {known['max_num_seqs']}"
    elif typed is not None:
        who = f"{CAP_FLAG} {typed} was given" if typed else f"vLLM's default: no {CAP_FLAG} was given"
    source = f"{lowest} of {_INFO}"
    return {
        "cap": Fact(known[lowest] * (ranks or 1), source),
        "cap_by_rank": Fact([known[lowest]] * (ranks or 1), source),
        "cap_source": Fact(who + (f", {ranks} data-parallel ranks" if (ranks or 1) > 1 else ""), source),
        "cap_flag": flag,
        "cap_asked": Fact(known["max_num_seqs"], f"max_num_seqs of {_INFO}, each rank"),
    }


def _kv(config: dict[str, Any], page: Page, log: list[log_lines.Line]) -> dict[str, Fact]:
    """The cache: /metrics knows it without developer mode, one label set for each rank."""
    shown = [dict(one.labels) for one in page.series(CACHE)]
    caches = shown or [one for one in [_part(config, "cache_config")] if one]
    source = CACHE if shown else f"{_INFO} cache_config"
    first = caches[0] if caches else {}
    tokens = [_number(cache.get("kv_cache_size_tokens")) for cache in caches]
    rooms = [_number(cache.get("kv_cache_max_concurrency")) for cache in caches]
    if (not tokens or None in tokens) and (logged := log_lines.kv_sizes(log)):
        tokens, rooms = [float(one.tokens) for one in logged], [one.concurrency for one in logged]
        source = logged[0].text
    held = _number(first.get("kv_cache_memory_bytes"))
    asked = first.get("cache_dtype")
    unproven = Fact(None, f"cache_dtype {asked}: the front end's, no proof; kv_bytes_per_token shows it")
    block = _number(first.get("block_size"))
    caching = first.get("enable_prefix_caching")
    return {
        "kv_tokens": Fact(_whole(_sum(tokens)), source),
        "kv_max_concurrency": Fact(_sum(rooms), f"{source} kv_cache_max_concurrency: requests of full length"),
        "kv_dtype_k": unproven,
        "kv_dtype_v": unproven,
        "kv_dtype_asked": Fact(asked, f"{source} cache_dtype"),
        "kv_bytes_per_token": Fact(
            round(held / tokens[0]) if held and tokens and tokens[0] else None,
            "kv_cache_memory_bytes / kv_cache_size_tokens: in one worker",
        ),
        "block_tokens": Fact(_whole(block), f"{source} block_size"),
        "prefix_caching": Fact(None if caching is None else str(caching) == "True", f"{source} enable_prefix_caching"),
    }


def _speculation(config: dict[str, Any], page: Page) -> dict[str, Fact]:
    """Configured or not; that it drafts is shown by the counter `drafts` alone, which exists only when configured."""
    speculative = _part(config, "speculative_config")
    source = f"{_INFO} speculative_config"
    if config:
        on: bool | None = bool(speculative)
    else:
        source = f"series {DRAFTS} on /metrics"
        on = bool(page.series(DRAFTS)) if page.metrics else None
    return {
        "speculative": Fact(on, source),
        "speculative_method": Fact(speculative.get("method"), source if config else _UNSHOWN),
        "speculative_tokens": Fact(speculative.get("num_speculative_tokens"), source if config else _UNSHOWN),
        **{
            key: Fact(speculative.get(key), source if config else _UNSHOWN)
            for key in ("prompt_lookup_min", "prompt_lookup_max")
        },
    }


def _graphs(config: dict[str, Any]) -> dict[str, Fact]:
    """What the front end says: a worker may have lowered the mode. A step needs 1 + drafted tokens a request."""
    compilation = _part(config, "compilation_config")
    if not compilation:
        return {key: Fact(None, _UNSHOWN) for key in ("graphs", "graph_max_batch", "compilation_mode")}
    mode, sizes = compilation.get("cudagraph_mode"), compilation.get("cudagraph_capture_sizes") or []
    on = str(mode) not in ("0", "NONE", "None") and bool(sizes)
    drafted = _part(config, "speculative_config").get("num_speculative_tokens") or 0
    source = f"{_INFO} compilation_config.cudagraph_mode {mode}: the front end's word, a worker may have lowered it"
    return {
        "graphs": Fact(on, source),
        "graph_max_batch": Fact(
            max(sizes) // (1 + drafted) if on else None, f"{source}; largest of cudagraph_capture_sizes / (1 + drafts)"
        ),
        "compilation_mode": Fact(compilation.get("mode"), f"{_INFO} compilation_config.mode"),
    }


def _attention(config: dict[str, Any], log: list[log_lines.Line]) -> Fact:
    """Only a worker's line says which backend runs: an impossible one is replaced without a change in /server_info."""
    found = log_lines.attention_backend(log)
    if found:
        return Fact(*found)
    asked = _part(config, "attention_config").get("backend")
    return Fact(None, f"asked: {asked}; only a worker's log line proves it" if config else _UNSHOWN)


def _nccl(info: dict[str, Any]) -> Fact:
    """NCCL's variables as the server process got them, which is not what its log line of the arm repeats."""
    text = (info.get("system_env") or {}).get("env_vars")
    return Fact(_vllm_worker.nccl_variables(text), f"{_INFO} system_env.env_vars" if text is not None else _UNSHOWN)


def _cautions(config: dict[str, Any], log: list[log_lines.Line], has_log: bool) -> Fact:
    """What was replaced or may harm the text: lines of the log, and a cache in fewer bits than the arithmetic."""
    told = _vllm_worker.cautions(log)
    asked, computed = _part(config, "cache_config").get("cache_dtype"), _part(config, "model_config").get("dtype")
    if asked in _HALF and computed == "torch.float32":
        told.append(f"kv_cache_dtype {asked} under dtype float32: on a CPU vLLM 0.32 answers garbage so")
    return Fact(told if told or has_log else None, "lines of the log, and the types of cache and arithmetic")


def _faked(config: dict[str, Any]) -> Fact:
    """Synthetic acceptance makes the output meaningless; None: the configuration is not shown."""
    if not config:
        return Fact(None, _UNSHOWN)
    speculative = _part(config, "speculative_config")
    found = {key: value for key, value in speculative.items() if "synthetic" in key and value is not None}
    if speculative.get("rejection_sample_method") == "synthetic":
        found["rejection_sample_method"] = "synthetic"
    text = ", ".join(f"{key}={value}" for key, value in sorted(found.items()))
    return Fact(text or False, f"{_INFO} speculative_config")


def _number(value: Any) -> float | None:
    """A figure, or the text of one (labels are text; `None` among them)."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
