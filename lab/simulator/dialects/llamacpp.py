"""The dialect of llama.cpp's server (b11549): endpoints, streams, error bodies and log lines.

Without it the lab's reader of llama.cpp servers could only be tested on servers whose truth nobody knows. `timings` of
a request are real milliseconds, since they meet the client's clock.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any, ClassVar

import orjson

from lab.simulator import ask as asks
from lab.simulator import tokens
from lab.simulator.ask import Ask, BadRequest
from lab.simulator.dialects import _llamacpp_info
from lab.simulator.dialects.base import Answer, Dialect, as_json, event
from lab.simulator.dialects.openai import DONE, OpenAIForm
from lab.simulator.request import Request
from lab.simulator.scheduler import Step
from lab.simulator.service import Service

JSON_UTF8 = "application/json; charset=utf-8"
_FINGERPRINT = "b0-unknown"


def timings(request: Request, counted: int, service: Service, draft_tokens: int) -> dict[str, Any]:
    """llama.cpp's own account of a request so far."""
    factor = service.truth.time_factor
    now_s = service.now_s() if request.finished_s != request.finished_s else request.finished_s
    computed = request.prompt_tokens - request.cached_tokens
    prompt_ms = 1000 * (request.first_token_s - request.admitted_s) / factor
    predicted_ms = max(0.001, 1000 * (now_s - request.first_token_s) / factor)
    said: dict[str, Any] = {
        "cache_n": request.cached_tokens,
        "prompt_n": computed,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": prompt_ms / computed,
        "prompt_per_second": 1000 * computed / prompt_ms,
        "predicted_n": counted,
        "predicted_ms": predicted_ms,
        "predicted_per_token_ms": predicted_ms / max(1, counted - 1),
        "predicted_per_second": 1000 * (counted - 1) / predicted_ms,
    }
    if request.drafts:
        said |= {"draft_n": request.drafts * draft_tokens, "draft_n_accepted": request.accepted}
    return said


@dataclass
class LlamaForm(OpenAIForm):
    """Chat and text completions: the choice comes first, the reason in an event of its own."""

    service: Service
    error_event: ClassVar[bytes] = b'error: {"error":{"code":500,"message":"Compute error.","type":"server_error"}}\n\n'

    def __post_init__(self) -> None:
        super().__post_init__()
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        rest = {"created": self.created, "model": self.model, "system_fingerprint": _FINGERPRINT, "object": kind}
        self._rest = rest | {"id": self.identity}
        self._tail = b"," + orjson.dumps(self._rest)[1:-1]
        self._per_token = self.ask.timings_per_token and self.truth.usage == "continuous"

    def timings(self, counted: int) -> dict[str, Any]:
        """See `timings`."""
        return timings(self.request, counted, self.service, self.truth.speculation.tokens)

    def opening(self) -> bytes:
        if not self.chat:
            return b""
        choice = b'{"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}]'
        return event(choice + self._tail + b"}")

    def chunk(self, text: str, tokens_new: int, counted: int, reasoning: bool, reason: str) -> bytes:
        name = self.truth.output.reasoning_field.encode() if reasoning else b"content"
        said = orjson.dumps(text)
        if self.chat:
            head = b'{"choices":[{"finish_reason":null,"index":0,"delta":{"%b":%b}}]' % (name, said)
        else:
            head = b'{"choices":[{"text":%b,"index":0,"logprobs":null,"finish_reason":null}]' % said
        extra = b',"timings":' + orjson.dumps(self.timings(counted)) if self._per_token else b""
        return event(head + self._tail + extra + b"}")

    def usage(self, counted: int) -> dict[str, Any]:
        prompt = self.request.prompt_tokens
        details = {"cached_tokens": self.request.cached_tokens}
        said = {"completion_tokens": counted, "prompt_tokens": prompt, "total_tokens": prompt + counted}
        return said | {"prompt_tokens_details": details}

    def closing(self, counted: int, reason: str) -> bytes:
        totals = {} if self.truth.usage == "none" else {"timings": self.timings(counted)}
        if not self.chat:
            choice = {"text": "", "index": 0, "logprobs": None, "finish_reason": reason}
            usage = {} if self.truth.usage == "none" else {"usage": self.usage(counted)}
            return event(orjson.dumps({"choices": [choice], **self._rest, **usage, **totals})) + DONE
        choice = {"finish_reason": reason, "index": 0, "delta": {}}
        if not self.final_usage:
            return event(orjson.dumps({"choices": [choice], **self._rest, **totals})) + DONE
        out = event(orjson.dumps({"choices": [choice], **self._rest}))
        return out + event(orjson.dumps({"choices": [], **self._rest, "usage": self.usage(counted), **totals})) + DONE

    def whole(self, text: str, reasoning: str, counted: int, reason: str) -> bytes:
        if self.chat:
            message = {"role": "assistant", "content": text}
            message |= {self.truth.output.reasoning_field: reasoning} if reasoning else {}
            choice: dict[str, Any] = {"finish_reason": reason, "index": 0, "message": message}
        else:
            choice = {"text": reasoning + text, "index": 0, "logprobs": None, "finish_reason": reason}
        rest = self._rest | {"object": "chat.completion" if self.chat else "text_completion"}
        totals = {"usage": self.usage(counted), "timings": self.timings(counted)}
        return orjson.dumps({"choices": [choice], **rest, **totals})


