"""One answer on its way: gather tokens into chunks, write them, and misbehave where ordered.

Without it every dialect would have its own idea of when a chunk is due and what was really sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from lab.simulator.connection import Connection
from lab.simulator.journal import Journal
from lab.simulator.request import Request
from lab.simulator.truth import Truth

_ERROR_EVENT_TOKENS = 4
_INVALID_CHUNK = 3


class Form(Protocol):
    """How one API of one dialect writes an answer. Events are whole server-sent events."""

    error_event: bytes

    def opening(self) -> bytes:
        """An event without text that opens the stream; empty: none."""

    def chunk(self, text: str, tokens: int, counted: int, reasoning: bool, reason: str) -> bytes:
        """An event for `tokens` new ones, `counted` in all; `reason` is empty before the last."""

    def closing(self, counted: int, reason: str) -> bytes:
        """What follows the last chunk."""

    def whole(self, text: str, reasoning: str, counted: int, reason: str) -> bytes:
        """The answer to a request without a stream."""


@dataclass(frozen=True)
class Misbehaviour:
    """Faults of one stream; 0 or False: none."""

    cut_after: int = 0
    stall_after: int | None = None
    error_event: bool = False
    invalid: bool = False


class Stream:
    """One answer, told of tokens by the engine."""

    def __init__(
        self,
        connection: Connection,
        form: Form,
        request: Request,
        pieces: list[str],
        streams: bool,
        truth: Truth,
        journal: Journal,
        faults: Misbehaviour,
        ended: Callable[[Stream, str], None],
    ) -> None:
        self.connection = connection
        self.form = form
        self.request = request
        self.over = False
        self._pieces = pieces
        self._streams = streams
        self._truth = truth
        self._journal = journal
        self._faults = faults
        self._ended = ended
        self._given = self._sent = self._chunks = 0
        self._begun = self._opened = False
        self._batch = request.length if truth.one_chunk else truth.tokens_per_chunk

    def open(self) -> None:
        """Write the head and, where the API has one, the event without text."""
        if self.over or not self._streams or self._opened:
            return
        self._opened = True
        self._begin()
        event = self.form.opening()
        if event:
            self.connection.send(event)

    def deliver(self, tokens: int) -> None:
        """The engine produced so many more tokens."""
        if self.over:
            return
        self._given += tokens
        finished = self._given >= self.request.length
        if not self._streams:
            if finished:
                self._answer()
            return
        if not finished and self._given - self._sent < self._batch:
            return
        self.open()
        self._send_chunks(finished)
        if finished and not self.over:
            self.connection.send(self.form.closing(self._counted, self._reason))
            self.connection.end_stream()
            self._end(self._reason)

    def abandon(self) -> None:
        """The client has gone."""
        if not self.over:
            self._end("abort")

    @property
    def _reason(self) -> str:
        request = self.request
        true = "length" if request.length >= request.max_tokens else "stop"
        return self._truth.lies.finish_reason or true

    @property
    def _counted(self) -> int:
        return self._sent + self._truth.output.usage_surplus_per_chunk * self._chunks

    def _send_chunks(self, finished: bool) -> None:
        reasoning = self._truth.output.reasoning_tokens
        while self._sent < self._given and not self.over:
            upto = self._given if self._sent >= reasoning else min(self._given, reasoning)
            if self._misbehave(upto):
                return
            text = "".join(self._pieces[self._sent : upto])
            tokens, thinking = upto - self._sent, self._sent < reasoning
            self._sent = upto
            if thinking and self._truth.output.reasoning_field == "hidden":
                self._journal.sent(self.request, tokens, time.monotonic())
                continue
            self._chunks += 1
            last = finished and upto == self._given
            event = self.form.chunk(text, tokens, self._counted, thinking, self._reason if last else "")
            if self._faults.invalid and self._chunks == _INVALID_CHUNK:
                event = b"data: {broken\n\n"
            self.connection.send(event)
            self._journal.sent(self.request, tokens, time.monotonic())

    def _misbehave(self, upto: int) -> bool:
        """Whether the stream has come to its ordered end."""
        faults = self._faults
        if faults.cut_after and upto > faults.cut_after:
            self._end("cut")
            self.connection.cut()
        elif faults.stall_after is not None and upto > faults.stall_after:
            self._end("stalled")
        elif faults.error_event and upto > _ERROR_EVENT_TOKENS:
            self._end("error")
            self.connection.send(self.form.error_event)
            self.connection.end_stream()
        return self.over

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self.connection.begin_stream()

    def _answer(self) -> None:
        reasoning = self._truth.output.reasoning_tokens
        thought = "".join(self._pieces[:reasoning])
        text = "".join(self._pieces[reasoning:])
        self._sent, self._chunks = self._given, 1
        self._journal.sent(self.request, self._given, time.monotonic())
        if self._truth.output.reasoning_field == "hidden":
            thought = ""
        self.connection.respond(200, self.form.whole(text, thought, self._counted, self._reason))
        self._end(self._reason)

    def _end(self, reason: str) -> None:
        self.over = True
        self._ended(self, reason)
