"""The load client as a child process: started, listened to, and never outliving its owner.

Without one place for it, an interrupted trial leaves a client behind that goes on loading the server of the
next.
"""

from __future__ import annotations

import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import orjson

from lab.errors import LabError
from lab.observe.machine import is_running

LOOK_SECONDS = 0.25
SILENCE_SECONDS = 60.0
ENDING_SECONDS = 5.0


class LoadFailed(LabError):
    """The trial could not be measured: the server died or refuses everything, or the client broke."""


class ClientProcess:
    """The load client as a child in a session of its own; leaving the block ends it, and so does the owner's death."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._job = job
        self._events: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "lab.load.client"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
            cwd=Path(__file__).parents[2],
        )
        threading.Thread(target=_listen, args=(self._process.stdout, self._events), daemon=True).start()
        self._tell(orjson.dumps(self._job))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def go(self) -> None:
        """Let the client send."""
        self._tell(b"go")

    def wait_for(
        self, event: str, server_pid: int | None, on_progress: Callable[[dict[str, Any]], None] | None
    ) -> dict[str, Any]:
        """The content of the client's next `event`; raises LoadFailed when server or client ends or falls silent."""
        heard_s = time.monotonic()
        while time.monotonic() - heard_s < SILENCE_SECONDS:
            try:
                message = self._events.get(timeout=LOOK_SECONDS)
            except queue.Empty:
                if server_pid is not None and not is_running(server_pid):
                    raise LoadFailed(f"the server process {server_pid} ended during the trial") from None
                continue
            if message is None:
                raise LoadFailed(f"the load client ended before its time: {self._last_words()}")
            heard_s = time.monotonic()
            if on_progress is not None:
                on_progress(message)
            if message["event"] == event:
                return message
        raise LoadFailed(f"the load client was silent for {SILENCE_SECONDS:g} s while we waited for '{event}'")

    def _tell(self, line: bytes) -> None:
        try:
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self._process.wait()
            raise LoadFailed(f"the load client ended before its time: {self._last_words()}") from None

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {self._process.poll()}, no message"


def _listen(stream: IO[bytes], events: queue.SimpleQueue[dict[str, Any] | None]) -> None:
    with stream:
        for line in stream:
            events.put(orjson.loads(line))
    events.put(None)
