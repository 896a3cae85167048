"""llama.cpp's account of itself: /metrics, /slots, /props, /v1/models, and its log.

Without them no test could show that slots, cache and speculation are read from where the server really shows them. A
rank's `kv_tokens` are shared out evenly to the slots in the log's cache line.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import orjson

from lab.simulator.dialects.base import Answer
from lab.simulator.page import Page
from lab.simulator.request import Request

if TYPE_CHECKING:
    from lab.simulator.dialects.llamacpp import LlamaCpp

_METRICS_TYPE = "text/plain; version=0.0.4"
_LAYERS, _BYTES_PER_CELL_AND_LAYER = 30, 768  # K and V in 16 bits of 3 heads of 64, as in the captured model
_OFF = "This server does not support metrics endpoint. Start it with `--metrics`"
_TYPES = {"bfloat16": "bf16", "float16": "f16"}


def settings() -> dict[str, Any]:
    """Sampling settings of a slot, at their defaults."""
    return {
        "seed": 4294967295, "temperature": 0.8, "dynatemp_range": 0.0, "dynatemp_exponent": 1.0, "top_k": 40,
        "top_p": 0.95, "min_p": 0.05, "repeat_last_n": 64, "repeat_penalty": 1.0, "max_tokens": -1, "n_predict": -1,
        "n_keep": 0, "n_discard": 0, "ignore_eos": False, "stream": False, "n_probs": 0, "min_keep": 0,
        "speculative.types": "none", "timings_per_token": False, "lora": [],
    }  # fmt: skip


def metrics(dialect: LlamaCpp) -> Answer:
    """/metrics."""
    if dialect.truth.metrics.off:
        said = {"error": {"code": 501, "message": _OFF, "type": "not_supported_error"}}
        return 501, orjson.dumps(said), "application/json; charset=utf-8"
    service = dialect.service
    tally, gauges = service.tallies[0], service.gauges(0)
    out = Page(dialect.truth, integers=True)

    def single(name: str, kind: str, text: str, value: float) -> None:
        out.family(f"llamacpp:{name}", kind, text, [("", {}, value)])

    text = "Number of prompt tokens processed, excluding cached tokens"
    single("prompt_tokens_total", "counter", text, tally.prompt_computed)
    single(
        "prompt_tokens_cached_total", "counter", "Number of prompt tokens reused from the cache", tally.prompt_cached
    )
    single("prompt_seconds_total", "counter", "Total time spent processing prompts", tally.prefill_s)
    single("tokens_predicted_total", "counter", "Number of generation tokens processed", tally.output_finished)
    single("tokens_predicted_seconds_total", "counter", "Total time spent generating tokens", tally.decode_s)
    text = "Total number of llama_decode() calls, excluding speculative decoding and multimodal decoding"
    single("n_decode_total", "counter", text, tally.steps)
    single("n_tokens_max", "counter", "Largest observed sequence length (prompt + generation)", tally.longest)
    text = "Speculative: Total draft tokens generated"
    single(
        "spec_decode_num_draft_tokens_total", "counter", text, tally.drafts_finished * dialect.truth.speculation.tokens
    )
    text = "Speculative: Total draft tokens accepted by the target model"
    single("spec_decode_num_accepted_tokens_total", "counter", text, tally.accepted_finished)
    text = "Speculative: Total speculative decoding verification steps"
    single("spec_decode_num_drafts_total", "counter", text, tally.drafts_finished)
    rate = tally.prompt_computed / tally.prefill_s if tally.prefill_s else 0.0
    single("prompt_tokens_seconds", "gauge", "Average prompt throughput in tokens/s", rate)
    rate = tally.output_finished / tally.decode_s if tally.decode_s else 0.0
    single("predicted_tokens_seconds", "gauge", "Average generation throughput in tokens/s", rate)
    single("requests_processing", "gauge", "Number of requests processing", gauges.running)
    single("requests_deferred", "gauge", "Number of requests deferred", gauges.waiting)
    busy = tally.busy_slots / tally.steps if tally.steps else 0.0
    single("n_busy_slots_per_decode", "gauge", "Average number of busy slots per llama_decode() call", busy)
    positions = [("", {"position": str(at)}, count) for at, count in enumerate(tally.accepted_at_finished) if count]
    if positions:
        name = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total"
        out.family(name, "counter", "Accepted tokens per draft position", positions)
    return 200, out.text(), _METRICS_TYPE


def slots(dialect: LlamaCpp) -> list[dict[str, Any]]:
    """/slots."""
    said = dialect.claims
    rank = dialect.service.ranks[0]
    speculative = bool(said.speculative_tokens)
    context = slot_tokens(dialect)
    in_slot = {request.slot: request for request in rank.running}
    rows: list[dict[str, Any]] = []
    for number in range(said.cap):
        busy = in_slot.get(number)
        row: dict[str, Any] = {
            "id": number, "n_ctx": context, "speculative": speculative, "is_processing": busy is not None,
        }  # fmt: skip
        if busy is not None:
            left = busy.length - busy.generated
            row |= {
                "id_task": max(0, busy.number),
                "n_prompt_tokens": busy.kv_tokens,
                "n_prompt_tokens_processed": min(busy.computed, busy.prompt_tokens) - busy.cached_tokens,
                "n_prompt_tokens_cache": busy.cached_tokens,
                "params": settings() | {"max_tokens": busy.max_tokens, "n_predict": busy.max_tokens, "stream": True},
                "next_token": [
                    {"has_next_token": True, "has_new_line": False, "n_remain": left, "n_decoded": busy.generated}
                ],
            }
        absent, zero = dialect.truth.metrics.absent, dialect.truth.metrics.zero
        rows.append({key: 0 if key in zero else value for key, value in row.items() if key not in absent})
    return rows


def slot_tokens(dialect: LlamaCpp) -> int:
    """Cells of one slot."""
    return max(1, dialect.claims.kv_tokens // dialect.claims.cap)


def props(dialect: LlamaCpp) -> dict[str, Any]:
    """/props."""
    said = dialect.claims
    return {
        "default_generation_settings": {"params": settings(), "n_ctx": slot_tokens(dialect)},
        "total_slots": said.cap, "model_alias": said.model, "model_ftype": "Q4_1",
        "model_path": f"/models/{said.model}.gguf",
        "modalities": {"vision": False, "video": False, "audio": False},
        "endpoint_slots": True, "endpoint_props": False, "endpoint_metrics": not dialect.truth.metrics.off, "ui": False,
        "chat_template": "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>{% endfor %}",
        "bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "build_info": said.version, "is_sleeping": False,
    }  # fmt: skip


def models(dialect: LlamaCpp) -> dict[str, Any]:
    """/v1/models."""
    said = dialect.claims
    meta = {
        "vocab_type": 2, "n_vocab": 131072, "n_ctx": slot_tokens(dialect), "n_ctx_train": said.context_tokens,
        "n_embd": 576, "n_params": 134515008, "size": 96576768, "ftype": "Q4_1",
    }  # fmt: skip
    card = {
        "id": said.model, "aliases": [said.model], "tags": [], "object": "model",
        "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
        "created": int(time.time()), "owned_by": "llamacpp", "meta": meta,
    }  # fmt: skip
    old = {"name": said.model, "model": said.model, "type": "model", "capabilities": ["completion"]}
    return {"models": [old], "object": "list", "data": [card]}


def start_lines(dialect: LlamaCpp, url: str) -> list[str]:
    """From the build line to ready, at verbosity 4."""
    said, line = dialect.claims, dialect.line
    cells = slot_tokens(dialect)
    kind = _TYPES.get(said.kv_dtype, said.kv_dtype)
    half = cells * said.cap * _LAYERS * _BYTES_PER_CELL_AND_LAYER / 2 / 2**20
    lines = [
        line("srv          init: build_info: b0-unknown"),
        line(
            "cmn  common_param: system_info: n_threads = 1 (n_threads_batch = 1) / 2 | CPU : SSE3 = 1 | REPACK = 1 | "
        ),
        line(f"srv    load_model: loading model '/models/{said.model}.gguf'"),
        line(
            "llama_model_loader: loaded meta data with 33 key-value pairs and 272 tensors from "
            f"/models/{said.model}.gguf"
        ),
        line("print_info: file type   = Q4_1"),
        line("load_tensors: loading model tensors, this can take a while... (load_mode = mmap)"),
        line("load_tensors:   CPU_Mapped model buffer size =    92.10 MiB"),
        line("llama_context: constructing llama_context"),
        line(f"llama_context: n_seq_max             = {said.cap}"),
        line(f"llama_context: n_ctx                 = {cells * said.cap}"),
        line(f"llama_context: n_ctx_seq             = {cells}"),
        line(f"llama_context: n_batch               = {dialect.truth.prefill_chunk_tokens}"),
        line(f"llama_context: n_ubatch              = {min(512, dialect.truth.prefill_chunk_tokens)}"),
        line("llama_context: flash_attn            = auto"),
        line("llama_context: kv_unified            = false"),
    ]
    if said.graphs_max_batch == 0:
        lines.append(line("llama_context: graph reuse disabled", "W"))
    lines += [
        line(
            f"llama_kv_cache: size = {2 * half:7.2f} MiB ({cells:6d} cells, {_LAYERS:3d} layers, {said.cap}/{said.cap} "
            f"seqs), K ({kind}): {half:7.2f} MiB, V ({kind}): {half:7.2f} MiB"
        ),
        line("resolve_fused_ops: Flash Attention enabled"),
        line(f"srv    load_model: initializing, n_slots = {said.cap}, n_ctx_slot = {cells}, kv_unified = 'false'"),
    ]
    if said.speculative_tokens:
        name = said.speculative_method.replace("_", "-")
        lines.append(line(f"spec common_specu: adding speculative implementation '{name}'"))
    else:
        lines.append(line("spec common_specu: no implementations specified for speculative decoding"))
    return [*lines, line("srv          init: model loaded"), line(f"srv          init: listening on {url}")]


def request_lines(dialect: LlamaCpp, request: Request) -> list[str]:
    """What is printed about a finished request; times are server milliseconds."""
    head = f"slot print_timing: id {request.slot:2d} | task {max(0, request.number)} | "
    computed = request.prompt_tokens - request.cached_tokens
    prompt_ms = 1000 * (request.first_token_s - request.admitted_s)
    decode_ms = 1000 * (request.finished_s - request.first_token_s)
    pace = decode_ms / max(1, request.generated)
    rate = 1000 * request.generated / decode_ms if decode_ms else 0.0
    lines = [
        f"{head}prompt eval time = {prompt_ms:10.2f} ms / {computed:5d} tokens ({prompt_ms / computed:8.2f} ms per "
        f"token, {1000 * computed / prompt_ms:8.2f} tokens per second)",
        f"{head}       eval time = {decode_ms:10.2f} ms / {request.generated:5d} tokens ({pace:8.2f} ms per token, "
        f"{rate:8.2f} tokens per second)",
        f"{head}      total time = {prompt_ms + decode_ms:10.2f} ms / {computed + request.generated:5d} tokens",
        f"{head}   graphs reused = {dialect.graphs_reused:10d}",
    ]
    if request.drafts:
        drafted = request.drafts * dialect.truth.speculation.tokens
        lines.append(
            f"{head}draft acceptance = {request.accepted / drafted:.5f} ({request.accepted:5d} accepted / {drafted:5d} "
            f"generated), mean len = {1 + request.accepted / request.drafts:5.2f}"
        )
    return [dialect.line(text) for text in lines]
