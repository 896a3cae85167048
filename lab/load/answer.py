"""Reading one streamed answer: when its tokens arrived, and how many.

Without one careful reader a role-only chunk becomes the first token, a chunk of five accepted draft tokens
counts as one, and a stream that broke off halfway passes for a short answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

TEXT_FIELDS = ("content", "reasoning_content", "reasoning", "tool_calls")
MESSAGE_CHARACTERS = 300


@dataclass(frozen=True)
class Fault:
    """Why a request failed: a kind that is counted, and the words that came with it."""

    kind: str
    text: str


class BrokenStream(Exception):
    """The bytes of a stream cannot be an answer; carries the Fault."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.fault = Fault(kind, text)


class EventLines:
    """Cuts the bytes of a server-sent event stream into payloads, wherever the network cut them."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, body: bytes) -> Iterator[bytes]:
        """The payloads completed by `body`."""
        *lines, self._rest = (self._rest + body).split(b"\n")
        for line in lines:
            line = line.rstrip(b"\r")
            if line.startswith(b"data:"):
                self._data.append(line[5:].strip())
            elif line.startswith(b"error:"):
                raise BrokenStream("server-error", error_message(line[6:].strip()))
            elif not line and self._data:
                payload, self._data = b"\n".join(self._data), []
                yield payload

    def flush(self) -> Iterator[bytes]:
        """The last payload of a stream that ended without the closing blank line."""
        yield from self.feed(b"\n\n")


@dataclass
class Answer:
    """One streamed answer. Times are monotonic seconds; what the server did not say is None.

    `chunk_s` and `chunk_tokens` list the arrivals that carried tokens. `tokens_source` tells who counted
    them: the path of the server's running count, `usage` (one token a chunk, corrected by the final usage) or
    `chunks` (nobody but us).
    """

    tokens_path: tuple[str, ...] | None = None
    first_token_s: float | None = None
    chunk_s: list[float] = field(default_factory=list)
    chunk_tokens: list[int] = field(default_factory=list)
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    draft_tokens: int | None = None
    draft_accepted: int | None = None
    finish_reason: str | None = None
    done: bool = False
    output_tokens: int = 0
    _last_event_s: float = 0.0
    _usage_tokens: int | None = None
    _server_counts: bool = False
    _events: EventLines = field(default_factory=EventLines, repr=False)

    def feed(self, body: bytes, now_s: float) -> None:
        """Take in bytes that arrived at `now_s`; raises BrokenStream when they cannot be an answer."""
        for payload in self._events.feed(body):
            self._take(payload, now_s)

    def close(self, now_s: float) -> Fault | None:
        """The stream is over: settle the token counts, and say what is wrong with the answer, if anything."""
        fault = None
        try:
            for payload in self._events.flush():
                self._take(payload, now_s)
        except BrokenStream as error:
            fault = error.fault
        self.settle()
        if fault is None and not self.done and self.finish_reason is None:
            fault = Fault("disconnected", "the stream ended before the answer was finished")
        if fault is None and self.output_tokens == 0:
            fault = Fault("empty", "the answer finished without a token")
        return fault

    def settle(self) -> None:
        """Make the tokens of the chunks add up to the server's final count, when it gave one; idempotent."""
        if self._usage_tokens is None or self._usage_tokens == self.output_tokens:
            return
        if not self.chunk_s:
            self.chunk_s, self.chunk_tokens = [self._last_event_s], [0]
        surplus = max(0, self.output_tokens - self._usage_tokens)
        self.chunk_tokens[-1] += max(0, self._usage_tokens - self.output_tokens)
        for index in reversed(range(len(self.chunk_tokens))):
            taken = min(self.chunk_tokens[index], surplus)
            self.chunk_tokens[index] -= taken
            surplus -= taken
        self.output_tokens = self._usage_tokens

    @property
    def tokens_source(self) -> str:
        """Who counted the tokens of this answer."""
        if self._server_counts and self.tokens_path:
            return ".".join(self.tokens_path)
        return "chunks" if self._usage_tokens is None else "usage"

    def _take(self, payload: bytes, now_s: float) -> None:
        if payload == b"[DONE]":
            self.done = True
            return
        chunk = _decode(payload)
        self._last_event_s = now_s
        self._read_totals(chunk)
        has_text = False
        for choice in chunk.get("choices") or ():
            delta = choice.get("delta") or {}
            has_text = has_text or any(delta.get(name) for name in TEXT_FIELDS)
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
        tokens = self._new_tokens(chunk, has_text)
        if has_text and self.first_token_s is None:
            self.first_token_s = now_s
        if tokens > 0:
            self.chunk_s.append(now_s)
            self.chunk_tokens.append(tokens)
            self.output_tokens += tokens

    def _new_tokens(self, chunk: dict[str, Any], has_text: bool) -> int:
        running_count = dig(chunk, self.tokens_path) if self.tokens_path else None
        if isinstance(running_count, int):
            self._server_counts = True
            return running_count - self.output_tokens
        return 1 if has_text and not self._server_counts else 0

    def _read_totals(self, chunk: dict[str, Any]) -> None:
        usage, timings = chunk.get("usage") or {}, chunk.get("timings") or {}
        self._usage_tokens = usage.get("completion_tokens", self._usage_tokens)
        self.prompt_tokens = usage.get("prompt_tokens", self.prompt_tokens)
        self.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", self.cached_tokens)
        self.draft_tokens = timings.get("draft_n", self.draft_tokens)
        self.draft_accepted = timings.get("draft_n_accepted", self.draft_accepted)


def dig(value: Any, path: tuple[str, ...]) -> Any:
    """The value at `path` inside nested dicts; None when any step is missing."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def error_message(body: bytes) -> str:
    """The server's own words in an error body, whichever of the usual shapes it has; at most 300 characters."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        value = None
    for path in (("error", "message"), ("message",), ("detail",), ("error",)):
        text = dig(value, path)
        if text:
            return str(text)[:MESSAGE_CHARACTERS]
    return body.decode(errors="replace").strip()[:MESSAGE_CHARACTERS]


def _decode(payload: bytes) -> dict[str, Any]:
    try:
        chunk = orjson.loads(payload)
    except orjson.JSONDecodeError:
        chunk = None
    if not isinstance(chunk, dict):
        excerpt = payload.decode(errors="replace")[:MESSAGE_CHARACTERS]
        raise BrokenStream("bad-sse", f"a stream event is not a JSON object: {excerpt}")
    if chunk.get("error") or chunk.get("object") == "error":
        raise BrokenStream("server-error", error_message(payload))
    return chunk
