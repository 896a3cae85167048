"""One load client as a child process: started, listened to, and never outliving its owner.

Without one place for it, an interrupted trial leaves a client behind that goes on loading the server of the
next.
"""

from __future__ import annotations

import queue
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import orjson

from lab.errors import LabError

ENDING_SECONDS = 5.0
Events = queue.SimpleQueue  # of (process, event or None at its end)


class LoadFailed(LabError):
    """The trial could not be measured: the server died or refuses everything, or the client broke."""


class ClientProcess:
    """A client in a session of its own; leaving the block ends it, and so does the owner's death.

    What it says goes to `events` as (`number`, message), and (`number`, None) when it ended.
    """

    def __init__(self, job: dict[str, Any], number: int, events: Events) -> None:
        self._job = job
        self._number = number
        self._events = events

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
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()
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

    def give_job(self) -> None:
        """Tell it what to do; it answers `ready`."""
        self.tell(orjson.dumps(self._job))

    def tell(self, line: bytes) -> None:
        """One line to its standard input; raises LoadFailed with its last words when it has ended."""
        try:
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self.ended() from None

    def ended(self) -> LoadFailed:
        """The error for a client that ended before its time, with its last words."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(ENDING_SECONDS)  # its pipes close a little earlier than it ends
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        words = lines[-1] if lines else f"exit code {self._process.poll()}, no message"
        return LoadFailed(f"the load client ended before its time: {words}")

    def _listen(self, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                self._events.put((self._number, orjson.loads(line)))
        self._events.put((self._number, None))
