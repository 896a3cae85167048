"""What an SGLang server resolved, from the answers of its control endpoints.

Without it a record repeats the arguments: `max_running_requests` is null while 4096 hold, `kv_cache_dtype` says auto,
the graph configuration says "full" on a machine that has no graphs, and a limit of 48 is one that nobody typed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lab.engines import _sglang_log as log_lines
from lab.engines import _sglang_worker
from lab.engines._prometheus import Page
from lab.engines.server import Fact
from lab.secrets import redacted_text

METRICS = frozenset({"sglang:context_len", "sglang:max_total_num_tokens", "sglang:kv_cache_memory_usage_gb"})
_LOAD = {
    "dp_rank?": int,
    "num_running_reqs?": int,
    "num_waiting_reqs?": int,
    "num_reqs?": int,
    "token_usage?": float,
    "max_running_requests?": int,
    "max_total_num_tokens?": int,
}
_GRAPHS = ("prefill?", "decode?", "target_verify?", "draft_prefill?", "draft_decode?", "draft_extend?")
LOADS = {"/v1/loads": {"loads?": [_LOAD]}, "/get_load": [_LOAD]}  # the second until 0.5.7
_STATE = {
    "effective_max_running_requests_per_dp?": int,
    "max_running_requests?": int,
    "max_total_num_tokens?": int,
    "dp_size?": int,
    "attn_dp_size?": int,
    "tp_size?": int,
    "ep_size?": int,
    "pp_size?": int,
    "context_length?": int,
    "kv_cache_dtype?": str,
    "launch_command?": str,
    "speculative_algorithm?": str,
    "speculative_num_draft_tokens?": int,
    "avg_spec_accept_length?": float,
    "decode_cuda_graph_bs?": [int],
    "env_vars?": {},
    "memory_usage?": {"weight?": float, "kvcache?": float, "graph?": dict.fromkeys(_GRAPHS, float)},
}
_FULL_INFO = {**_STATE, "internal_states?": [_STATE]}
INFO = {"/server_info": _FULL_INFO, "/get_server_info": _FULL_INFO}  # the second until 0.5.5
MODELS = {"data?": [{"id?": str, "max_model_len?": int}]}
CAP_FLAG = "--max-running-requests"
_GIB = 2**30
_SPECULATION_LIMIT = 48  # SGLang's own running limit under speculation when none is typed (0.4.6 to 0.5.23)
_TYPED_LIMIT = re.compile(r"(?:^|\s)--max-run[a-z-]*[=\s]+(\d+)")  # the parser takes abbreviations
_CONFIG_FILE = re.compile(r"(?:^|\s)--config[=\s]")
_FAKES = re.compile(r"SGLANG_(SIMULATE_(?!ACC_METHOD|ACC_TOKEN_MODE|ACC_GREEDY)\w+|TEST_RETRACT)$")
_OFF = ("", "0", "false", "no", "n", "off", "-1", "none")


@dataclass(frozen=True)
class Rank:
    """One data-parallel rank's load; what its release does not say is None."""

    running: float | None
    waiting: float | None
    usage: float | None
    cap: int | None
    tokens: int | None


def loads_of(answer: Any) -> list[Rank]:
    """The ranks of /v1/loads, or of /get_load (whose `num_reqs` is running and waiting together), by their number."""
    rows = answer.get("loads") if isinstance(answer, dict) else answer
    ranks = []
    for row in sorted(rows or [], key=lambda row: row.get("dp_rank") or 0):
        waiting, together = row.get("num_waiting_reqs"), row.get("num_reqs")
        running = row.get("num_running_reqs")
        if running is None and together is not None and waiting is not None:
            running = together - waiting
        tokens = row.get("max_total_num_tokens")
        ranks.append(Rank(running, waiting, row.get("token_usage"), row.get("max_running_requests"), tokens))
    return ranks


