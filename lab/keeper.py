"""Own one child process and end it, with everything it started, when the owner goes away.

Without it a killed notebook kernel leaves its server behind: the server keeps the memory and the port, slows
the next measurement, and nobody knows whose it is.

Run by file path with plain `python` (standard library and psutil only):

    python keeper.py [--log FILE] [--inherit-output] [--grace SECONDS] -- COMMAND ARG…

- Standard input is a pipe from the owner. A line on it is a new grace in seconds; its end means "stop".
- Standard output carries JSON lines: `{"pid": …}` after the start, or `{"error": …}` when the command cannot
  be started, and `{"exit": code, "forced": bool}` at the end (a negative code is the signal that ended the
  child).
- The child runs in a session of its own, so that an interrupt at the terminal does not reach it.
- Stopping: SIGTERM to the child's process group; once the child has gone, or half the grace has passed,
  SIGTERM to every other descendant; when the grace has passed, SIGKILL to whatever is left. A keeper kept
  under another keeper thus gets its chance to stop its own child first: give the outer one the longer grace.
- The keeper is a child subreaper, so descendants that moved to other sessions are found too. Its own child
  dies with it (parent-death signal) should the keeper itself be killed.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
POLL_SECONDS = 0.02
OWNER_CHECK_SECONDS = 0.5
SWEEP_SECONDS = 5.0
CANNOT_START = 127

_libc = ctypes.CDLL(None, use_errno=True)


class Keeper:
    """The one child, what is known of its end, and how it is ended."""

    def __init__(self, grace_seconds: float, owner_pid: int) -> None:
        self.grace_seconds = grace_seconds
        self.owner_pid = owner_pid
        self.exit_code: int | None = None
        self.forced = False
        self.stop_asked = False
        self._pid = 0
        self._unread = b""

    def start(self, command: list[str], output: int) -> None:
        """Start the child; raises OSError when the command cannot be executed."""
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=given_environment(),
            start_new_session=True,
            preexec_fn=die_with_parent(os.getpid()),
        )
        self._pid = child.pid
        child.returncode = 0  # `_reap` collects every child; Popen itself must never wait
        report(pid=child.pid)

    def run(self, wakeup: int) -> None:
        """Until the child has ended and nothing it started is left."""
        while self.exit_code is None and not self.stop_asked:
            readable, _, _ = select.select([0, wakeup], [], [], OWNER_CHECK_SECONDS)
            if wakeup in readable:
                os.read(wakeup, 4096)
            if 0 in readable:
                self._read_owner()
            if os.getppid() != self.owner_pid:
                self.stop_asked = True  # a forked sibling may still hold the pipe's other end
            self._reap()
        self._end_everything()
        report(exit=self.exit_code, forced=self.forced)

    def _read_owner(self) -> None:
        data = os.read(0, 4096)
        if not data:
            self.stop_asked = True
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            self.grace_seconds = float(line)

    def _reap(self) -> None:
        """Collect every ended process that is, or was handed over to, a child of the keeper."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._pid:
                self.exit_code = os.waitstatus_to_exitcode(status)

    def _end_everything(self) -> None:
        started = time.monotonic()
        with contextlib.suppress(ProcessLookupError):  # also after the child's own end: its helpers share the group
            os.killpg(self._pid, signal.SIGTERM)
            os.killpg(self._pid, signal.SIGCONT)  # a stopped process could not act on it
        self._wait(lambda: self.exit_code is not None, started + self.grace_seconds / 2)
        for process in descendants():
            if process.pid != self._pid:
                send(process, signal.SIGTERM)
        if self._wait(self._all_ended, started + self.grace_seconds):
            return
        self.forced = True
        give_up = time.monotonic() + SWEEP_SECONDS
        while not self._all_ended() and time.monotonic() < give_up:
            for process in descendants():
                send(process, signal.SIGKILL)
            self._wait(self._all_ended, time.monotonic() + POLL_SECONDS)

    def _all_ended(self) -> bool:
        return self.exit_code is not None and not descendants()

    def _wait(self, done: Callable[[], bool], deadline: float) -> bool:
        """Reap until `done()` or the deadline; whether it was done."""
        while True:
            self._reap()
            if done():
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_SECONDS)


def die_with_parent(parent: int) -> Callable[[], None]:
    """For the child between fork and exec: ask for SIGKILL at the parent's death, even one just passed."""

    def prepare() -> None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)

    return prepare


def given_environment() -> dict[bytes, bytes]:
    """The environment the keeper was started with, without what Python's start added to it (LC_CTYPE)."""
    pairs = Path("/proc/self/environ").read_bytes().split(b"\0")
    return dict(pair.split(b"=", 1) for pair in pairs if b"=" in pair)


def descendants() -> list[psutil.Process]:
    """Every process below this one that is still running."""
    return [child for child in psutil.Process().children(recursive=True) if is_running(child)]


def is_running(process: psutil.Process) -> bool:
    """Whether a process exists and is more than a zombie."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def send(process: psutil.Process, number: signal.Signals) -> None:
    """Signal a process, unless it has gone (psutil refuses a pid that now belongs to another)."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)


def report(**fields: object) -> None:
    """One JSON line to the owner, who may be gone."""
    with contextlib.suppress(OSError):
        os.write(1, (json.dumps(fields) + "\n").encode())


def open_output(log: str | None, inherit: bool) -> int:
    """The descriptor for the child's output: a log file, the owner's standard error, or nowhere."""
    if log is not None:
        return os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    return 2 if inherit else os.open(os.devnull, os.O_WRONLY)


def main() -> int:
    """Parse, become subreaper, keep the child; the exit status is 0 unless it could not be started."""
    parser = argparse.ArgumentParser(description="Own one child process; end it when standard input closes.")
    parser.add_argument("--log", help="append the child's output to this file")
    parser.add_argument("--inherit-output", action="store_true", help="child's output to the keeper's stderr")
    parser.add_argument("--grace", type=float, default=10.0, help="seconds between SIGTERM and SIGKILL")
    parser.add_argument("--owner", type=int, default=os.getppid(), help="pid of the owner")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()

    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    keeper = Keeper(options.grace, options.owner)
    wakeup, notify = os.pipe()
    os.set_blocking(notify, False)
    signal.set_wakeup_fd(notify, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: setattr(keeper, "stop_asked", True))
    for number in (signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)  # a handler, not SIG_IGN: the child would inherit that
    try:
        keeper.start(options.command, open_output(options.log, options.inherit_output))
    except (OSError, subprocess.SubprocessError) as error:
        report(error=str(error))
        return CANNOT_START
    keeper.run(wakeup)
    return 0


if __name__ == "__main__":
    sys.exit(main())
