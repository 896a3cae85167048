"""Breaks the load client, the observer or the prompts on purpose, for as long as a `with` block lasts.

Without faults of the lab's own parts, its alarms about them would be shown never to ring. The client runs in a process
of its own, so another program is started in its place (`broken_client`); the others are patched in this process.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from typing import Any
from unittest.mock import patch

from lab.load import client_process, summary
from lab.load.kinds import chat
from lab.observe import timeline

Break = Callable[[], AbstractContextManager[Any]]


def pool_of(connections: int) -> Break:
    """The client has so many connections; further requests wait for one before they are sent."""
    return _client("pool", connections)


def busy(milliseconds: float) -> Break:
    """The client computes for so long (real time) over every chunk."""
    return _client("busy", milliseconds)


def leaving(clients: int, share: float) -> Break:
    """So many clients send nothing more after that share of the window."""
    return _client("leaving", clients, share)


def only(requests: int) -> Break:
    """The load ends after so many requests, each from a client of its own."""
    return _client("only", requests)


def more(clients: int) -> Break:
    """So many clients more than asked for."""
    return _client("more", clients)


def no_tokenizer() -> AbstractContextManager[Any]:
    """The client finds no tokenizer at the server."""
    return _client("no_tokenizer")()


def sampling(each: float, most: int | None = None, around_s: float = 0.0) -> Break:
    """The observer reads once in that share of the window, `most` times and never again, and watches so many real
    seconds longer at both ends."""

    class Watch(timeline.watch):
        _left = count(-(most or 0))

        def __enter__(self) -> Any:
            super().__enter__()
            time.sleep(around_s)
            return self

        def __exit__(self, *error: Any) -> None:
            time.sleep(around_s)
            super().__exit__(*error)

        def _read(self) -> dict[str, float | None]:
            row = super()._read()
            ended = most is not None and next(self._left) >= 0
            return {name: row[name] for name in (*timeline.STAMPS, *timeline.KEYS)} if ended else row

    @contextmanager
    def broken() -> Iterator[None]:
        with (
            patch.object(timeline, "watch", Watch),
            patch.object(timeline, "interval_s", lambda window_seconds: each * window_seconds),
        ):
            yield

    return broken


@contextmanager
def salt() -> Iterator[None]:
    """Every question has the same tag, so that one that is asked again is the same prompt."""

    def tags(_: str) -> Iterator[str]:
        while True:
            yield "[same] "

    with patch.object(chat, "tags", tags):
        yield


@contextmanager
def gauge() -> Iterator[None]:
    """The figures of speculation are read from the server's gauge, as other tools do and the lab never does."""
    acceptance = summary._acceptance

    def read(*tables: Any) -> dict[str, float | str | None]:
        return acceptance(*tables) | {"acceptance_source": "gauge"}

    with patch.object(summary, "_acceptance", read):
        yield


def _client(*fault: float | str) -> Break:
    class Popen(subprocess.Popen):
        """Starts the broken client where the client is asked for, everything else as it is."""

        def __init__(self, argv: list[str], *arguments: Any, **options: Any) -> None:
            if argv[-1:] == ["lab.load.client"]:
                argv = [*argv[:-1], "tests.golden.broken_client", *map(str, fault)]
            super().__init__(argv, *arguments, **options)

    @contextmanager
    def broken() -> Iterator[None]:
        with patch.object(client_process.subprocess, "Popen", Popen):
            yield

    return broken
