"""A small scripted server: each test says which bytes it sends, and in which pieces.

Without it the protocol's rare cases (a stall, a cut connection, a split segment) are tested only when they
hurt.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Awaitable, Callable
from typing import Any

Handler = Callable[[dict[str, Any], asyncio.StreamWriter], Awaitable[None]]


class SseServer:
    """`with SseServer(handler) as server:` answers every POST with `handler(body, writer)` on a thread of its own.

    keep: read further requests from a connection after an answer, until the handler closes the writer; else every
    connection is closed after its first. tls: speak https.
    """

    def __init__(self, handler: Handler, keep: bool = False, tls: ssl.SSLContext | None = None) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.heads: list[bytes] = []
        self.connections = 0
        self.running = 0
        self.finished = 0
        self._handler = handler
        self._keep = keep
        self._tls = tls
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> SseServer:
        self._thread.start()
        start = asyncio.start_server(self._answer, "127.0.0.1", 0, ssl=self._tls)
        self._server = asyncio.run_coroutine_threadsafe(start, self._loop).result(5)
        self.url = f"http{'s' if self._tls else ''}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def __exit__(self, *error: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    def stop_listening(self) -> None:
        """Refuse new connections and cut those that are open."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(5)

    async def _close(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self._answer_one(reader, writer)
            while self._keep and not writer.is_closing():
                await self._answer_one(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        body = json.loads(await reader.readexactly(length))
        self.heads.append(head)
        self.bodies.append(body)
        self.running += 1
        try:
            await self._handler(body, writer)
            await writer.drain()
        finally:
            self.running -= 1
        self.finished += 1


def event(content: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + (content if isinstance(content, bytes) else json.dumps(content).encode()) + b"\n\n"


def delta(finish: str | None = None, count: int | None = None, **fields: Any) -> bytes:
    """A chat chunk with the given delta fields, and a running token count as llama.cpp gives it."""
    timings = {} if count is None else {"timings": {"predicted_n": count}}
    return event({"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]} | timings)


def usage(completion_tokens: int, prompt_tokens: int = 7, **more: Any) -> bytes:
    """The final chunk with the server's own counts."""
    counts = {"completion_tokens": completion_tokens, "prompt_tokens": prompt_tokens}
    return event({"choices": [], "usage": counts} | more)


ROLE = delta(role="assistant", content=None)
DONE = event(b"[DONE]")


def head(status: int = 200, kind: str = "text/event-stream", **fields: str) -> bytes:
    """A response head; without a length or an encoding the body ends with the connection."""
    lines = [
        f"HTTP/1.1 {status} X",
        f"Content-Type: {kind}",
        *(f"{k.replace('_', '-')}: {v}" for k, v in fields.items()),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def chunked(body: bytes) -> bytes:
    """One piece of a chunked body."""
    return f"{len(body):x}\r\n".encode() + body + b"\r\n"
