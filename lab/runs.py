"""Runs on disk: opened once, found again, their launches read back.

Without one place that knows the folders of a run, the runner, the notebooks and the commands would each look elsewhere.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import sys
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from lab.campaign import CAMPAIGN_NAME, PROJECT, RESERVED_CAMPAIGNS
from lab.errors import InputError
from lab.files import explain_os_error, quoted, read_json, sha256_file, write_json
from lab.records import SCHEMA, Launch, utc_now


class Run:
    """One execution of a campaign: results/<campaign>/<run-id>/."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, results: Path, campaign: dict[str, Any], plan: dict[str, Any]) -> Run:
        """A new run folder with its campaign.json and plan.json; raises InputError when it cannot be written."""
        name = campaign["file"]["name"]
        run = cls(_new_folder(results / name))
        write_json(run.path / "campaign.json", {"schema": SCHEMA, "run_id": run.run_id, **campaign})
        write_json(run.path / "plan.json", {"schema": SCHEMA, **plan})
        run.set_status("running")
        _point_latest(run.path)
        return run

    @property
    def run_id(self) -> str:
        return self.path.name

    @cached_property
    def campaign(self) -> dict[str, Any]:
        """campaign.json: the resolved file, machine, hardware, software versions, git commit."""
        return _read_keys(self.path / "campaign.json", ("file",))

    @cached_property
    def plan(self) -> dict[str, Any]:
        """plan.json: levers with their arms, passes, and the order of each pass."""
        return _read_keys(self.path / "plan.json", ("mode",))

    @property
    def name(self) -> str:
        return self.campaign["file"]["name"]

    @property
    def status(self) -> dict[str, Any]:
        """status.json: state (running, measured, done, failed, interrupted), reason, times."""
        return _read_keys(self.path / "status.json", ("state", "reason", "started_at", "touched_at"))

    def set_status(self, state: str, reason: str = "") -> None:
        """Note how the run stands, in a file of its own: campaign.json and plan.json never change."""
        path = self.path / "status.json"
        started = self.status["started_at"] if path.exists() else utc_now()
        status = {"state": state, "reason": reason, "started_at": started, "touched_at": utc_now()}
        write_json(path, status)

    def launches(self) -> list[Launch]:
        """Every closed and intact launch, by number; interrupted and damaged ones are left out."""
        found = [self._read(folder) for folder in self._folders()]
        return [launch for launch in found if launch is not None and launch.problem() is None]

    def damaged(self) -> list[str]:
        """One line for each closed launch that may not be believed."""
        launches = [self._read(folder) for folder in self._folders()]
        problems = [launch.problem() for launch in launches if launch is not None]
        unreadable = [
            f"{record}: {'does not match its digest' if record.exists() else 'is gone, its digest is not'}"
            for record, launch in zip([f / "launch.json" for f in self._folders()], launches, strict=True)
            if launch is None and (record.exists() or record.with_name("launch.json.sha256").exists())
        ]
        return unreadable + [problem for problem in problems if problem]

    def new_launch(self, arm: str) -> tuple[int, Path]:
        """The next launch number and its new folder."""
        taken = [int(folder.name.partition("-")[0]) for folder in self._folders()]
        number = max(taken, default=-1) + 1
        folder = self.path / "launches" / f"{number:03d}-{arm}"
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise explain_os_error(error, folder) from error
        return number, folder

    def lever_folder(self, lever: str) -> Path:
        return self.path / "levers" / lever

    def note_notebook_failure(self, lever: str, reason: str) -> None:
        """Remember that a lever's notebook could not be executed."""
        write_json(self.lever_folder(lever) / "status.json", {"state": "failed", "reason": reason})

    def forget_notebook_failures(self) -> None:
        """Give every notebook a fresh chance, as a resumed run does."""
        for path in (self.path / "levers").glob("*/status.json"):
            path.unlink()

    def notebook_failures(self) -> dict[str, str]:
        """lever → why its notebook could not be executed."""
        paths = sorted((self.path / "levers").glob("*/status.json"))
        return {path.parent.name: read_json(path)["reason"] for path in paths}

    def _folders(self) -> list[Path]:
        folders = (self.path / "launches").glob("[0-9]*-*")
        found = [p for p in folders if p.is_dir() and p.name.partition("-")[0].isdecimal()]
        return sorted(found, key=lambda folder: int(folder.name.partition("-")[0]))

    def _read(self, folder: Path) -> Launch | None:
        path, seal = folder / "launch.json", folder / "launch.json.sha256"
        if not path.exists() or not seal.exists():
            return None
        if sha256_file(path) != seal.read_text(errors="replace").strip():
            return None
        return Launch(folder, read_json(path))


def results_folder() -> Path:
    """Where runs are kept: $LAB_RESULTS, or `results/` of the project; raises InputError for an unusable path."""
    folder = Path(os.environ.get("LAB_RESULTS") or PROJECT / "results").resolve()
    if {"{", "}"} & set(str(folder)):
        raise InputError(f"LAB_RESULTS: '{folder}' holds a brace, which papermill would fill in; choose another folder")
    return folder


def runs(results: Path, campaign: str | None = None) -> list[Run]:
    """All runs below `results` (or of one campaign), the one touched last at the end."""
    names = [campaign] if campaign else [p.name for p in results.glob("*") if p.is_dir()]
    if campaign and not re.fullmatch(CAMPAIGN_NAME, campaign):
        return []
    paths = [
        path
        for name in names
        if name not in RESERVED_CAMPAIGNS
        for path in (results / name).glob("*/status.json")
        if not path.parent.is_symlink()
    ]
    found = []
    for path in paths:
        run = Run(path.parent)
        try:
            found.append((run.status["touched_at"], run.run_id, run))
        except InputError as error:
            print(f"lab: {error}", file=sys.stderr)
    return [run for _, _, run in sorted(found, key=lambda entry: entry[:2])]


def pick_run(results: Path, campaign: str | None = None, run_id: str | None = None) -> Run:
    """The run asked for, or the one touched last; raises InputError that lists what there is."""
    found = runs(results, campaign)
    if run_id:
        found = [run for run in found if run.run_id == run_id]
    if not found:
        what = f"run {run_id}" if run_id else f"run of campaign {quoted(campaign)}" if campaign else "run"
        known = sorted({f"{run.name}/{run.run_id}" for run in runs(results)}) or ["none yet"]
        raise InputError(f"{results}: there is no {what}; known: {', '.join(known[-8:])}")
    return found[-1]


def _read_keys(path: Path, keys: Sequence[str]) -> dict[str, Any]:
    """A JSON mapping that must hold these keys; raises InputError when it is damaged."""
    record = read_json(path)
    if not isinstance(record, dict) or not set(keys) <= record.keys():
        raise InputError(f"{path}: is damaged (no {', '.join(keys)}); restore it, or move the run's folder away")
    return record


def _new_folder(parent: Path) -> Path:
    stamp = dt.datetime.now(dt.UTC).replace(microsecond=0)
    while True:
        path = parent / stamp.strftime("%Y%m%dT%H%M%SZ")
        try:
            path.mkdir(parents=True)
            return path
        except FileExistsError:
            stamp += dt.timedelta(seconds=1)
        except OSError as error:
            raise explain_os_error(error, path) from error


def _point_latest(path: Path) -> None:
    link, temporary = path.parent / "latest", path.parent / f".latest-{path.name}"
    temporary.symlink_to(path.name)
    temporary.replace(link)
