"""The load client: `python -m lab.load.client`, a process of its own.

Without its own process the client shares an interpreter with a notebook whose plots and widgets delay the
reading of answers; without a lifeline it goes on loading a server whose owner is dead.

Standard input: one JSON line, the job (`lab.load.job.Job`); then `go <start_s>`; then, after `warm`, `window
<opened_s> <closed_s>` (monotonic seconds); then nothing. Its end means that the owner is gone: the client exits at
once. Standard output: one JSON object a line, `event` first: `ready`, `progress` (each second), `warm`,
`window-open`, `window-closed`, `drained`, `recount` (each second of counting), and `done` with the outcome, after the
table of requests was written; or `broken` when the job cannot be done or the table not be written. The exit code is 0
even when the outcome is a failure: the outcome says so. A client that breaks leaves one line on standard error: what
broke, and where.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import uvloop

from lab.errors import InputError, LabError
from lab.load import record
from lab.load.closed_loop import ClosedLoop
from lab.load.job import Job
from lab.load.loop import Loop
from lab.load.open_loop import OpenLoop
from lab.load.recount import recount

OWNER_GONE = 3
CRASHED = 1
PIPE_BYTES = 1 << 20
OTHER_FILES = 64


def main() -> int:
    """Run the job given on standard input."""
    owner = lines(sys.stdin.fileno())
    line = next(owner, b"")
    if not line:
        return OWNER_GONE
    job = Job.read(line)
    try:
        allow_connections(len(job.clients))
        emit("ready", {"pid": os.getpid()})
        word, _, start_s = next(owner, b"").partition(b" ")
        if word != b"go":
            return OWNER_GONE
        load = uvloop.run(offer(job, float(start_s), owner))
        recount(job, load.requests, partial(emit, "recount", {}))
        record.write(load.requests, load.opened_s, load.closed_s, job.requests_path)
    except LabError as error:
        emit("broken", {"text": str(error), "exit_code": error.exit_code})
        return error.exit_code
    emit("done", load.outcome())
    return 0


async def offer(job: Job, start_s: float, owner: Iterator[bytes]) -> Loop:
    """Run the load to its end, the window as the owner orders it."""
    load = (ClosedLoop if job.arrivals == "closed" else OpenLoop)(job, emit)
    on_window = partial(asyncio.get_running_loop().call_soon_threadsafe, load.set_window)
    threading.Thread(target=listen, args=(owner, on_window), daemon=True).start()
    await load.run(start_s)
    emit("drained", {})
    return load


def allow_connections(count: int) -> None:
    """Let this process open so many connections; raises InputError when the machine does not allow it.

    The usual soft limit of 1024 open files would cap the load there, and look like the server's limit.
    """
    needed = count + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise InputError(f"{count} clients need {needed} open files, a process may have {hard}: raise ulimit -Hn")
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def emit(event: str, content: dict[str, Any]) -> None:
    """Tell the owner; exits when nobody listens."""
    try:
        sys.stdout.buffer.write(orjson.dumps({"event": event, **content}) + b"\n")
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        os._exit(OWNER_GONE)


def lines(descriptor: int) -> Iterator[bytes]:
    """The lines of a pipe. Read without Python's buffer, whose lock a thread must not hold when the process ends."""
    rest = b""
    while data := os.read(descriptor, PIPE_BYTES):
        *whole, rest = (rest + data).split(b"\n")
        yield from whole


def listen(owner: Iterator[bytes], on_window: Callable[[float, float], Any]) -> None:
    """Pass on the window; at the end of standard input leave without ceremony."""
    for line in owner:
        word, *times_s = line.split()
        if word == b"window":
            on_window(*map(float, times_s))
    os._exit(OWNER_GONE)


def last_words(error: BaseException) -> str:
    """The innermost error in one line, and where it was raised: a group of errors says nothing of its own."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    frame = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return f"{text} ({Path(frame.filename).name}, line {frame.lineno})"


if __name__ == "__main__":
    try:
        code = main()
    except Exception as error:
        print(last_words(error), file=sys.stderr)
        code = CRASHED
    sys.exit(code)
