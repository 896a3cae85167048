"""The client processes of one trial, conducted as one: the same start, the same window.

Without several processes one core limits the load, and its limit passes for the server's; without one conductor
each process would measure a window of its own.
"""

from __future__ import annotations

import math
import os
import queue
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lab.errors import DiskFullError
from lab.load.client_process import ClientProcess, Events, LoadFailed

CLIENTS_PER_PROCESS = 512
LOOK_SECONDS = 0.25
SILENCE_SECONDS = 60.0
LEAD_SECONDS = 0.05
"""How far ahead of the clock a start and a window are announced, so that every process has heard of them in time."""
COUNTED = ("in_flight", "sent", "failed", "output_tokens")
Message = dict[str, Any]


def process_count(concurrency: int) -> int:
    """How many client processes a load takes: one for every 512 clients, and never more than usable cores."""
    return min(math.ceil(concurrency / CLIENTS_PER_PROCESS), len(os.sched_getaffinity(0)))


class Clients:
    """`with Clients(job, paths, server_pid, on_progress) as clients:` runs one process for each of `paths`.

    Each writes its requests to its own path. `on_progress` receives `ready` (with all pids), `progress` (summed),
    `window-open`, `window-closed`, `drained` and `done`, each once all have come so far. Every method raises
    LoadFailed when the server's process, when it is on this machine, or a client ends or falls silent, or gives
    up; and DiskFullError when a client could not write its record. However the block is left, the clients end.
    """

    def __init__(
        self,
        job: Message,
        paths: list[Path],
        server_pid: int | None,
        on_progress: Callable[[Message], None] | None,
    ) -> None:
        self._server_pid = server_pid
        self._on_progress = on_progress
        self._events: Events = queue.SimpleQueue()
        self._processes = [
            ClientProcess(
                job | {"process": number, "processes": len(paths), "requests_path": str(path)}, number, self._events
            )
            for number, path in enumerate(paths)
        ]
        self._seconds, self._server_url = job["seconds"], job["server_url"]
        self._heard_s: list[float] = []
        self._counts: list[Message] = [{} for _ in paths]
        self._unread: list[dict[str, Message]] = [{} for _ in paths]
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for process in self._processes:
                stack.enter_context(process)
            self._heard_s = [time.monotonic()] * len(self._processes)
            for process in self._processes:
                process.give_job()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def wait_until_ready(self) -> None:
        """Until every process could send."""
        ready = self._hear_all("ready")
        self._report({"event": "ready", "pids": [message["pid"] for message in ready]})

    def measure(self) -> Message:
        """Start the load, order the window as soon as all are warm, wait for the drain; what all know of themselves.

        The outcome: opened_s, closed_s (monotonic), opened_at (UTC), clients_started and `processes` counted,
        loop_lag_mean_ms, loop_lag_p99_ms, loop_lag_max_ms, cpu_share and drain_seconds of the process that is worst
        off, drained.
        """
        self._tell_all(b"go %r" % (time.monotonic() + LEAD_SECONDS))
        self._hear_all("warm")
        opened_s = time.monotonic() + LEAD_SECONDS
        opened_at = datetime.now(UTC) + timedelta(seconds=LEAD_SECONDS)
        closed_s = opened_s + self._seconds
        self._tell_all(b"window %r %r" % (opened_s, closed_s))
        for event in ("window-open", "window-closed", "drained"):
            self._report(self._hear_all(event)[0])
        outcomes = self._hear_all("done")
        self._report({"event": "done"})
        return {
            "opened_s": opened_s,
            "closed_s": closed_s,
            "opened_at": opened_at.isoformat(timespec="milliseconds"),
            "clients_started": sum(outcome["clients_started"] for outcome in outcomes),
            "processes": len(outcomes),
            "drained": all(outcome["drained"] for outcome in outcomes),
            **{
                name: max((o[name] for o in outcomes if o[name] is not None), default=None)
                for name in ("loop_lag_mean_ms", "loop_lag_p99_ms", "loop_lag_max_ms", "cpu_share", "drain_seconds")
            },
        }

    def _tell_all(self, line: bytes) -> None:
        for process in self._processes:
            process.tell(line)

    def _hear_all(self, event: str) -> list[Message]:
        """That event of every process, in their order."""
        while not all(event in unread for unread in self._unread):
            self._hear(event)
        return [unread.pop(event) for unread in self._unread]

    def _hear(self, event: str) -> None:
        """Take in the next message, whosever it is."""
        from lab.observe.machine import is_running

        try:
            number, message = self._events.get(timeout=LOOK_SECONDS)
        except queue.Empty:
            if self._server_pid is not None and not is_running(self._server_pid):
                raise LoadFailed(f"the server process {self._server_pid} ended during the trial") from None
            if time.monotonic() - min(self._heard_s) > SILENCE_SECONDS:
                raise LoadFailed(
                    f"a load client was silent for {SILENCE_SECONDS:g} s while we waited for '{event}'"
                ) from None
            return
        if message is None:
            if "done" not in self._unread[number]:
                raise self._processes[number].ended()
            self._heard_s[number] = math.inf
            return
        self._heard_s[number] = time.monotonic()
        self._take(number, message)

    def _take(self, number: int, message: Message) -> None:
        if message["event"] == "broken":
            raise (DiskFullError if message["exit_code"] == DiskFullError.exit_code else LoadFailed)(message["text"])
        if message["event"] == "done" and message["failure"]:
            raise LoadFailed(f"{self._server_url}: {message['failure']}")
        if message["event"] == "progress":
            self._counts[number] = message
            if number == 0:
                sums = {name: sum(counts.get(name, 0) for counts in self._counts) for name in COUNTED}
                self._report(message | sums)
        elif message["event"] != "recount":
            self._unread[number][message["event"]] = message

    def _report(self, message: Message) -> None:
        if self._on_progress is not None:
            self._on_progress(message)
