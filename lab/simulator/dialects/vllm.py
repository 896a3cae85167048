"""The dialect of vLLM 0.32: endpoints, error bodies and log lines (shapes checked against captures of 0.32.0).

Without it the lab's reader of vLLM servers could only be tested on servers whose truth nobody knows.
"""

from __future__ import annotations

import os
import time
from typing import Any, ClassVar

import orjson

from lab.simulator import ask as asks
from lab.simulator import tokens
from lab.simulator.ask import Ask, BadRequest
from lab.simulator.dialects import _vllm_info, _vllm_metrics
from lab.simulator.dialects.base import TEXT, Answer, Dialect, as_json, event
from lab.simulator.dialects.openai import DONE, TemplateForm
from lab.simulator.request import Request
from lab.simulator.scheduler import Step
from lab.simulator.service import Service

STATS_INTERVAL_S = 10.0
_DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."


class VLLMForm(TemplateForm):
    """Chat and text completions."""

    error_event = (
        event(orjson.dumps({"error": {"message": _DEAD, "type": "InternalServerError", "param": None, "code": 500}}))
        + DONE
    )

    def head(self) -> bytes:
        kind = b"chat.completion.chunk" if self.chat else b"text_completion"
        return b'{"id":"%b","object":"%b","created":%d,"model":%b,"choices":[{"index":0,"%b":' % (
            self.identity.encode(), kind, self.created, orjson.dumps(self.model), b"delta" if self.chat else b"text",
        )  # fmt: skip

    def tail(self, reason: str, counted: int) -> bytes:
        why = b'"%b"' % reason.encode() if reason else b"null"
        if not self.chat:
            end = b',"logprobs":null,"finish_reason":%b,"stop_reason":null,"prompt_token_ids":null,"token_ids":null}]'
            end %= why
        elif reason:
            end = b',"logprobs":null,"finish_reason":%b,"stop_reason":null,"token_ids":null}]' % why
        else:
            end = b',"logprobs":null,"finish_reason":null,"token_ids":null}]'
        return end + (b',"usage":' + self.usage_bytes(counted) if self.continuous else b"") + b"}"

    def opening(self) -> bytes:
        if not self.chat:
            return b""
        text = b'{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]'
        return event(self._head + text + b',"prompt_token_ids":null,"prompt_text":null}')

    def closing(self, counted: int, reason: str) -> bytes:
        if not self.final_usage:
            return DONE
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        last = {"id": self.identity, "object": kind, "created": self.created, "model": self.model, "choices": []}
        last["usage"] = self.usage(counted)
        last["system_fingerprint"] = _fingerprint()
        return event(orjson.dumps(last)) + DONE

    def usage(self, counted: int) -> dict[str, Any]:
        prompt = self.request.prompt_tokens
        said: dict[str, Any] = {"prompt_tokens": prompt, "total_tokens": prompt + counted, "completion_tokens": counted}
        if self.request.cached_tokens:
            said["prompt_tokens_details"] = {"cached_tokens": self.request.cached_tokens}
        if self.truth.output.reasoning_tokens:
            thought = min(self.truth.output.reasoning_tokens, self.request.generated)
            said["completion_tokens_details"] = {"reasoning_tokens": thought}
        return said

    def whole(self, text: str, reasoning: str, counted: int, reason: str) -> bytes:
        choice: dict[str, Any] = {"index": 0}
        if self.chat:
            choice["message"] = {"role": "assistant", "content": text}
            if reasoning:
                choice["message"][self.truth.output.reasoning_field] = reasoning
        else:
            choice["text"] = reasoning + text
        choice |= {"logprobs": None, "finish_reason": reason, "stop_reason": None, "token_ids": None}
        kind = "chat.completion" if self.chat else "text_completion"
        said = {"id": self.identity, "object": kind, "created": self.created, "model": self.model, "choices": [choice]}
        said |= {"service_tier": None, "system_fingerprint": _fingerprint()}
        details = {"prompt_tokens_details": None, "completion_tokens_details": None}
        said["usage"] = {**details, **self.usage(counted)}
        return orjson.dumps(said | {"kv_transfer_params": None})


