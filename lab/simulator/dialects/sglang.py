"""The dialect of SGLang 0.5.23: endpoints, streams, error bodies and log lines (shapes checked against captures).

Without it the lab's reader of SGLang servers could only be tested on servers whose truth nobody knows. Durations and
stamps of a single request are real seconds, since they meet the client's clock; rates in log lines and gauges are per
server second.
"""

from __future__ import annotations

import os
import time
from typing import Any, ClassVar

import orjson

from lab.simulator import ask as asks
from lab.simulator import tokens
from lab.simulator.ask import Ask, BadRequest
from lab.simulator.dialects import _sglang_info, _sglang_log, _sglang_metrics
from lab.simulator.dialects.base import TEXT, Answer, Dialect, as_json, event
from lab.simulator.dialects.openai import DONE, OpenAIForm, TemplateForm
from lab.simulator.request import Request
from lab.simulator.scheduler import Step
from lab.simulator.service import Service

_ERROR = event(
    orjson.dumps({"error": {"message": "Internal Server Error", "type": "InternalServerError", "code": 500}})
)


def usage_of(form: OpenAIForm, counted: int) -> dict[str, Any]:
    """SGLang's usage object."""
    prompt, cached = form.request.prompt_tokens, form.request.cached_tokens
    thought = min(form.truth.output.reasoning_tokens, form.request.generated)
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + counted,
        "completion_tokens": counted,
        "prompt_tokens_details": {"cached_tokens": cached} if cached else None,
        "reasoning_tokens": thought,
    }


class SGLangForm(TemplateForm):
    """Chat and text completions."""

    error_event = _ERROR + DONE

    def head(self) -> bytes:
        kind = b"chat.completion.chunk" if self.chat else b"text_completion"
        lead = b"delta" if self.chat else b"text"
        return b'{"id":"%b","object":"%b","created":%d,"model":%b,"choices":[{"index":0,"%b":' % (
            self.identity.encode(), kind, self.created, orjson.dumps(self.model), lead,
        )  # fmt: skip

    def tail(self, reason: str, counted: int) -> bytes:
        why = b"null" if self.chat or not reason else b'"%b"' % reason.encode()
        usage = self.usage_bytes(counted) if self.continuous else b"null"
        return b',"logprobs":null,"finish_reason":%b,"matched_stop":null}],"usage":%b}' % (why, usage)

    def opening(self) -> bytes:
        if not self.chat:
            return b""
        return event(self._head + b'{"role":"assistant","content":""}' + self.tail("", 0))

    def closing(self, counted: int, reason: str) -> bytes:
        out = b""
        if self.chat:
            choice = b'{"content":null},"logprobs":null,"finish_reason":"%b","matched_stop":null}],"usage":null}'
            out = event(self._head + choice % reason.encode())
        if self.final_usage:
            kind = "chat.completion.chunk" if self.chat else "text_completion"
            last = {"id": self.identity, "object": kind, "created": self.created, "model": self.model, "choices": []}
            out += event(orjson.dumps({**last, "usage": usage_of(self, counted)}))
        return out + DONE

    def whole(self, text: str, reasoning: str, counted: int, reason: str) -> bytes:
        choice: dict[str, Any] = {"index": 0}
        if self.chat:
            message = {"role": "assistant", "content": text, "reasoning_content": None, "tool_calls": None}
            choice["message"] = message | ({self.truth.output.reasoning_field: reasoning} if reasoning else {})
        else:
            choice["text"] = reasoning + text
        choice |= {"logprobs": None, "finish_reason": reason, "matched_stop": None}
        kind = "chat.completion" if self.chat else "text_completion"
        said = {"id": self.identity, "object": kind, "created": self.created, "model": self.model, "choices": [choice]}
        return orjson.dumps({**said, "usage": usage_of(self, counted), "metadata": {"weight_version": "default"}})


