"""One request and its answer, from the send to the end, over connections that are used again.

Without connections that last every request pays for a handshake that no steady load contains; without one place
that ends an exchange, a request that failed in an unusual way stays in flight for ever.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from functools import partial

from lab.load.answer import Answer
from lab.load.connection import STALE, Connection, Tail
from lab.load.endpoint import Endpoint
from lab.load.events import Fault, error_message

__all__ = ["ABORTED", "Endpoint", "Exchange", "Fault", "Pool"]

GRACE_SECONDS = 0.005
"""How long after `[DONE]` an answer waits for the end of its HTTP body. Servers end it at once, and the connection can
serve the next request; where it stays open, the next request takes another."""
LINGER_SECONDS = 0.25
"""How long such a body may stay open before its connection is closed."""
OPEN_BODIES = 32
"""So many may be open at once: each takes a file, of which a client process has few to spare. More are waited for."""
LOST_CONNECTIONS = 3
ERROR_BODY_BYTES = 65536
ABORTED = Fault("aborted", "still running when the drain time was over; closed by the client")


class Pool:
    """Connections to one endpoint: kept when an answer leaves them open, and the one used last is used first.

    Some servers close a connection after every stream, although their headers say keep-alive (llama.cpp b11549 does).
    When three more kept connections turned out closed than could be used again, none is kept any more.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self._lost = 0

    def exchange(
        self, payload: bytes, answer: Answer, stall_seconds: float, on_first_token: Callable[[], None]
    ) -> Exchange:
        """A request that is ready to run; `on_first_token` is called once, when the first token has arrived."""
        return Exchange(self, payload, answer, stall_seconds, on_first_token)

    def take(self) -> Connection | None:
        """A connection that has served before; None when there is none."""
        return self._idle.pop() if self._idle else None

    def keep(self, connection: Connection) -> None:
        """Keep a connection for the next request."""
        if self._lost < LOST_CONNECTIONS:
            self._idle.append(connection)
        else:
            connection.close()

    def leave(self, connection: Connection) -> bool:
        """Keep a connection once the body of its answer, which is complete, has ended; False: too many are open."""
        if len(self._open) >= OPEN_BODIES:
            return False
        self._open.add(connection)
        connection.leave(Tail(LINGER_SECONDS, partial(self._left, connection)))
        return True

    def _left(self, connection: Connection, reusable: bool) -> None:
        self._open.discard(connection)
        if reusable:
            self.keep(connection)
        else:
            connection.close()

    def count(self, lost: bool) -> None:
        """A kept connection was lost when it was needed, or served once more."""
        self._lost += 1 if lost else -1

    def forget(self, connection: Connection) -> None:
        """A connection was closed."""
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def close(self) -> None:
        """Close the connections that answer nobody."""
        while self._idle:
            self._idle.pop().close()
        while self._open:
            self._open.pop().close()


