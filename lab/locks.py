"""One measurement at a time on one machine.

Without a lock two campaigns share the cores, each halves the other's figures, and both look plausible.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from lab import files
from lab.errors import InputError, LabError

_WHOLE_HOST = "host"


@contextlib.contextmanager
def host_lock(gpus: Sequence[int] | None = None, campaign: str | None = None) -> Iterator[None]:
    """Hold this machine (`gpus` None), or these GPUs of it, until the block ends or the process dies.

    Campaigns on different GPUs may run side by side; one that names no GPUs excludes all others. A process
    started by the holder (a notebook under `lab run`) passes without a lock of its own. `campaign` is shown
    to whoever is refused. Raises LabError naming the holder: pid, campaign file and since when.
    """
    wanted = [(_WHOLE_HOST, fcntl.LOCK_EX if gpus is None else fcntl.LOCK_SH)]
    wanted += [(f"gpu-{index}", fcntl.LOCK_EX) for index in sorted(set(gpus or []))]
    folder = files.cache_dir() / "locks"
    files.make_folder(folder)
    ancestors = {process.pid for process in psutil.Process().parents()}
    with contextlib.ExitStack() as stack:
        for name, mode in wanted:
            stream = stack.enter_context((folder / f"{name}.lock").open("a"))
            try:
                fcntl.flock(stream, mode | fcntl.LOCK_NB)
            except BlockingIOError:
                holders = _holders(folder, name)
                if any(holder["pid"] in ancestors for holder in holders):
                    break
                raise LabError(_refusal(name, holders)) from None
            info = folder / f"{name}.{os.getpid()}.json"
            files.write_json(info, _note(campaign))
            stack.callback(info.unlink, missing_ok=True)
        yield


def _holders(folder: Path, name: str) -> list[dict[str, Any]]:
    """The living processes that noted themselves as holders of a lock; notes of dead ones are cleared away."""
    notes = []
    for path in folder.glob(f"{name}.*.json"):
        with contextlib.suppress(InputError, KeyError, OSError):  # its holder may be taking it away just now
            note = files.read_json(path)
            if _started(note["pid"]) == note["process_started"]:
                notes.append(note)
            else:
                path.unlink(missing_ok=True)
    return notes


def _started(pid: int) -> float | None:
    """When the process with this pid began, which tells it from an earlier one of that pid; None: there is none."""
    try:
        return psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:
        return None


def _refusal(name: str, holders: list[dict[str, Any]]) -> str:
    what = "this machine" if name == _WHOLE_HOST else name.replace("-", " ")
    if not holders:
        return f"{what} is in use by another measurement; try again when it has ended"
    holder = holders[0]
    return (
        f"{what} is in use by pid {holder['pid']}, campaign {holder['campaign'] or 'unnamed'}, since "
        f"{holder['since']}; two measurements at once would spoil both: wait for it or stop it"
    )


def _note(campaign: str | None) -> dict[str, Any]:
    pid = os.getpid()
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return {"pid": pid, "process_started": _started(pid), "campaign": campaign, "since": since}