class GenerateForm:
    """/generate: every chunk repeats the whole text and carries `meta_info`."""

    error_event = _ERROR + DONE

    def __init__(self, ask: Ask, request: Request, service: Service) -> None:
        self._request = request
        self._service = service
        self._counts = service.truth.usage == "continuous"
        self._identity = os.urandom(16).hex()
        self._text, self._ids = b"", b""

    def opening(self) -> bytes:
        return b""

    def chunk(self, text: str, tokens_new: int, counted: int, reasoning: bool, reason: str) -> bytes:
        self._add(text)
        return event(self._body(counted, reason))

    def closing(self, counted: int, reason: str) -> bytes:
        return DONE

    def whole(self, text: str, reasoning: str, counted: int, reason: str) -> bytes:
        self._add(reasoning + text)
        return self._body(counted, reason)

    def _add(self, text: str) -> None:
        self._text += orjson.dumps(text)[1:-1]
        ids = ",".join(str(number) for number in tokens.token_ids(text)).encode()
        self._ids += b"," + ids if self._ids and ids else ids

    def _body(self, counted: int, reason: str) -> bytes:
        meta = orjson.dumps(self._meta(counted, reason))
        return b'{"text":"%b","output_ids":[%b],"meta_info":%b}' % (self._text, self._ids, meta)

    def _meta(self, counted: int, reason: str) -> dict[str, Any]:
        """The request's own account; the times of the last chunk are this machine's, in real seconds."""
        request, service = self._request, self._service
        factor = service.truth.time_factor
        meta: dict[str, Any] = {
            "id": self._identity,
            "finish_reason": None,
            "prompt_tokens": request.prompt_tokens,
            "weight_version": "default",
            "num_retractions": request.preemptions,
        }
        if self._counts or (reason and service.truth.usage == "final"):
            meta["completion_tokens"] = counted
        meta["cached_tokens"] = request.cached_tokens
        if len(service.ranks) > 1:
            meta["dp_rank"] = request.rank
        if not reason:
            return meta
        limit = {"type": "length", "length": request.max_tokens}
        meta["finish_reason"] = limit if reason == "length" else {"type": "stop", "matched": 2}
        if service.truth.speculation.tokens and request.drafts:
            proposed = request.drafts * service.truth.speculation.tokens
            meta |= {
                "spec_accept_rate": request.accepted / proposed,
                "spec_accept_length": 1 + request.accepted / request.drafts,
                "spec_num_correct_drafts": request.accepted,
                "spec_num_proposed_drafts": proposed,
                "spec_verify_ct": request.drafts,
            }
        decode_s = (request.finished_s - request.first_token_s) / factor
        return meta | {
            "e2e_latency": time.time() - service.unix(request.arrival_s),
            "request_received_ts": service.unix(request.arrival_s),
            "forward_entry_time": service.unix(request.admitted_s),
            "request_finished_ts": service.unix(request.finished_s),
            "queue_time": (request.admitted_s - request.arrival_s) / factor,
            "first_token_latency": (request.first_token_s - request.arrival_s) / factor,
            "decode_throughput": (request.generated - 1) / decode_s if decode_s > 0 else 0.0,
        }


