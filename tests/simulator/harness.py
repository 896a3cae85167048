"""A simulated server in the test's own event loop, and a small client that keeps everything it receives.

Without it every test would start a process, and wait for it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httptools

from lab.engines._llamacpp_facts import LlamaCppServer
from lab.engines._sglang_reader import SglangServer
from lab.engines._vllm_reader import VllmServer
from lab.engines.server import Sample, Server
from lab.simulator.dialects import dialect_of
from lab.simulator.server import SimulatedServer, listen
from lab.simulator.service import Service
from lab.simulator.truth import from_flags

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
SPEC: dict[str, Any] = {"speculation__tokens": 2, "speculation__acceptance": [0.8, 0.5]}

READERS = {"vllm": VllmServer, "sglang": SglangServer, "llamacpp": LlamaCppServer}


@dataclass
class Reply:
    """What came back: status, headers, body, the data of each event, and when each arrived; closed: cut off."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    arrivals: list[float] = field(default_factory=list)
    complete: bool = False

    @property
    def events(self) -> list[str]:
        """The data of every event."""
        return [block[6:] for block in self.body.decode().split("\n\n") if block.startswith("data: ")]

    @property
    def chunks(self) -> list[dict[str, Any]]:
        """The events that are JSON objects."""
        return [json.loads(data) for data in self.events if data != "[DONE]"]

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.body)

    @property
    def text(self) -> str:
        """The content of a stream's choices."""
        said = [choice for chunk in self.chunks for choice in chunk["choices"]]
        return "".join(one.get("text") or (one.get("delta") or {}).get("content") or "" for one in said)

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode().lower()] = value.decode()

    def on_body(self, body: bytes) -> None:
        self.body += body
        self.arrivals.append(time.monotonic())

    def on_message_complete(self) -> None:
        self.complete = True


@dataclass
class Running:
    """A server in this loop."""

    port: int
    service: Service
    server: SimulatedServer
    log: list[str]

    async def get(self, path: str) -> Reply:
        """GET."""
        return await self.request("GET", path, b"")

    async def post(self, path: str, body: Any, timeout: float = 20.0) -> Reply:
        """POST an object (or raw bytes)."""
        return await self.request("POST", path, body if isinstance(body, bytes) else json.dumps(body).encode(), timeout)

    async def stream(self, prompt: str = "hello", tokens: int = 8, path: str = CHAT, **fields: Any) -> Reply:
        """A streamed answer of so many tokens."""
        said: dict[str, Any] = (
            {"messages": [{"role": "user", "content": prompt}]} if path == CHAT else {"prompt": prompt}
        )
        body = {**said, "max_tokens": tokens, "stream": True, "stream_options": {"include_usage": True}, **fields}
        return await self.post(path, body)

    async def request(self, method: str, path: str, body: bytes, timeout: float = 20.0) -> Reply:
        """One request on a connection of its own, read to its end, a cut or the time-out."""
        reply = Reply()
        parser = httptools.HttpResponseParser(reply)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = f"{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        try:
            async with asyncio.timeout(timeout):
                while not reply.complete and (data := await reader.read(65536)):
                    parser.feed_data(data)
                    reply.status = parser.get_status_code()
        except TimeoutError:
            pass
        finally:
            writer.close()
        return reply

    async def sample(self) -> Sample:
        """A sample by the lab's own reader, in a thread: the server needs this loop."""
        return await asyncio.to_thread(self._reader().sample)

    async def describe(self) -> dict[str, Any]:
        """What the lab's own reader finds."""
        facts = await asyncio.to_thread(self._reader().describe)
        return {key: fact.value for key, fact in facts.items()}

    def _reader(self) -> Server:
        truth = self.server.truth
        return READERS[truth.dialect](f"http://127.0.0.1:{self.port}", truth.model)

    def truth(self, from_s: float, to_s: float) -> dict[str, Any]:
        """The server's own account between two monotonic seconds."""
        return self.service.summary(from_s, to_s)


@asynccontextmanager
async def serving(**flags: Any) -> AsyncIterator[Running]:
    """A server of that truth; double underscores in names are dots."""
    truth = from_flags({"time_factor": 20.0, **{name.replace("__", "."): value for name, value in flags.items()}})
    truth = truth.resolved()
    kind = dialect_of(truth.dialect)
    service = Service(truth, 0, kind.bounds)
    dialect = kind(service)
    log: list[str] = []
    dialect.log = lambda *lines: log.extend(lines)  # type: ignore[method-assign]
    server = SimulatedServer(service, dialect)
    listener = await listen(server, "127.0.0.1", 0)
    service.begin(asyncio.get_running_loop())
    port = listener.sockets[0].getsockname()[1]
    log += dialect.start_lines(f"http://127.0.0.1:{port}")
    try:
        yield Running(port, service, server, log)
    finally:
        listener.close()
        for connection in list(server.connections):
            connection.cut()


@asynccontextmanager
async def busy(running: Running, clients: int, tokens: int = 4000) -> AsyncIterator[None]:
    """So many clients in the middle of long answers; they leave at the end."""
    tasks = [asyncio.create_task(running.stream(f"client {client}", tokens)) for client in range(clients)]
    service = running.service
    async with asyncio.timeout(20):
        while service.generation_requests < clients or not service.journal.step_end_s:
            await asyncio.sleep(0.005)
        seen = len(service.journal.step_end_s)
        while len(service.journal.step_end_s) < seen + 3 * len(service.ranks):  # everybody has found a place
            await asyncio.sleep(0.005)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def crowd(running: Running, clients: int, seconds: float, tokens: int = 32, **fields: Any) -> list[Reply]:
    """So many clients with one request in flight each, for so many real seconds."""
    end = time.monotonic() + seconds
    replies: list[Reply] = []

    async def one(client: int) -> None:
        count = 0
        while time.monotonic() < end:
            replies.append(await running.stream(f"client {client} asks {count}", tokens, **fields))
            count += 1

    await asyncio.gather(*(one(client) for client in range(clients)))
    return replies


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run an asynchronous test."""
    asyncio.run(test())
