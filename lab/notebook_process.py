"""A notebook executed by papermill in a process of its own, with a watchdog.

Without it a hung kernel holds the machine all night, and a notebook whose kernel died counts as completed: papermill
marks every cell so. The exit code and a sentinel, written by the last cell, are the only truth.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from lab.campaign import PROJECT
from lab.errors import DiskFullError
from lab.files import write_text
from lab.hosts import LocalHost, Process

ATTEMPTS = 2
# More than the grace of a server's own keeper below it, so that a server can still stop by itself.
GRACE_SECONDS = 20
# With less room than this a notebook's failure is the disk's, even where its log has no room left to say so.
FREE_BYTES_MIN = 1_000_000
# How a traceback in a notebook's log ends when a record could not be written.
_DISK_FULL = f"{DiskFullError.__module__}.{DiskFullError.__name__}: "


class Notebooks:
    """Executes notebooks, each at most `limit_seconds` long; safe to call from several threads."""

    def __init__(self, limit_seconds: float) -> None:
        self.limit_seconds = limit_seconds
        self._processes: set[Process] = set()
        self._stopped = False

    def execute(
        self, notebook: Path, target: Path, sentinel: Path, parameters: dict[str, Any], marker: str
    ) -> str | None:
        """Execute `notebook` into `target`; None, or why it cannot be believed after all attempts.

        What a killed attempt measured is on record, so another attempt goes on from there. Raises DiskFullError when a
        record could not be written for that reason.
        """
        target.parent.mkdir(parents=True, exist_ok=True)
        log = target.with_suffix(".log")
        problem: str | None = "was not started"
        for _ in range(ATTEMPTS):
            if self._stopped:
                break
            sentinel.unlink(missing_ok=True)
            log.unlink(missing_ok=True)
            problem = self._attempt(_command(notebook, target, parameters), log, sentinel, marker)
            if problem is None:
                log.unlink(missing_ok=True)
                break
        return problem

    def stop(self) -> None:
        """End what runs, and let nothing else start."""
        self._stopped = True
        for process in list(self._processes):
            process.stop()

    def _attempt(self, argv: list[str], log: Path, sentinel: Path, marker: str) -> str | None:
        process = LocalHost().start(argv, dict(os.environ), log, marker, cwd=PROJECT, grace_seconds=GRACE_SECONDS)
        self._processes.add(process)
        try:
            code = process.wait(timeout=0 if self._stopped else self.limit_seconds)
        finally:
            process.stop()
            self._processes.discard(process)
        if code is None:
            return f"still running after {self.limit_seconds:.0f} s; ended by the watchdog"
        if code != 0 and last_line(log).startswith(_DISK_FULL):
            raise DiskFullError(last_line(log).removeprefix(_DISK_FULL))
        if code != 0 and shutil.disk_usage(log.parent).free < FREE_BYTES_MIN:
            raise DiskFullError(f"{log.parent}: disk full; free some space, then continue with --resume")
        if code != 0:
            return f"papermill ended with code {code}: {last_line(log)}"
        return None if sentinel.exists() else "ended without its sentinel: the last cell was not reached"


def write_html(notebook: Path) -> None:
    """The executed notebook as a page beside it, for people without Jupyter and for MLflow."""
    import nbformat
    from nbconvert import HTMLExporter

    body, _ = HTMLExporter().from_notebook_node(nbformat.read(notebook, as_version=4))
    write_text(notebook.with_suffix(".html"), body)


def last_line(log: Path) -> str:
    """The last line of a log that says anything."""
    text = log.read_text(errors="replace") if log.exists() else ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no output"


def _command(notebook: Path, target: Path, parameters: dict[str, Any]) -> list[str]:
    import yaml

    return [
        *(sys.executable, "-m", "papermill", str(notebook), str(target)),
        *("-y", yaml.safe_dump(parameters)),
        *("-k", "python3", "--no-progress-bar", "--start-timeout", "120", "--log-level", "WARNING"),
    ]
