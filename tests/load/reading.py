"""Feeding streams to an answer without a network.

Without it every test of the reader would invent its own clock.
"""

from __future__ import annotations

from sse_server import event

from lab.load.answer import Answer
from lab.load.events import Fault


def read(*pieces: bytes, path: tuple[str, ...] | None = None, api: str = "chat") -> tuple[Answer, Fault | None]:
    """Feed the pieces at seconds 1, 2, 3 …"""
    answer = Answer(api, path)
    for second, piece in enumerate(pieces, 1):
        answer.feed(piece, float(second))
    return answer, answer.close(float(len(pieces)))


def chunks(answer: Answer) -> list[tuple[float, int]]:
    """Arrival and tokens of each chunk."""
    return list(zip(answer.chunk_s, answer.chunk_tokens, strict=True))


def running(tokens: int, **fields: object) -> bytes:
    """A chat chunk with vLLM's continuous usage."""
    count = {"prompt_tokens": 7, "completion_tokens": tokens}
    return event({"choices": [{"index": 0, "delta": fields, "finish_reason": None}], "usage": count})


def native(tokens: int, text: str, finish: dict | None = None, ids: int | None = None, **meta: object) -> bytes:
    """A chunk of SGLang's /generate."""
    info = {"id": "x", "finish_reason": finish, "prompt_tokens": 5, "completion_tokens": tokens, "cached_tokens": 2}
    return event({"text": text, "output_ids": list(range(tokens if ids is None else ids)), "meta_info": info | meta})
