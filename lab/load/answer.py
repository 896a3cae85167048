"""Reading one streamed answer: when its tokens arrived, and how many.

Without one careful reader a role-only chunk becomes the first token, a chunk of five accepted draft tokens
counts as one, and a stream that broke off halfway passes for a short answer.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from io import StringIO
from typing import Any

from orjson import JSONDecodeError, dumps, loads

from lab.load import apis, counts
from lab.load.events import DONE, BrokenStream, Fault, decode, dig, error_message, payloads
from lab.load.repeats import repeats
from lab.load.totals import MOST, Totals

EVENT_BYTES = 64 * 2**20
GIVEN_UP = ("abort", "error")
MOST_TIMES = 16
"""No answer has more tokens than so many times those it was asked for, or so many for each chunk."""


@dataclass(slots=True, eq=False)
class Answer:
    """One streamed answer. Times are monotonic seconds; what the server did not say is None.

    chunk_s and chunk_tokens: the arrivals that carried tokens, and how many each. first_event_s: the first event of
    any kind; first_token_s: the first text of any kind (content, reasoning, tool call). first_chunk_tokens: tokens that
    had arrived with the first text. totals: what the server said of the whole request. Known once the answer is over:
    last_event_s: its last event; repeats: whether the text ends in a loop; text: all of it, when nobody counted tokens.
    tokens_source tells who counted: the path of a running count that chunks carried; `usage`: one token a chunk,
    corrected by the server's final count; `chunks`: one token a chunk and no more is known, as of an answer that was
    cut off before its final count, or whose count is absurd; `tokenizer`: `recount`.

    api: a name of `apis.APIS`. tokens_path: where the engine's chunks carry a running count (one or two keys), None
    when unknown; the API's usual places are looked at too. A count runs when the first chunk with text has it.
    max_tokens: how many were asked for, None when unknown; a count far beyond is no count.
    """

    api: str = "chat"
    tokens_path: Sequence[str] | None = None
    max_tokens: int | None = None
    chunk_s: array = field(default_factory=partial(array, "d"), init=False)
    chunk_tokens: array = field(default_factory=partial(array, "i"), init=False)
    output_tokens: int = field(default=0, init=False)
    tokens_source: str = field(default="chunks", init=False)
    first_event_s: float | None = field(default=None, init=False)
    first_token_s: float | None = field(default=None, init=False)
    last_event_s: float | None = field(default=None, init=False)
    first_chunk_tokens: int | None = field(default=None, init=False)
    reasoning_seen: bool = field(default=False, init=False)
    finish_reason: str | None = field(default=None, init=False)
    done: bool = field(default=False, init=False)
    repeats: bool | None = field(default=None, init=False)
    text: str | None = field(default=None, init=False, repr=False)
    totals: Totals = field(default_factory=Totals, init=False)
    _api: apis.Api = field(init=False, repr=False)
    _text_field: str | None = field(default=None, init=False, repr=False)
    _section: str | None = field(default=None, init=False, repr=False)
    _count: str | None = field(default=None, init=False, repr=False)
    _searched: bool = field(default=False, init=False, repr=False)
    _settled: bool = field(default=False, init=False, repr=False)
    _rest: bytes = field(default=b"", init=False, repr=False)
    _after_cr: bool = field(default=False, init=False, repr=False)
    _text: StringIO = field(default_factory=StringIO, init=False, repr=False)
    _lengths: array | None = field(default_factory=partial(array, "i"), init=False, repr=False)

    def __post_init__(self) -> None:
        self._api = apis.get(self.api)
        self._text_field = self._api.text_field
        if self.tokens_path is not None and len(self.tokens_path) not in (1, 2):
            raise ValueError(f"a tokens path has one or two keys, not {self.tokens_path}")

    def feed(self, body: bytes, now_s: float) -> None:
        """Take in bytes that arrived at `now_s`; raises BrokenStream when they cannot be an answer.

        What servers send nearly always, one event of one `data: {…}` line, is parsed here without being searched.
        """
        try:
            if self._rest or not (body.startswith(b"data: {") and body.endswith(b"}\n\n")):
                self._take_blocks(body, now_s)
                return
            try:
                chunk = loads(body[6:-2])
            except JSONDecodeError:
                self._take_blocks(body, now_s)
            else:
                self._take(chunk, now_s)
        except OverflowError as error:
            raise BrokenStream("bad-sse", f"a chunk counts more tokens than any answer has ({error})") from error
        except (AttributeError, LookupError, TypeError) as error:
            raise BrokenStream("bad-sse", f"a stream event has an unknown shape ({error})") from error

    def close(self, now_s: float) -> Fault | None:
        """The stream is over: settle the counts, and say what is wrong with the answer, if anything."""
        fault = self._flush(now_s)
        self.settle()
        if fault is None and self.finish_reason in GIVEN_UP:
            fault = Fault("server-error", f"the server gave the request up (finish_reason {self.finish_reason})")
        if fault is None and not self.done and self.finish_reason is None:
            fault = Fault("disconnected", "the stream ended before the answer was finished")
        if fault is None and self.output_tokens == 0:
            fault = Fault("empty", "the answer finished without a token")
        return fault

    def settle(self) -> None:
        """The answer is over, complete or not: make the chunks add up to the server's final count; idempotent."""
        if self._settled:
            return
        self._settled = True
        if self.chunk_s and self.chunk_s[-1] > self.last_event_s:
            self.last_event_s = self.chunk_s[-1]
        text, lengths = self._text.getvalue(), self._lengths
        self._text.close()
        self._lengths = None
        self.repeats = repeats(text)
        self._disbelieve()
        if self._count is not None:
            self.tokens_source = self._count if self._section is None else f"{self._section}.{self._count}"
            self._correct(self.totals.output_tokens, None)
        elif self.totals.output_tokens is not None:
            self.tokens_source = "usage"
            self._correct(self.totals.output_tokens, lengths)
        elif text and len(lengths) == len(self.chunk_s):
            self.text, self._lengths = text, lengths
        if self.first_chunk_tokens is not None:
            self.first_chunk_tokens = min(self.first_chunk_tokens, self.output_tokens)

    def recount(self, tokens: int) -> None:
        """Take over a tokenizer's count of `text`, spread over the chunks by their length in characters."""
        if self.text is None:
            raise ValueError("only an answer whose tokens nobody counted is recounted, once")
        self._correct(tokens, self._lengths)
        self.tokens_source = "tokenizer"
        self.text = self._lengths = None

    def _take(self, chunk: dict[str, Any], now_s: float) -> None:
        """One chunk. The common one, more text of an answer that has begun, takes the short way.

        Nothing of a chunk is kept: thousands of parsed objects that live until the next chunk of their stream would
        cost more, in caches missed, than everything else here.
        """
        if self._text_field is None:
            choices = chunk.get("choices")
            if choices:
                choice = choices[0]
                delta = choice.get("delta")
                if delta is None:
                    text = choice.get("text")
                else:
                    text = delta.get("content")
                    if not text or len(delta) > 1:
                        text = self._text_of(delta)
                finish = choice.get("finish_reason")
            else:
                text = finish = None
        else:
            text, finish = self._flat(chunk)
        if type(text) is not str:
            text = _flattened(text)
        if not text or finish or self.first_token_s is None or "error" in chunk:
            self._take_rare(chunk, text, finish, now_s)
        if self._count is not None:
            section = chunk if self._section is None else chunk.get(self._section)
            count = section.get(self._count) if section else None
            tokens = 0 if count is None else count - self.output_tokens
            if tokens <= 0:
                self._text.write(text)
                return
        elif text:
            tokens = 1
            self._lengths.append(len(text))
        else:
            return
        self._text.write(text)
        self.chunk_tokens.append(tokens)
        self.chunk_s.append(now_s)
        self.output_tokens += tokens

    def _take_rare(self, chunk: dict[str, Any], text: str, finish: Any, now_s: float) -> None:
        """What only first and last chunks, and those without text, can tell."""
        if chunk.get("error") or chunk.get("object") == "error":
            raise BrokenStream("server-error", error_message(dumps(chunk)))
        self.last_event_s = now_s
        if self.first_event_s is None:
            self.first_event_s = now_s
        if finish:
            self.finish_reason = _finish(finish)
        growing = bool(self._text_field or chunk.get("choices")) and self.finish_reason is None
        if text or not growing:
            self.totals.read(chunk, final=not growing)
        count = self._search_count(chunk, bool(text)) if text or growing else None
        if text and self.first_token_s is None:
            self.first_token_s = now_s
            self.first_chunk_tokens = max(self.output_tokens + (count is None), count or 0)

    def _search_count(self, chunk: dict[str, Any], has_text: bool) -> int | None:
        """The running count of a chunk. The first chunk with text decides where it lies, or that there is none."""
        paths = (*((tuple(self.tokens_path),) if self.tokens_path else ()), *self._api.count_paths)
        for path in () if self._searched else paths:
            count = dig(chunk, path)
            if type(count) is int and 0 < count <= MOST:
                self._section, self._count = (None, *path)[-2:]
                self._searched = True
                break
        self._searched = self._searched or has_text
        if self._count is None:
            return None
        return dig(chunk, (self._count,) if self._section is None else (self._section, self._count))

    def _text_of(self, delta: dict[str, Any]) -> str:
        """All text of a chat delta, in the order of thinking, speaking and calling."""
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        content, calls = delta.get("content"), delta.get("tool_calls")
        if not (reasoning or calls):
            return _flattened(content)
        self.reasoning_seen = self.reasoning_seen or bool(reasoning)
        return _flattened(reasoning) + _flattened(content) + _flattened(calls)

    def _flat(self, chunk: dict[str, Any]) -> tuple[str | None, Any]:
        """Text and finish of a native chunk. SGLang repeats the whole text unless --incremental-streaming-output."""
        text, meta = chunk.get(self._api.text_field), chunk.get("meta_info")
        if self._api.cumulative and text and meta:
            ids = chunk.get("output_ids")
            if ids is None or len(ids) >= meta.get("completion_tokens", 0):
                self._text.seek(0)
                self._text.truncate()
        return text, meta.get("finish_reason") if meta else chunk.get("stop") and (chunk.get("stop_type") or "stop")

    def _take_blocks(self, body: bytes, now_s: float) -> None:
        """Any bytes: complete blocks are taken, an incomplete one waits for its end. Lines end in CR, LF or both."""
        if self._after_cr:
            body = body.removeprefix(b"\n")
        self._after_cr = body.endswith(b"\r")
        if b"\r" in body:
            body = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        body, self._rest = self._rest + body, b""
        *blocks, rest = body.split(b"\n\n")
        for block in blocks:
            self._take_block(block, now_s)
        if len(rest) > EVENT_BYTES:
            raise BrokenStream("bad-sse", f"a stream event has more than {EVENT_BYTES} bytes")
        self._rest = rest

    def _take_block(self, block: bytes, now_s: float) -> None:
        for payload in payloads(block):
            if payload == DONE:
                self.done = True
                self.last_event_s = now_s
            elif payload:
                self._take(decode(payload), now_s)

    def _flush(self, now_s: float) -> Fault | None:
        """Take the last event of a stream that ended without the closing blank line."""
        rest, self._rest = self._rest, b""
        try:
            if rest.strip():
                self.feed(rest + b"\n\n", now_s)
        except BrokenStream as error:
            if error.fault.kind != "bad-sse":
                return error.fault
            return Fault("truncated", f"the stream ended inside an event: {rest.decode(errors='replace')}")
        return None

    def _disbelieve(self) -> None:
        """Forget counts that no answer reaches: one that the server did not give can be judged, a false one not."""
        chunks = len(self.chunk_s)
        most = MOST if self.max_tokens is None else MOST_TIMES * max(self.max_tokens, chunks)
        if self.totals.output_tokens is not None and self.totals.output_tokens > most:
            self.totals.output_tokens = None
        if self._count is not None and self.output_tokens > most:
            self._section = self._count = None
            self.chunk_tokens = [1] * chunks
            self.output_tokens = chunks
            self.first_chunk_tokens = self.first_chunk_tokens and 1

    def _correct(self, total: int | None, lengths: Sequence[int] | None) -> None:
        """Make the chunks add up to `total`; without lengths their own counts are right except at the end."""
        if total is None or total == self.output_tokens:
            return
        if not self.chunk_s:
            self.chunk_s, self.chunk_tokens = [self.last_event_s], [0]
        if lengths is None:
            self.chunk_tokens = counts.ended(self.chunk_tokens, total)
            first = self.first_chunk_tokens
        else:
            self.chunk_tokens = counts.corrected(self.chunk_tokens, lengths, total)
            first = self.chunk_tokens[0]
        self.output_tokens = total
        if self.first_chunk_tokens is not None:
            self.first_chunk_tokens = min(first, total)


def _finish(finish: Any) -> str:
    """A finish reason as one word; SGLang's native one is an object with a `type`."""
    return str(finish.get("type")) if isinstance(finish, dict) else str(finish)


def _flattened(value: Any) -> str:
    """The text inside content parts or tool calls."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return "".join(_flattened(part) for name, part in value.items() if name not in ("id", "type", "index"))
    return "".join(_flattened(part) for part in value) if isinstance(value, list) else ""
