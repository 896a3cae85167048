"""The load client: `python -m lab.load.client`, a process of its own.

Without its own process the client shares an interpreter with a notebook whose plots and widgets delay the
reading of answers; without a lifeline it goes on loading a server whose owner is dead.

Standard input: one JSON line, the job (the fields of `Job` and `requests_path`); then one line `go`; then
nothing. Its end means that the owner is gone: the client exits at once. Standard output: one JSON object a
line, `event` first: `ready`, `progress` (each second), `window-open`, `window-closed`, `drained`, and `done`
with the outcome, after the table of requests was written. The exit code is 0 even when the outcome is a
failure: the outcome says so.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from pathlib import Path
from typing import Any

import orjson
import uvloop

from lab.load import record
from lab.load.closed_loop import ClosedLoop, Job

OWNER_GONE = 3


def main() -> int:
    """Run the job given on standard input."""
    job = orjson.loads(sys.stdin.buffer.readline())
    requests_path = Path(job.pop("requests_path"))
    job["tokens_path"] = tuple(job["tokens_path"]) if job["tokens_path"] else None
    emit("ready", {"pid": os.getpid()})
    if sys.stdin.buffer.readline().strip() != b"go":
        return OWNER_GONE
    threading.Thread(target=exit_with_owner, daemon=True).start()
    gc.freeze()
    load = uvloop.run(offer(Job(**job)))
    record.write([request.row(load.opened_s, load.closed_s) for request in load.requests], requests_path)
    emit("done", load.outcome())
    return 0


async def offer(job: Job) -> ClosedLoop:
    """Run the load to its end."""
    load = ClosedLoop(job, emit)
    await load.run()
    emit("drained", {})
    return load


def emit(event: str, content: dict[str, Any]) -> None:
    """Tell the owner; exits when nobody listens."""
    try:
        sys.stdout.buffer.write(orjson.dumps({"event": event, **content}) + b"\n")
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        os._exit(OWNER_GONE)


def exit_with_owner() -> None:
    """Wait for the end of standard input, then leave without ceremony."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(OWNER_GONE)


if __name__ == "__main__":
    sys.exit(main())