def facts(
    info: dict[str, Any],
    info_path: str,
    loads: list[Rank],
    loads_path: str,
    model: dict[str, Any],
    page: Page,
    log: str,
    env: Mapping[str, str],
) -> dict[str, Fact]:
    """Everything that is known, under the lab's keys; `info` without secrets."""
    parsed = log_lines.lines(log)
    states = info.get("internal_states") or []
    state = {**info, **(states[0] if states else {})}
    ranks = len(states) or len(loads) or info.get("dp_size")

    def said(key: str) -> Fact:
        return Fact(state.get(key), f"{info_path} {key}")

    return {
        **_cap(info, info_path, states, loads, loads_path, parsed),
        "running_without_prompts": Fact(True, "num_running_reqs counts requests that decode"),
        "ranks": Fact(ranks, "internal_states" if states else loads_path or f"{info_path} dp_size"),
        "gpus": _gpus(info, info_path),
        "load_source": Fact(loads_path or None, "running and waiting come from here; without it from lagging gauges"),
        **_kv(state, info_path, loads, loads_path, page, parsed),
        "context_tokens": _context(state, info_path, model, page),
        **_speculation(state, info_path),
        **_graphs(state, info_path),
        "prefix_caching": Fact(_not(state.get("disable_radix_cache")), f"{info_path} disable_radix_cache"),
        "block_tokens": said("page_size"),
        "model_path": said("model_path"),
        "model_name": Fact(model.get("id") or state.get("served_model_name"), "/v1/models id"),
        "version": Fact(info.get("version"), f"{info_path} version"),
        "quantization": said("quantization"),
        "attention_backend": Fact(
            state.get("decode_attention_backend") or state.get("attention_backend"),
            f"{info_path} decode_attention_backend, else attention_backend",
        ),
        "max_batched_tokens": said("chunked_prefill_size"),
        **{
            key: said(key)
            for key in ("tp_size", "pp_size", "ep_size", "mem_fraction_static", "schedule_policy", "dtype")
        },
        "overlap_schedule": Fact(_not(state.get("disable_overlap_schedule")), f"{info_path} disable_overlap_schedule"),
        **_sglang_worker.facts(parsed, state, info_path, bool(log)),
        "launch_command": Fact(redacted_text(info.get("launch_command") or "") or None, f"{info_path} launch_command"),
        "faked": _faked(states, env),
    }


def _gpus(info: dict[str, Any], info_path: str) -> Fact:
    """GPUs that serve: ranks of attention data parallelism lie on those of the tensor parallel group, others have
    their own."""
    degrees = [info.get(key) for key in ("tp_size", "pp_size", "dp_size")]
    source = f"{info_path} tp_size x pp_size, x dp_size without enable_dp_attention"
    if info.get("device") == "cpu" or None in degrees:
        return Fact(None, source)
    tensor, pipeline, data = degrees
    return Fact(tensor * pipeline * (1 if info.get("enable_dp_attention") else data), source)


def _cap(
    info: dict[str, Any],
    info_path: str,
    states: list[dict[str, Any]],
    loads: list[Rank],
    loads_path: str,
    log: list[log_lines.Line],
) -> dict[str, Fact]:
    """The running limit over all ranks, and who set it; the top-level argument stays null and is never the limit."""
    key = "effective_max_running_requests_per_dp"
    candidates: list[tuple[list[Any], str]] = [
        ([state.get(key) for state in states], f"{key} of {info_path}"),
        ([rank.cap for rank in loads], f"max_running_requests of {loads_path}"),
        ([one.max_running_requests for one in log_lines.banners(log)], "max_running_requests of the start-up log"),
    ]
    limits, source = next(
        ((found, source) for found, source in candidates if found and None not in found),
        ([], f"unknown: neither {info_path} ({key}, since 0.5.8) nor /v1/loads says it"),
    )
    asked, asked_source = _asked(info, info_path)
    text = source
    reset = log_lines.reset_limit(log)
    if reset:
        text = f"speculative decoding reset the running limit to {reset[0]} (no {CAP_FLAG} was given)"
    elif info.get("speculative_algorithm") and asked is None and set(limits) == {_of_speculation(info)}:
        why = f"no {CAP_FLAG} was given" if info.get("launch_command") else "unless somebody typed it"
        text = f"speculative decoding reset the running limit to {_SPECULATION_LIMIT} ({why})"
    elif limits and asked is not None:
        lowered = "" if asked in (max(limits), sum(limits)) else ", and the server lowered it"
        text = f"{CAP_FLAG} {asked} was given{lowered}"
    elif limits and "max_running_requests" in info:
        drafts = ", with speculative decoding on" if info.get("speculative_algorithm") else ""
        text = f"the server itself{drafts}: no {CAP_FLAG} was given"
    return {
        "cap": Fact(sum(limits) if limits else None, source),
        "cap_source": Fact(text + (f", {len(limits)} data-parallel ranks" if len(limits) > 1 else ""), source),
        "cap_by_rank": Fact(limits or None, source),
        "cap_asked": Fact(asked, asked_source),
        "cap_flag": Fact(CAP_FLAG, "SGLang's own option"),
    }