class SGLang(Dialect):
    """SGLang's HTTP server, started with --enable-metrics."""

    version: ClassVar[str] = "0.5.23"
    paths: ClassVar[frozenset[str]] = frozenset({"/v1/chat/completions", "/v1/completions", "/generate"})
    bounds: ClassVar[dict[str, tuple[float, ...]]] = _sglang_metrics.BOUNDS

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self.batch_lines = _sglang_log.BatchLines(self)

    @property
    def throughput(self) -> list[float]:
        """Each rank's decode tokens per server second in its last interval."""
        return self.batch_lines.throughput

    @property
    def accept_length(self) -> list[float]:
        """Each rank's acceptance length in its last interval; 0: no speculation."""
        return self.batch_lines.accept_length

    def read(self, path: str, body: dict[str, Any]) -> Ask:
        if path == "/generate":
            sampling = body.get("sampling_params") or {}
            prompt = body.get("text") if body.get("text") is not None else body.get("input_ids")
            return asks.of_text("generate", body, prompt, sampling.get("max_new_tokens", 128))
        if path.endswith("chat/completions"):
            if not body.get("messages"):
                raise BadRequest("messages", "Messages cannot be empty")
            return asks.of_chat(body)
        return asks.of_text("completions", body, body.get("prompt"), body.get("max_tokens", 16))

    def limit(self, ask: Ask, prompt_tokens: int) -> int:
        context = self.claims.context_tokens
        if prompt_tokens >= context:
            text = f"The input ({prompt_tokens} tokens) is longer than the model's context length ({context} tokens)."
            raise BadRequest("too_long", text)
        return super().limit(ask, prompt_tokens)

    def form(self, ask: Ask, request: Request) -> Any:
        if ask.api == "generate":
            return GenerateForm(ask, request, self.service)
        return SGLangForm(ask, request, self.truth, self.claims.model, os.urandom(16).hex())

    def error(self, status: int, kind: str, text: str, **values: Any) -> Answer:
        if kind == "path":
            return as_json({"detail": "Not Found"}, 404)
        name = "BadRequestError" if status == 400 else "InternalServerError"
        said = {"object": "error", "message": text, "type": name, "param": None, "code": status}
        return as_json(said, status)

    def info(self, method: str, path: str, query: str, body: bytes) -> Answer | None:
        if path in ("/health", "/ready", "/health_generate", "/ping"):
            return 200, b"", "application/json"
        if path == "/metrics":
            return None if self.truth.metrics.off else (200, _sglang_metrics.page(self), TEXT)
        if path in ("/server_info", "/get_server_info"):
            return as_json(_sglang_info.server_info(self))
        if path == "/v1/loads":
            return as_json(_sglang_info.loads(self))
        if path in ("/model_info", "/get_model_info"):
            return as_json(_sglang_info.model_info(self))
        if path == "/v1/models":
            return as_json(_sglang_info.models(self))
        if path == "/flush_cache":
            return self._flush()
        if path == "/tokenize" and method == "POST":
            ids = tokens.token_ids(str(asks.decode(body).get("prompt", "")))
            return as_json({"tokens": ids, "count": len(ids), "max_model_len": self.claims.context_tokens})
        if path == "/detokenize" and method == "POST":
            return as_json({"text": tokens.text_of(asks.decode(body).get("tokens", []))})
        return None

    def start_lines(self, url: str) -> list[str]:
        return _sglang_log.start_lines(self, url)

    def compile_line(self) -> str:
        sizes = _sglang_info.capture_sizes(self.claims.graphs_max_batch)
        return _sglang_log.line(
            f"Capture target decode CUDA graph begin. backend=full, num_tokens_per_req=1, bs={sizes}, "
            "avail mem=12.13 GB"
        )

    def out_of_memory_lines(self) -> list[str]:
        return [
            _sglang_log.line("Load weight begin. avail mem=94.10 GB"),
            _sglang_log.line("Scheduler hit an exception: Traceback (most recent call last):"),
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
            "94.97 GiB of which 1.02 GiB is free.",
        ]

    def stepped(self, step: Step) -> None:
        self.batch_lines.stepped(step)

    def ended(self, ask: Ask, request: Request, reason: str, peer: str, path: str, status: int) -> None:
        if reason in ("stop", "length"):
            self.log(_sglang_log.line(f'INFO:     {peer} - "POST {path} HTTP/1.1" {status} OK'))

    def _flush(self) -> Answer:
        """The prefix cache, and with it the counts of the acceptance length; refused while requests run."""
        if self.service.in_flight:
            return 400, b"Flush cache failed because requests are running.", "text/plain; charset=utf-8"
        self.service.flush_prefix_cache()
        self.batch_lines.forget()
        return 200, b"Cache flushed.\nPlease check backend logs for more details.", "text/plain; charset=utf-8"
