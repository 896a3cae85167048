"""What a dialect must be able to do: read requests, write answers, metrics, information and log lines.

Without one contract the server would need a branch for each engine.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import orjson

from lab.simulator.ask import Ask, BadRequest
from lab.simulator.claims import Claims, claims
from lab.simulator.request import Request
from lab.simulator.scheduler import Step
from lab.simulator.service import Service
from lab.simulator.stream import Form

Answer = tuple[int, bytes, str]
JSON = "application/json"
TEXT = "text/plain; version=1.0.0; charset=utf-8"


def as_json(value: Any, status: int = 200) -> Answer:
    """A JSON answer."""
    return status, orjson.dumps(value), JSON


def event(payload: bytes) -> bytes:
    """One server-sent event."""
    return b"data: %b\n\n" % payload


class Dialect(ABC):
    """One engine's manners. `paths`: generation endpoints; `bounds`: buckets of the histograms it keeps."""

    version: ClassVar[str]
    server_header: ClassVar[bytes] = b"uvicorn"
    paths: ClassVar[frozenset[str]]
    bounds: ClassVar[dict[str, tuple[float, ...]]] = {}

    def __init__(self, service: Service) -> None:
        self.service = service
        self.truth = service.truth
        self.claims: Claims = claims(service.truth, self.version)

    @abstractmethod
    def read(self, path: str, body: dict[str, Any]) -> Ask:
        """A generation request; raises BadRequest."""

    @abstractmethod
    def form(self, ask: Ask, request: Request) -> Form:
        """How its answer is written."""

    @abstractmethod
    def error(self, status: int, kind: str, text: str, **values: Any) -> Answer:
        """An error body in the engine's shape; `kind` as in BadRequest, or `failed`, `unavailable`, `path`."""

    @abstractmethod
    def info(self, method: str, path: str, query: str, body: bytes) -> Answer | None:
        """Everything that is not generation; None: no such endpoint."""

    @abstractmethod
    def start_lines(self, url: str) -> list[str]:
        """The log from start to ready."""

    @abstractmethod
    def compile_line(self) -> str:
        """The line of a compile or capture while serving."""

    @abstractmethod
    def out_of_memory_lines(self) -> list[str]:
        """The last words of a start that ran out of memory."""

    @property
    def request_tokens(self) -> int:
        """Longest request, prompt and answer together."""
        return self.truth.context_tokens

    def limit(self, ask: Ask, prompt_tokens: int) -> int:
        """Tokens that the answer may have; raises BadRequest for a prompt that does not fit."""
        room = min(self.request_tokens, self.truth.cache_tokens - 1 - self.truth.speculation.tokens)
        if prompt_tokens >= room:
            raise BadRequest("too_long", "the prompt is too long", prompt_tokens=prompt_tokens, room=room)
        return min(ask.max_tokens, room - prompt_tokens)

    @abstractmethod
    def stepped(self, step: Step) -> None:
        """Write what the engine logs about a step."""

    @abstractmethod
    def ended(self, ask: Ask, request: Request, reason: str, peer: str, path: str, status: int) -> None:
        """Write what the engine logs about a request that has ended."""

    def stop_lines(self) -> list[str]:
        """The log of a clean stop."""
        return []

    def log(self, *lines: str) -> None:
        """Write to the server's log, at once."""
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
