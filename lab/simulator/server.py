"""The simulated server: routes, faults at the door, and answers handed to the dialect.

Without it there is a model of an engine and nobody to talk to. Everything that is not generation is answered by
the dialect; /simulator/truth and /simulator/config are the simulator's own.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from urllib.parse import parse_qs

from lab.simulator.answers import Answers
from lab.simulator.ask import Ask, BadRequest, decode
from lab.simulator.connection import Connection
from lab.simulator.dialects.base import Answer, Dialect, as_json
from lab.simulator.request import Request
from lab.simulator.service import Service
from lab.simulator.stream import Misbehaviour, Stream


class SimulatedServer:
    """Answers requests for one process."""

    def __init__(self, service: Service, dialect: Dialect) -> None:
        self.service = service
        self.dialect = dialect
        self.truth = service.truth
        self.server_header = dialect.server_header
        self.connections: set[Connection] = set()
        self._answers = Answers(self.truth)
        self._unavailable = random.Random(f"{self.truth.seed}/{service.launch}/unavailable")
        service.on_step = self._stepped

    def protocol(self) -> Connection:
        """A new connection."""
        return Connection(self, self.connections.add)

    def handle(self, connection: Connection, method: str, path: str, query: str, body: bytes) -> None:
        """One request."""
        path = path.rstrip("/") or "/"
        try:
            if path in self.dialect.paths and method == "POST":
                self._generate(connection, path, body)
                return
            if path.startswith("/simulator/"):
                answer: Answer | None = self._own(path, query)
            else:
                answer = self.dialect.info(method, path, query, body)
        except BadRequest as error:
            answer = self.dialect.error(400, error.kind, str(error), **error.values)
        connection.respond(*(answer or self.dialect.error(404, "path", "not found")))

    def closed(self, connection: Connection) -> None:
        """A client has gone; so does its request."""
        self.connections.discard(connection)
        if isinstance(connection.exchange, Stream):
            connection.exchange.abandon()

    def _own(self, path: str, query: str) -> Answer | None:
        if path == "/simulator/config":
            return as_json(self.truth.model_dump())
        if path != "/simulator/truth":
            return None
        asked = parse_qs(query)
        now_s = time.monotonic()
        try:
            from_s = float(asked.get("from", [self.service.zero_s])[0])
            to_s = float(asked.get("to", [now_s])[0])
            said = self.service.summary(from_s, to_s)
        except ValueError as error:
            return self.dialect.error(400, "span", f"from and to: {error}")
        said |= {
            "now_s": now_s,
            "zero_s": self.service.zero_s,
            "time_factor": self.truth.time_factor,
            "launch_factor": self.service.launch_factor,
            "in_flight": len(self.service.in_flight),
            "generation_requests": self.service.generation_requests,
        }
        return as_json(said)

    def _generate(self, connection: Connection, path: str, body: bytes) -> None:
        number = self.service.number()
        refusal = self._refusal(number)
        if refusal is not None:
            self.service.journal.refused += 1
            answer, headers = refusal
            connection.respond(*answer, headers=headers)
            return
        try:
            ask = self.dialect.read(path, decode(body))
            prompt_tokens = max(1, round(len(ask.ids) * self.truth.prompt_tokens_factor))
            max_tokens = self.dialect.limit(ask, prompt_tokens)
        except BadRequest:
            self.service.journal.refused += 1
            raise
        request = self._request(number, ask, prompt_tokens, max_tokens)
        pieces = self._answers.pieces(ask.digest, ask.text, request.length)
        stream = Stream(
            connection,
            self.dialect.form(ask, request),
            request,
            pieces,
            ask.stream,
            self.truth,
            self.service.journal,
            self._misbehaviour(number),
            lambda ended, reason: self._ended(ask, ended, reason, path),
        )
        request.sink = connection.exchange = stream
        if self.truth.role_chunk_ms is not None:
            self.service.later(self.truth.role_chunk_ms / 1000, stream.open)
        self.service.submit(request)

    def _request(self, number: int, ask: Ask, prompt_tokens: int, max_tokens: int) -> Request:
        arrival_s, ready_s = self.service.arrival()
        cached = self.truth.prefix_cache and (ask.cache_prompt or self.truth.dialect != "llamacpp")
        return Request(
            number=number,
            arrival_s=arrival_s,
            ready_s=ready_s,
            prompt_tokens=prompt_tokens,
            max_tokens=max_tokens,
            length=self._answers.length(ask.digest, ask.text, max_tokens, ask.ignore_eos),
            blocks=self.service.ranks[0].cache.blocks(ask.ids) if cached else [],
            synthetic=ask.synthetic,
        )

    def _refusal(self, number: int) -> tuple[Answer, bytes] | None:
        """A fault that answers in place of the engine, and its headers."""
        faults = self.truth.faults
        due = number - faults.spare_requests + 1
        if faults.false_ready:
            return self.dialect.error(500, "failed", "Internal Server Error"), b""
        if due <= 0:
            return None
        if faults.fail_all or (faults.fail_every and due % faults.fail_every == 0):
            return self.dialect.error(faults.fail_status, "failed", "the request failed"), b""
        if faults.unavailable_share and self._unavailable.random() < faults.unavailable_share:
            seconds = math.ceil(faults.retry_after_s)
            return self.dialect.error(503, "unavailable", "The service is overloaded"), b"retry-after: %d\r\n" % seconds
        return None

    def _misbehaviour(self, number: int) -> Misbehaviour:
        faults = self.truth.faults
        due = number - faults.spare_requests + 1

        def hit(every: int) -> bool:
            return due > 0 and every > 0 and due % every == 0

        return Misbehaviour(
            cut_after=faults.cut_after_tokens if hit(faults.cut_every) else 0,
            stall_after=faults.stall_after_tokens if hit(faults.stall_every) else None,
            error_event=hit(faults.error_event_every),
            invalid=hit(faults.invalid_sse_every),
        )

    def _ended(self, ask: Ask, stream: Stream, reason: str, path: str) -> None:
        self.service.leave(stream.request, reason)
        self.dialect.ended(ask, stream.request, reason, stream.connection.peer, path, 200)

    def _stepped(self, step: object) -> None:
        if (getattr(step, "pause_s", 0) and self.truth.compile_log_line) or (
            getattr(step, "first_cold", False) and self.truth.cold.log_line
        ):
            self.dialect.log(self.dialect.compile_line())
        self.dialect.stepped(step)


async def listen(server: SimulatedServer, host: str, port: int) -> asyncio.Server:
    """Open the port; raises OSError when it is taken."""
    return await asyncio.get_running_loop().create_server(server.protocol, host, port, backlog=4096)