class NativeForm:
    """/completion: one object a chunk, with the running counts."""

    error_event = LlamaForm.error_event

    def __init__(self, ask: Ask, request: Request, dialect: LlamaCpp) -> None:
        self._ask = ask
        self._request = request
        self._dialect = dialect
        self._counts = dialect.truth.usage == "continuous"

    def opening(self) -> bytes:
        return b""

    def chunk(self, text: str, tokens_new: int, counted: int, reasoning: bool, reason: str) -> bytes:
        said: dict[str, Any] = {"index": 0, "content": text, "tokens": tokens.token_ids(text), "stop": False}
        said["id_slot"] = -1
        if self._counts:
            said |= {"tokens_predicted": counted, "tokens_evaluated": self._request.prompt_tokens}
            if self._ask.timings_per_token:
                said["timings"] = self._timings(counted)
        return event(orjson.dumps(said))

    def closing(self, counted: int, reason: str) -> bytes:
        return event(self._last("", [], counted, reason))

    def whole(self, text: str, reasoning: str, counted: int, reason: str) -> bytes:
        whole = reasoning + text
        return self._last(whole, tokens.token_ids(whole), counted, reason)

    def _timings(self, counted: int) -> dict[str, Any]:
        return timings(self._request, counted, self._dialect.service, self._dialect.truth.speculation.tokens)

    def _last(self, text: str, ids: list[int], counted: int, reason: str) -> bytes:
        request = self._request
        settings = _llamacpp_info.settings() | {
            "max_tokens": request.max_tokens, "n_predict": request.max_tokens, "ignore_eos": self._ask.ignore_eos,
            "stream": self._ask.stream,
        }  # fmt: skip
        said: dict[str, Any] = {
            "index": 0, "content": text, "tokens": ids, "id_slot": request.slot, "stop": True,
            "model": self._dialect.claims.model, "tokens_predicted": counted,
            "tokens_evaluated": request.prompt_tokens, "generation_settings": settings, "prompt": self._ask.text,
            "has_new_line": False, "truncated": False, "stop_type": "limit" if reason == "length" else "eos",
            "stopping_word": "", "tokens_cached": request.prompt_tokens + counted - 1,
            "timings": self._timings(counted),
        }  # fmt: skip
        if self._dialect.truth.usage == "none":
            del said["tokens_predicted"], said["timings"]
        return orjson.dumps(said)


