"""Server-sent events: what a block of a stream's bytes says, whatever line ends, comments and splits it uses.

Without it a keep-alive comment breaks a stream, an error told inside a stream passes for an answer, and each
reader has its own idea of what an event is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

DONE = b"[DONE]"


@dataclass(frozen=True)
class Fault:
    """Why a request failed: a kind that is counted, and the words that came with it.

    They may hold a secret and be long, until `Endpoint.presentable` has made them fit for a record.
    """

    kind: str
    text: str


class BrokenStream(Exception):
    """The bytes of a stream cannot be an answer; carries the Fault."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.fault = Fault(kind, text)


def payloads(block: bytes) -> Iterator[bytes]:
    """The data of the events in `block`, which ends where an event ends.

    As https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation has it: comments
    and unknown fields are skipped, several `data:` lines are one text; line ends are LF here. Raises BrokenStream
    (`server-error`) for an `event: error` and for the `error:` lines of older llama.cpp servers.
    """
    data: list[bytes] = []
    name = b""
    for line in [*block.split(b"\n"), b""]:
        if not line:
            if name == b"error":
                raise BrokenStream("server-error", error_message(b"\n".join(data)) or "an error without words")
            if data:
                yield b"\n".join(data).strip()
            data, name = [], b""
        elif line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif line.startswith(b"event:"):
            name = line[6:].strip()
        elif line.startswith(b"error:"):
            raise BrokenStream("server-error", error_message(line[6:].strip()))


def decode(payload: bytes) -> dict[str, Any]:
    """The JSON object of one event; raises BrokenStream (`bad-sse`) for anything else."""
    try:
        chunk = orjson.loads(payload)
    except orjson.JSONDecodeError:
        chunk = None
    if not isinstance(chunk, dict):
        raise BrokenStream("bad-sse", f"a stream event is not a JSON object: {payload.decode(errors='replace')}")
    return chunk


def dig(value: Any, path: tuple[str, ...]) -> Any:
    """The value at `path` inside nested dicts; None when any step is missing."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def error_message(body: bytes) -> str:
    """The server's own words in an error body, whichever of the usual shapes it has."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        value = None
    for path in (("error", "message"), ("message",), ("detail",), ("error",)):
        text = dig(value, path)
        if text:
            return str(text)
    return body.decode(errors="replace").strip()