def _of_speculation(info: dict[str, Any]) -> int:
    """What each rank gets of the limit that speculation sets: ranks of attention data parallelism share it."""
    shared = info.get("dp_size") if info.get("enable_dp_attention") else info.get("attn_dp_size")
    return max(1, _SPECULATION_LIMIT // (shared or 1))


def _asked(info: dict[str, Any], info_path: str) -> tuple[int | None, str]:
    """The limit that was typed: resolution writes its own into the arguments, only the command tells them apart."""
    command = info.get("launch_command")
    if command is None:
        if info.get("speculative_algorithm") and info.get("max_running_requests") == _SPECULATION_LIMIT:
            return None, f"{info_path} max_running_requests 48: typed, or set by speculation"
        return info.get("max_running_requests"), f"{info_path} max_running_requests"
    typed = _TYPED_LIMIT.search(command)
    if typed is None and _CONFIG_FILE.search(command):
        return info.get("max_running_requests"), f"{info_path} max_running_requests (the command names a --config file)"
    return (int(typed[1]) if typed else None), f"{info_path} launch_command"


def _kv(
    state: dict[str, Any],
    info_path: str,
    loads: list[Rank],
    loads_path: str,
    page: Page,
    log: list[log_lines.Line],
) -> dict[str, Fact]:
    """Size, type and bytes a token; the type only as the allocation line says it, since the argument may stay auto."""
    tokens = [rank.tokens for rank in loads]
    known = bool(tokens) and None not in tokens
    total = sum(one or 0 for one in tokens) if known else state.get("max_total_num_tokens")
    source = f"max_total_num_tokens of {loads_path if known else info_path}"
    cache = log_lines.kv_cache(log)
    asked = state.get("kv_cache_dtype")
    unproven = f"{info_path} kv_cache_dtype {asked}: asked, no proof; kv_bytes_per_token shows it"
    held_gib = page.largest("sglang:kv_cache_memory_usage_gb")
    of_rank = page.largest("sglang:max_total_num_tokens")
    dtype = Fact(cache.dtype if cache else None, cache.text if cache and cache.dtype else unproven)
    return {
        "kv_tokens": Fact(total, source),
        "kv_dtype_k": dtype,
        "kv_dtype_v": dtype,
        "kv_dtype_asked": Fact(asked, f"{info_path} kv_cache_dtype"),
        "kv_bytes_per_token": Fact(
            round(held_gib * _GIB / of_rank) if held_gib and of_rank else None,
            "kv_cache_memory_usage_gb / max_total_num_tokens of /metrics: the target model's, in one worker",
        ),
    }


def _context(state: dict[str, Any], info_path: str, model: dict[str, Any], page: Page) -> Fact:
    counted = page.largest("sglang:context_len")
    if counted is not None:
        return Fact(int(counted), "sglang:context_len")
    if model.get("max_model_len"):
        return Fact(model["max_model_len"], "/v1/models max_model_len")
    return Fact(state.get("context_length"), f"{info_path} context_length")


def _speculation(state: dict[str, Any], info_path: str) -> dict[str, Fact]:
    """Whether the arguments resolved to speculation; that it drafts is shown by the counter `drafts` alone."""
    method = state.get("speculative_algorithm")
    tokens = state.get("speculative_num_draft_tokens")
    known = "speculative_algorithm" in state
    return {
        "speculative": Fact(bool(method) if known else None, f"{info_path} speculative_algorithm"),
        "speculative_method": Fact(method.lower() if method else None, f"{info_path} speculative_algorithm"),
        "speculative_tokens": Fact(
            tokens - 1 if method and tokens else None,
            f"{info_path} speculative_num_draft_tokens, less the one that the target gives itself",
        ),
        "acceptance_length": Fact(
            state.get("avg_spec_accept_length"), f"{info_path} avg_spec_accept_length: rank 0, since the last flush"
        ),
    }


def _graphs(state: dict[str, Any], info_path: str) -> dict[str, Fact]:
    """What was captured: the configuration says "full" even where no graph exists."""
    sizes = state.get("decode_cuda_graph_bs")
    if sizes is None:
        off = state.get("disable_cuda_graph")
        source = f"{info_path} disable_cuda_graph" if off else f"{info_path} has no decode_cuda_graph_bs (since 0.5.23)"
        return {"graphs": Fact(False if off else None, source), "graph_max_batch": Fact(None, source)}
    source = f"{info_path} decode_cuda_graph_bs"
    return {"graphs": Fact(bool(sizes), source), "graph_max_batch": Fact(max(sizes, default=None), source)}


def _faked(states: list[dict[str, Any]], env: Mapping[str, str]) -> Fact:
    """Switches that make acceptance, routing or retraction up; None: the server does not show its environment."""
    shown = [state["env_vars"] for state in states if state.get("env_vars") is not None]
    found = {
        f"{name}={value}"
        for variables in [*shown, env]
        for name, value in variables.items()
        if _FAKES.match(name) and str(value).lower() not in _OFF
    }
    source = "internal_states env_vars" if shown else "the environment is not shown; SGLANG_EXPOSE_OWN_ENV_VARS=1 does"
    return Fact(", ".join(sorted(found)) or (False if shown else None), source)


def _not(value: Any) -> bool | None:
    return None if value is None else not value