class Exchange:
    """One POST, from the send to the last byte. Times are monotonic seconds.

    `run` returns None when the answer is complete, else a Fault of kind `connect`, `disconnected`, `http-4xx`,
    `http-5xx`, `rate-limited`, `bad-http`, `bad-sse`, `truncated` (cut inside an event), `server-error` (told inside
    a stream), `empty`, `stalled` or `aborted`.
    sent_s: when the bytes went out on an established connection; None when they never did. end_s: the last event of
    a complete answer, else when the fault was known. reused: the connection had served before. retry_after_s: what
    a refusal asked for. A reused connection that closes before the first byte of an answer was closed by a server
    that had not seen the request: it is sent once more, on a fresh connection, and the times are those of that send.
    """

    def __init__(
        self,
        pool: Pool,
        payload: bytes,
        answer: Answer,
        stall_seconds: float,
        on_first_token: Callable[[], None],
    ) -> None:
        self.answer = answer
        self._on_first_token = on_first_token
        self.status: int | None = None
        self.sent_s: float | None = None
        self.end_s: float | None = None
        self.retry_after_s: float | None = None
        self.reused: bool | None = None
        self.streaming = False
        self._pool = pool
        self._payload = payload
        self._stall_seconds = stall_seconds
        self._final = False
        self._fault: Fault | None = None
        self._over: asyncio.Future[None] | None = None
        self._connecting: asyncio.Task | None = None
        self._connection: Connection | None = None
        self._body = b""
        self._encoding = ""
        self._timer: asyncio.TimerHandle | None = None
        self._lingering = False

    async def run(self) -> Fault | None:
        """Send, and read to the end; returns what went wrong, if anything. Cancelling closes the connection."""
        try:
            connection = self._pool.take()
            self.reused = connection is not None
            if connection is not None:
                await self._attempt(connection)
                if self._final:
                    return self._fault
                self.reused = False
            connection = await self._connect()
            if connection is not None:
                await self._attempt(connection)
            return self._fault
        except asyncio.CancelledError:
            self.abort()
            raise

    def abort(self) -> None:
        """Close the connection of a request that is no longer wanted."""
        self._end(ABORTED)
        if self._connecting is not None:
            self._connecting.cancel()

    async def _connect(self) -> Connection | None:
        """A fresh connection; None when there was none to be had, or nobody wants it any more."""
        endpoint = self._pool.endpoint
        place = f"{endpoint.host}:{endpoint.port}"
        loop = asyncio.get_running_loop()
        self._connecting = loop.create_task(
            loop.create_connection(
                lambda: Connection(self._pool.forget), endpoint.host, endpoint.port, ssl=endpoint.tls
            )
        )
        await asyncio.wait((self._connecting,), timeout=self._stall_seconds)
        task, self._connecting = self._connecting, None
        try:
            _, connection = task.result()
        except (asyncio.CancelledError, asyncio.InvalidStateError):
            task.cancel()
            self._end(Fault("connect", f"{place}: no connection within {self._stall_seconds:g} s"))
            return None
        except (OSError, ValueError) as error:
            self._end(Fault("connect", f"{place}: {error or type(error).__name__}"))
            return None
        if self._final:
            connection.close()
            return None
        return connection

    async def _attempt(self, connection: Connection) -> None:
        """Send on this connection, until it has no more to say."""
        loop = asyncio.get_running_loop()
        self._over = loop.create_future()
        self._connection = connection
        self.sent_s = connection.send(self, self._payload)
        self._timer = loop.call_later(self._stall_seconds, self._check_stall)
        await self._over

    def take_status(self, status: int) -> None:
        """See `connection.Reader`."""
        self.status = status
        self.streaming = self.streaming and status == 200 and not self._encoding

    def take_header(self, name: bytes, value: bytes) -> None:
        """See `connection.Reader`."""
        if name == b"content-type":
            self.streaming = value.lower().startswith(b"text/event-stream")
        elif name == b"retry-after":
            self.retry_after_s = seconds_to_wait(value.decode("latin-1"))
        elif name == b"content-encoding" and value.lower() != b"identity":
            self._encoding = value.decode("latin-1")

    def take_body(self, body: bytes) -> None:
        """See `connection.Reader`."""
        self._body = (self._body + body)[:ERROR_BODY_BYTES]

    def tell_first_token(self) -> None:
        """See `connection.Reader`."""
        self._on_first_token()

    def await_end(self) -> None:
        """See `connection.Reader`."""
        if not self._lingering:
            self._lingering = True
            self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(GRACE_SECONDS, self._leave)

    def finish(self, reusable: bool) -> None:
        """See `connection.Reader`."""
        if self.reused:
            self._pool.count(lost=False)
        if reusable:
            self._pool.keep(self._connection)
            self._connection = None
        self.cut()

    def fail(self, fault: Fault) -> None:
        """See `connection.Reader`."""
        if fault is STALE and self.reused:
            self._timer.cancel()
            self._connection = None
            self._pool.count(lost=True)
            self._over.set_result(None)
        else:
            self._end(fault)

    def cut(self) -> None:
        """See `connection.Reader`."""
        if self._final:
            return
        if self.status is None:
            self._end(STALE)
        elif self.status != 200:
            kind = "rate-limited" if self.status == 429 else f"http-{self.status // 100}xx"
            words = f"a message in {self._encoding}" if self._encoding else error_message(self._body)
            self._end(Fault(kind, words or f"HTTP {self.status} without a message"))
        elif self._encoding:
            text = f"the answer is compressed (Content-Encoding: {self._encoding}), which nobody asked for"
            self._end(Fault("bad-http", f"{text}; switch that off in the server or the proxy before it"))
        elif not self.streaming:
            self._end(Fault("bad-sse", f"the answer is not an event stream: {error_message(self._body)}"))
        else:
            self._end(self.answer.close(time.monotonic()))

    def _leave(self) -> None:
        """The body stays open: the answer is complete without its end."""
        if self._pool.leave(self._connection):
            self._connection = None
            if self.reused:
                self._pool.count(lost=False)
            self.cut()
        else:
            self._timer = asyncio.get_running_loop().call_later(LINGER_SECONDS, self.cut)

    def _check_stall(self) -> None:
        quiet = time.monotonic() - self._connection.heard_s
        if quiet >= self._stall_seconds:
            self._end(Fault("stalled", f"no byte for {self._stall_seconds:g} s"))
        else:
            self._timer = asyncio.get_running_loop().call_later(self._stall_seconds - quiet, self._check_stall)

    def _end(self, fault: Fault | None) -> None:
        """The end, once: settle the answer and leave nothing that points back here."""
        if self._final:
            return
        self._final, self._fault = True, fault and self._pool.endpoint.presentable(fault)
        self.answer.settle()
        self.end_s = time.monotonic() if fault else self.answer.last_event_s
        self._on_first_token = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._over is not None and not self._over.done():
            self._over.set_result(None)


def seconds_to_wait(value: str) -> float | None:
    """The seconds of a Retry-After header, a number or an HTTP date (RFC 9110, 10.2.3), from now; None for neither."""
    try:
        seconds = float(value)
    except ValueError:
        from email.utils import parsedate_to_datetime

        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except ValueError:
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
