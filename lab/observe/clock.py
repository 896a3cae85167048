"""How far the server's clock is from ours, and how far off that may be.

Without it, times that a server on another machine stamps (start, finish, a log line) are compared with ours as if
the two clocks agreed, and a second of difference moves requests into or out of a window.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

ROUNDS = 8
DATE_STEP_S = 1.0  # the resolution of an HTTP date, and how long a server may go on sending the same one
_POLL_SECONDS = 0.05
_EDGE_SECONDS = 5.0
_TIMEOUT_SECONDS = 5.0

Clock = Callable[[], float]


@dataclass(frozen=True)
class Offset:
    """Another clock against ours: it shows our time plus `offset_s`, certain to within ± `error_s` (seconds)."""

    offset_s: float
    error_s: float

    @classmethod
    def local(cls) -> Offset:
        """This machine's own clock, which all its processes share."""
        return cls(0.0, 0.0)


def offset(read_remote_s: Clock, rounds: int = ROUNDS, now: Clock | None = None) -> Offset:
    """The offset of a clock that `read_remote_s` asks for its unix seconds, to a resolution far below the round trip.

    Cristian's algorithm: the remote clock was read somewhere within the round trip, so its middle is wrong by at most
    half of it; of several rounds the shortest is the best (F. Cristian, *Probabilistic clock synchronization*,
    Distributed Computing 3, 1989, 146-158). Lets through what `read_remote_s` raises. `now`: our unix seconds.
    """
    now = now or steady_wall()
    found = []
    for _ in range(rounds):
        sent_s = now()
        remote_s = read_remote_s()
        received_s = now()
        found.append(_between(remote_s - received_s, remote_s - sent_s))
    return min(found, key=lambda one: one.error_s)


def http_date_offset(url: str) -> Offset | None:
    """The offset of the machine that answers at `url`, from the `Date` of its answers; takes about one second.

    None when it sends no (readable) `Date`, or one that stands still. Error: see `date_edge`, slightly above half a
    second. Any status will do as an answer; raises requests.RequestException when there is none.
    """
    from lab.http_session import session

    with session(close=True) as made:

        def read_date_s() -> float | None:
            answer = made.head(url, timeout=_TIMEOUT_SECONDS, allow_redirects=False)
            return _unix_s(answer.headers.get("Date"))

        return date_edge(read_date_s)


def date_edge(
    read_date_s: Callable[[], float | None], now: Clock | None = None, pause: Callable[[float], None] = time.sleep
) -> Offset | None:
    """The offset of a clock that shows whole seconds, from polling until the second changes.

    The new date D was made between the sending of the last poll that brought the old one and the arrival of the first
    that brought the new one, at a remote time from D to D + 1: a server may keep one date for a second from an
    arbitrary moment on (uvicorn's `Server.on_tick` does, and with it SGLang and vLLM), and nothing in its answers tells
    it from one that makes a new date each time. Error: half a second and half the time between those polls. None when
    a date is None or does not change within five seconds.
    """
    now = now or steady_wall()
    end_s = now() + _EDGE_SECONDS
    before_s, before_date_s = now(), read_date_s()
    while before_date_s is not None and now() < end_s:
        pause(_POLL_SECONDS)
        sent_s, date_s = now(), read_date_s()
        received_s = now()
        if date_s is not None and date_s > before_date_s:
            return _between(date_s - received_s, date_s + DATE_STEP_S - before_s)
        before_s, before_date_s = sent_s, date_s
    return None


def steady_wall() -> Clock:
    """Our unix time as of this call, carried on by the monotonic clock: nobody steps it while it is in use."""
    anchor_s = time.time() - time.monotonic()
    return lambda: anchor_s + time.monotonic()


def _between(lowest_s: float, highest_s: float) -> Offset:
    return Offset((lowest_s + highest_s) / 2, (highest_s - lowest_s) / 2)


def _unix_s(date: str | None) -> float | None:
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(date).timestamp() if date else None
    except ValueError:
        return None
