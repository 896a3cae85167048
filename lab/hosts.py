"""Where a process lives, and the promise that it dies with its owner.

Without one way to start processes, each caller would forget a different case: a leaked pipe, an interrupt
that reaches the server, a killed kernel that leaves it running, a second campaign on the same cores.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from lab.errors import InputError, LabError
from lab.locks import host_lock

__all__ = ["Exit", "LocalHost", "Process", "environment_of", "host_lock", "marked_processes"]

MARKER = "LAB_LAUNCH"
GRACE_SECONDS = 10.0
_KEEPER = Path(__file__).with_name("keeper.py")
_KEEPER_START_SECONDS = 60.0
_KEEPER_MARGIN_SECONDS = 10.0
_WAIT_SLICE_SECONDS = 0.1
_KILLED = -9


@dataclass(frozen=True)
class Exit:
    """How a process ended: code (negative: the signal), how long stopping took, whether by SIGKILL."""

    code: int | None
    seconds: float
    forced: bool


class Process:
    """A process under its own keeper, made by `LocalHost.start`; it ends with this object or its owner."""

    def __init__(self, keeper: subprocess.Popen[bytes], marker: str, grace_seconds: float) -> None:
        self.marker = marker
        self.grace_seconds = grace_seconds
        self._keeper = keeper
        self._lock = threading.RLock()
        self._unread = b""
        self._end: Exit | None = None
        self.pid = self._first_report()

    def poll(self) -> int | None:
        """The exit code once the process and all it started have ended, else None; never waits."""
        return self.wait(0)

    def wait(self, timeout: float | None = None) -> int | None:
        """As `poll`, waiting up to `timeout` seconds (None: for ever)."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _WAIT_SLICE_SECONDS if deadline is None else max(0.0, deadline - time.monotonic())
            with self._lock:  # in slices, so that another thread may ask `alive()` meanwhile
                if self._end is None:
                    self._end = self._last_report(min(left, _WAIT_SLICE_SECONDS))
                if self._end is not None:
                    return self._end.code
            if left == 0:
                return None

    def alive(self) -> bool:
        """Whether the process has not ended."""
        self.poll()
        return self._end is None

    def stop(self, grace: float | None = None) -> Exit:
        """End the process and all its descendants: SIGTERM, `grace` seconds, SIGKILL. Safe to call again."""
        grace = self.grace_seconds if grace is None else grace
        started = time.monotonic()
        with self._lock:
            self._ask_to_stop(grace)
        self.wait(grace + _KEEPER_MARGIN_SECONDS)
        if self._end is None:
            self._keeper.kill()  # its child dies with it; `_last_report` ends the rest
            self.wait()
        assert self._end is not None
        return Exit(self._end.code, round(time.monotonic() - started, 3), self._end.forced)

    def _ask_to_stop(self, grace: float) -> None:
        pipe = self._keeper.stdin
        if pipe is None or pipe.closed:
            return
        with contextlib.suppress(OSError):  # the keeper may have ended on its own
            pipe.write(f"{grace}\n".encode())
            pipe.flush()
        with contextlib.suppress(OSError):
            pipe.close()

    def _close_pipes(self) -> None:
        for pipe in (self._keeper.stdin, self._keeper.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _last_report(self, timeout: float) -> Exit | None:
        """How the process ended, or None while it runs."""
        line = self._next_report(timeout)
        if line is None:
            return None
        if not line:
            self._sweep()
        self._keeper.wait()
        self._close_pipes()
        if not line:
            return Exit(_KILLED, 0.0, forced=True)
        return Exit(line["exit"], 0.0, line["forced"])

    def _first_report(self) -> int:
        line = self._next_report(_KEEPER_START_SECONDS)
        if line and "pid" in line:
            return int(line["pid"])
        self._keeper.kill()
        self._keeper.wait()
        self._close_pipes()
        if line and "error" in line:
            raise InputError(f"cannot start the process: {line['error']}")
        raise LabError("the keeper did not start its process; see the messages above")

    def _next_report(self, timeout: float | None) -> dict[str, Any] | None:
        """The keeper's next line; {} when it ended without one; None at the time-out."""
        assert self._keeper.stdout is not None
        descriptor = self._keeper.stdout.fileno()
        deadline = None if timeout is None else time.monotonic() + timeout
        while b"\n" not in self._unread:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([descriptor], [], [], left)[0]:
                return None
            data = os.read(descriptor, 4096)
            if not data:
                return {}
            self._unread += data
        line, self._unread = self._unread.split(b"\n", 1)
        return json.loads(line)

    def _sweep(self) -> None:
        """After a keeper's violent end: kill what still carries this launch's marker."""
        for pid in marked_processes(self.marker, exact=True):
            if pid != os.getpid():
                with contextlib.suppress(psutil.NoSuchProcess):
                    psutil.Process(pid).kill()


class LocalHost:
    """This machine."""

    def start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        log_path: Path | None,
        marker: str,
        cwd: Path | None = None,
        grace_seconds: float = GRACE_SECONDS,
        inherit_output: bool = False,
    ) -> Process:
        """Start `argv` under a keeper, with exactly `env` plus LAB_LAUNCH=`marker` as its environment.

        Output is appended to `log_path`; without one it goes nowhere, or to this process's standard error
        with `inherit_output`. Under another keeper choose a smaller grace than the outer one's, so that this
        process can stop gracefully. Raises InputError when the command cannot be executed, LabError when the
        keeper fails.
        """
        if not marker:
            raise ValueError("a marker is needed: it is how a forgotten process is recognised")
        command = [sys.executable, str(_KEEPER), "--grace", str(grace_seconds), "--owner", str(os.getpid())]
        if log_path is not None:
            command += ["--log", str(log_path.resolve())]
        if inherit_output:
            command.append("--inherit-output")
        try:
            keeper = subprocess.Popen(
                [*command, "--", *argv],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**env, MARKER: marker},
                cwd=cwd,
                start_new_session=True,
            )
        except OSError as error:
            raise InputError(f"cannot start {argv[0]!r} in {cwd or Path.cwd()}: {error}") from error
        return Process(keeper, marker, grace_seconds)


def marked_processes(marker_prefix: str, exact: bool = False) -> list[int]:
    """Pids whose environment has LAB_LAUNCH with a value starting so, or exactly so (from /proc/*/environ).

    Keepers are listed beside the processes that they keep. Processes of other users cannot be read and are
    not listed.
    """
    wanted = f"{MARKER}={marker_prefix}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(v == wanted if exact else v.startswith(wanted) for v in variables):
            found.append(int(entry.name))
    return sorted(found)


def environment_of(pid: int) -> dict[str, str]:
    """The environment a process was started with (from /proc/PID/environ); raises OSError when it is gone."""
    pairs = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)