class LlamaCpp(Dialect):
    """llama.cpp's server, started with --metrics and --slots; a rank's running limit is its number of slots."""

    version: ClassVar[str] = "b0-unknown"
    server_header: ClassVar[bytes] = b"llama.cpp"
    paths: ClassVar[frozenset[str]] = frozenset({"/v1/chat/completions", "/v1/completions", "/completion"})

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self.started_s = time.monotonic()

    @property
    def graphs_reused(self) -> int:
        """Steps that used a graph again, since the start."""
        tally = self.service.tallies[0]
        return tally.decode_steps - tally.eager_decode_steps if self.claims.graphs_max_batch else 0

    @property
    def request_tokens(self) -> int:
        """A slot's share of the cache."""
        return self.truth.cache_tokens // self.truth.cap

    def read(self, path: str, body: dict[str, Any]) -> Ask:
        if path == "/completion":
            if "prompt" not in body:
                raise BadRequest("prompt", "[json.exception.out_of_range.403] key 'prompt' not found")
            return asks.of_text("llamacpp", body, body["prompt"], body.get("n_predict", body.get("max_tokens")))
        if path.endswith("chat/completions"):
            if "messages" not in body:
                raise BadRequest("messages", "'messages' is required")
            return asks.of_chat(body)
        return asks.of_text("completions", body, body.get("prompt"), body.get("max_tokens"))

    def limit(self, ask: Ask, prompt_tokens: int) -> int:
        room = self.request_tokens
        if prompt_tokens >= room:
            text = f"request ({prompt_tokens} tokens) exceeds the available context size ({room} tokens)"
            raise BadRequest("too_long", f"{text}, try increasing it", n_prompt_tokens=prompt_tokens, n_ctx=room)
        return super().limit(ask, prompt_tokens)

    def form(self, ask: Ask, request: Request) -> Any:
        if ask.api == "llamacpp":
            return NativeForm(ask, request, self)
        identity = f"chatcmpl-{os.urandom(16).hex()}"
        return LlamaForm(ask, request, self.truth, self.claims.model, identity, self.service)

    def error(self, status: int, kind: str, text: str, **values: Any) -> Answer:
        if kind == "path":
            said: dict[str, Any] = {"message": "File Not Found", "type": "not_found_error", "code": 404}
            return 404, orjson.dumps({"error": said}), JSON_UTF8
        names = {400: "invalid_request_error", 503: "unavailable_error"}
        name = "exceed_context_size_error" if kind == "too_long" else names.get(status, "server_error")
        if kind == "json":
            text = f"[json.exception.parse_error.101] parse error at line 1, column 2: {text}"
        said = {"code": status, "message": text, "type": name}
        if kind == "too_long":
            said |= values
        return status, orjson.dumps({"error": said}), JSON_UTF8

    def info(self, method: str, path: str, query: str, body: bytes) -> Answer | None:
        if path in ("/health", "/v1/health"):
            return as_json({"status": "ok"})
        if path == "/metrics":
            return _llamacpp_info.metrics(self)
        if path == "/slots":
            return as_json(_llamacpp_info.slots(self))
        if path == "/props":
            return as_json(_llamacpp_info.props(self))
        if path == "/v1/models":
            return as_json(_llamacpp_info.models(self))
        if path == "/tokenize" and method == "POST":
            return as_json({"tokens": tokens.token_ids(str(asks.decode(body).get("content", "")))})
        if path == "/detokenize" and method == "POST":
            return as_json({"content": tokens.text_of(asks.decode(body).get("tokens", []))})
        if path == "/apply-template" and method == "POST":
            asked = asks.of_chat(asks.decode(body))
            return as_json({"prompt": f"<|im_start|>user\n{asked.text}<|im_end|>\n<|im_start|>assistant\n"})
        return None

    def start_lines(self, url: str) -> list[str]:
        return _llamacpp_info.start_lines(self, url)

    def compile_line(self) -> str:
        text = "warming up the model with an empty run - please wait ... (--no-warmup to disable)"
        return self.line(f"cmn  common_init_: {text}")

    def out_of_memory_lines(self) -> list[str]:
        return [
            self.line("ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 137438953472", "E"),
            self.line("srv    load_model: failed to load model, 'model.gguf'", "E"),
            "RuntimeError: Failed to init server, please check the input params.",
        ]

    def stop_lines(self) -> list[str]:
        return [
            self.line("srv    operator(): operator(): cleaning up before exit..."),
            self.line("~Server: main loop exited"),
        ]

    def stepped(self, step: Step) -> None:
        """llama.cpp logs requests, no steps."""

    def ended(self, ask: Ask, request: Request, reason: str, peer: str, path: str, status: int) -> None:
        if reason in ("stop", "length"):
            self.log(*_llamacpp_info.request_lines(self, request))

    def line(self, text: str, level: str = "I") -> str:
        """One log line: time since the start, level, text."""
        since = time.monotonic() - self.started_s
        minutes, seconds = divmod(since, 60)
        micro = int((seconds % 1) * 1e6)
        return f"{int(minutes)}.{int(seconds):02d}.{micro // 1000:03d}.{micro % 1000:03d} {level} {text}"