class VLLM(Dialect):
    """vLLM's OpenAI-compatible server in development mode."""

    version: ClassVar[str] = "0.32.0"
    paths: ClassVar[frozenset[str]] = frozenset({"/v1/chat/completions", "/v1/completions"})
    bounds: ClassVar[dict[str, tuple[float, ...]]] = _vllm_metrics.BOUNDS

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self._logged_s = 0.0
        self._at_log = (0, 0, 0, 0, [0] * self.truth.speculation.tokens)

    def read(self, path: str, body: dict[str, Any]) -> Ask:
        if path.endswith("chat/completions"):
            ask = asks.of_chat(body)
        else:
            ask = asks.of_text("completions", body, body.get("prompt"), body.get("max_tokens", 16))
        if ask.model is not None and ask.model != self.claims.model:
            raise BadRequest("model", f"The model `{ask.model}` does not exist. Valid aliases: {self.claims.model}.")
        return ask

    def limit(self, ask: Ask, prompt_tokens: int) -> int:
        room = self.claims.context_tokens
        if prompt_tokens + ask.max_tokens > room:
            raise BadRequest(
                "too_long",
                f"max_tokens={ask.max_tokens} cannot be greater than max_model_len={room} minus the prompt's "
                f"{prompt_tokens} tokens. Please request fewer output tokens. (parameter=max_tokens, "
                f"value={ask.max_tokens})",
            )
        return super().limit(ask, prompt_tokens)

    def form(self, ask: Ask, request: Request) -> VLLMForm:
        prefix = "chatcmpl" if ask.api == "chat" else "cmpl"
        return VLLMForm(ask, request, self.truth, self.claims.model, f"{prefix}-{os.urandom(8).hex()}")

    def error(self, status: int, kind: str, text: str, **values: Any) -> Answer:
        if kind == "path":
            return as_json({"detail": "Not Found"}, 404)
        status = 404 if kind == "model" else status
        words = {400: "BadRequestError", 404: "NotFoundError", 503: "ServiceUnavailableError"}
        parameter = {"model": "model", "too_long": "max_tokens"}.get(kind)
        message = _DEAD if kind == "failed" else text
        name = words.get(status, "InternalServerError")
        return as_json({"error": {"message": message, "type": name, "param": parameter, "code": status}}, status)

    def info(self, method: str, path: str, query: str, body: bytes) -> Answer | None:
        if path in ("/health", "/ping"):
            return 200, b"", "application/json"
        if path == "/metrics":
            return None if self.truth.metrics.off else (200, _vllm_metrics.page(self), TEXT)
        if path == "/version":
            return as_json({"version": self.claims.version})
        if path == "/v1/models":
            return as_json(_vllm_info.models(self))
        if path == "/load":
            return as_json({"server_load": 0})
        if path == "/server_info":
            return as_json(_vllm_info.server_info(self))
        if path == "/reset_prefix_cache" and method == "POST":
            self.service.flush_prefix_cache()
            return as_json({"success": True})
        if path == "/tokenize" and method == "POST":
            asked = asks.decode(body)
            ids = asks.of_chat(asked).ids if "messages" in asked else tokens.token_ids(str(asked.get("prompt", "")))
            said = {"count": len(ids), "max_model_len": self.claims.context_tokens, "tokens": ids, "token_strs": None}
            return as_json(said)
        if path == "/detokenize" and method == "POST":
            return as_json({"prompt": tokens.text_of(asks.decode(body).get("tokens", []))})
        return None

    def start_lines(self, url: str) -> list[str]:
        return _vllm_info.start_lines(self, url)

    def compile_line(self) -> str:
        return self.line(
            "Worker", "[backbone] saved AOT compiled function to torch_aot_compile/rank_0_0/model", "decorators.py:743"
        )

    def out_of_memory_lines(self) -> list[str]:
        worker = (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
            "94.97 GiB of which 1.02 GiB is free."
        )
        return [
            self.line("Worker", worker, "multiproc_executor.py:1001", "ERROR"),
            self.line("EngineCore", "EngineCore failed to start.", "core.py:1180", "ERROR"),
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
        ]

    def stop_lines(self) -> list[str]:
        return [
            self.line("APIServer", "[shutdown] API server: signalling HTTP server shutdown", "launcher.py:282"),
            "INFO:     Shutting down",
            "INFO:     Application shutdown complete.",
        ]

    def stepped(self, step: Step) -> None:
        if step.end_s - self._logged_s < STATS_INTERVAL_S:
            return
        seconds, self._logged_s = step.end_s - self._logged_s, step.end_s
        tallies = self.service.tallies
        accepted_at = [
            sum(t.accepted_at[p] for t in tallies if t.accepted_at) for p in range(self.truth.speculation.tokens)
        ]
        now = (
            sum(t.prompt_computed + t.prompt_cached for t in tallies), sum(t.output for t in tallies),
            sum(t.drafts for t in tallies), sum(t.accepted for t in tallies), accepted_at,
        )  # fmt: skip
        before, self._at_log = self._at_log, now
        self.log(*_vllm_info.statistics_lines(self, before, now, seconds))

    def ended(self, ask: Ask, request: Request, reason: str, peer: str, path: str, status: int) -> None:
        if reason in ("stop", "length"):
            self.log(f'INFO:     {peer} - "POST {path} HTTP/1.1" {status} OK')

    def line(self, process: str, text: str, source: str, level: str = "INFO") -> str:
        """One log line with vLLM's prefix."""
        return f"({process} pid={os.getpid()}) {level} {time.strftime('%m-%d %H:%M:%S')} [{source}] {text}"


def _fingerprint() -> str:
    return "vllm-0.32.0-simulated"
