"""What a generation request asks for, read from its body in any of the APIs.

Without one reader each API would count prompts and limits in its own way.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import orjson

from lab.simulator import tokens

DEFAULT_MAX_TOKENS = 256
_TEMPLATE_ID = tokens.VOCABULARY  # ids from here on are the chat template's own


class BadRequest(Exception):
    """A body that cannot be served; the dialect words the answer."""

    def __init__(self, kind: str, text: str, **values: Any) -> None:
        super().__init__(text)
        self.kind = kind
        self.values = values


@dataclass(frozen=True)
class Ask:
    """One request for tokens. api: chat, completions, generate or llamacpp; ids: the whole templated prompt."""

    api: str
    model: str | None
    text: str
    ids: list[int]
    digest: bytes
    synthetic: bool
    max_tokens: int
    ignore_eos: bool
    stream: bool
    include_usage: bool = False
    continuous_usage: bool = False
    timings_per_token: bool = False
    cache_prompt: bool = True


def decode(body: bytes) -> dict[str, Any]:
    """The JSON object of a body; raises BadRequest."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest("json", str(error)) from None
    if not isinstance(value, dict):
        raise BadRequest("json", "the body is not an object")
    return value


def of_chat(body: dict[str, Any], max_tokens: int | None = None) -> Ask:
    """/v1/chat/completions; raises BadRequest."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise BadRequest("messages", "messages is missing or no list")
    ids, texts = [], []
    for message in messages:
        text = _content(message)
        texts.append(text)
        ids += [_TEMPLATE_ID + at for at in range(tokens.MESSAGE_OVERHEAD_TOKENS)]
        ids += tokens.token_ids(text)
    ids += [_TEMPLATE_ID + 10 + at for at in range(tokens.CHAT_OVERHEAD_TOKENS)]
    limit = max_tokens or body.get("max_completion_tokens") or body.get("max_tokens")
    return _ask("chat", body, texts[-1] if texts else "", ids, orjson.dumps(messages), limit)


def of_text(api: str, body: dict[str, Any], prompt: Any, max_tokens: Any) -> Ask:
    """An API that takes a text or a list of token ids; raises BadRequest."""
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return _ask(api, body, prompt, tokens.token_ids(prompt), prompt.encode(), max_tokens)
    if isinstance(prompt, list) and all(isinstance(number, int) for number in prompt):
        ask = _ask(api, body, tokens.text_of(prompt), list(prompt), orjson.dumps(prompt), max_tokens)
        return Ask(**{**_fields(ask), "synthetic": True})
    raise BadRequest("prompt", "prompt is missing, or neither a text nor token ids")


def _fields(ask: Ask) -> dict[str, Any]:
    return {name: getattr(ask, name) for name in Ask.__dataclass_fields__}


def _ask(api: str, body: dict[str, Any], text: str, ids: list[int], content: bytes, max_tokens: Any) -> Ask:
    if max_tokens is not None and (not isinstance(max_tokens, int) or isinstance(max_tokens, bool)):
        raise BadRequest("max_tokens", "max_tokens is no whole number", value=max_tokens)
    options = body.get("stream_options") or {}
    return Ask(
        api=api,
        model=body.get("model"),
        text=text,
        ids=ids,
        digest=hashlib.blake2b(content, digest_size=8).digest(),
        synthetic=tokens.is_synthetic(ids, text),
        max_tokens=DEFAULT_MAX_TOKENS if max_tokens is None else max(1, max_tokens),
        ignore_eos=bool((body.get("sampling_params") or body).get("ignore_eos")),
        stream=bool(body.get("stream")),
        include_usage=bool(options.get("include_usage")),
        continuous_usage=bool(options.get("continuous_usage_stats")),
        timings_per_token=bool(body.get("timings_per_token")),
        cache_prompt=body.get("cache_prompt") is not False,
    )


def _content(message: Any) -> str:
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content if isinstance(part, dict))
    if content is not None and not isinstance(content, str):
        raise BadRequest("messages", "a message's content is no text")
    return content or ""
