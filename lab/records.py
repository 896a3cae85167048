"""Launches and trials on disk: written once, checked when read, never changed.

Without immutable records a verdict cannot be made again, and nobody can say on what it rested.
"""

from __future__ import annotations

import datetime as dt
import gzip
import os
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from lab.campaign import PROJECT
from lab.errors import InputError
from lab.files import digest, dumps, explain_os_error, read_json, sha256_file, sha256_text, write_json, write_text

SCHEMA = 1
OPENING, TREATMENT, CLOSING, RESUMED, SEARCH = "opening", "treatment", "closing", "resumed", "search"
JUDGED, SWEEP, MATCHED = "judged", "sweep", "matched-batch"


def utc_now() -> str:
    """ISO-8601 UTC, to the millisecond."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True)
class Trial:
    """One measured window: `record` is trial.json, `launch` the launch it belongs to."""

    folder: Path
    record: dict[str, Any]
    launch: Launch

    @property
    def id(self) -> str:
        """`<launch folder>/<trial folder>`, unique in a run."""
        return f"{self.launch.id}/{self.folder.name}"

    @property
    def workload(self) -> str:
        return self.record["workload"]

    @property
    def concurrency(self) -> int:
        return self.record["concurrency"]

    @property
    def purpose(self) -> str:
        return self.record["purpose"]

    @property
    def client(self) -> dict[str, Any]:
        return self.record["client"]

    @property
    def server(self) -> dict[str, Any]:
        return self.record["server"]

    @property
    def metrics(self) -> dict[str, float | None]:
        return self.record["metrics"]


@dataclass(frozen=True)
class Launch:
    """One closed lifetime of a server: `record` is launch.json."""

    folder: Path
    record: dict[str, Any]

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def arm(self) -> str:
        return self.record["arm"]["name"]

    @property
    def pass_number(self) -> int:
        return self.record["pass"]

    @property
    def role(self) -> str:
        return self.record["role"]

    @property
    def ok(self) -> bool:
        """The server started and lived through every trial it owed."""
        return self.record["state"] == "ok"

    @property
    def effective(self) -> dict[str, Any]:
        """What the server said of itself: key → value (the sources stay in the record)."""
        return {key: fact["value"] for key, fact in self.record["effective"].items()}

    @cached_property
    def trials(self) -> list[Trial]:
        """The trials of this launch, in the order they were measured."""
        folders = [self.folder / "trials" / name for name in self.record["trials"]]
        return [Trial(folder, read_json(folder / "trial.json"), self) for folder in folders]

    def log_text(self) -> str:
        """The server's whole log."""
        with gzip.open(self.folder / "server.log.gz", "rt", errors="replace") as stream:
            return stream.read()

    def problem(self) -> str | None:
        """Why these files may not be believed, or None: each must still have the digest noted at closing."""
        for name, expected in self.record["files"].items():
            path = self.folder / name
            if not path.is_file():
                return f"{path}: is missing"
            if sha256_file(path) != expected:
                return f"{path}: was changed after the launch closed"
        return None


def close_launch(folder: Path, record: dict[str, Any]) -> Launch:
    """Write launch.json, last of all files of a launch, with a digest of each of them, and its own beside it."""
    names = sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
    record = {"schema": SCHEMA, "simulated": False, **record}
    record["files"] = {name: sha256_file(folder / name) for name in names}
    write_text(folder / "launch.json.sha256", sha256_text(dumps(record)) + "\n")
    write_json(folder / "launch.json", record)
    return Launch(folder, record)


def load_trial(folder: Path) -> Trial:
    """A trial from its folder `<launch>/trials/<trial>`; raises InputError when a record is missing or damaged."""
    parent = folder.resolve().parent.parent
    return Trial(folder, read_json(folder / "trial.json"), Launch(parent, read_json(parent / "launch.json")))


def compress_log(folder: Path) -> None:
    """server.log becomes server.log.gz; a launch without a log gets an empty one."""
    plain, packed = folder / "server.log", folder / "server.log.gz"
    try:
        with gzip.open(packed, "wb") as target:
            if plain.exists():
                with plain.open("rb") as source:
                    shutil.copyfileobj(source, target)
    except OSError as error:
        raise explain_os_error(error, packed) from error
    plain.unlink(missing_ok=True)


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
        return read_json(self.path / "campaign.json")

    @cached_property
    def plan(self) -> dict[str, Any]:
        """plan.json: levers with their arms, passes, and the order of each pass."""
        return read_json(self.path / "plan.json")

    @property
    def name(self) -> str:
        return self.campaign["file"]["name"]

    @property
    def status(self) -> dict[str, Any]:
        """status.json: state (running, done, failed, interrupted), reason, times."""
        return read_json(self.path / "status.json")

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
            f"{folder / 'launch.json'}: does not match its digest"
            for folder, launch in zip(self._folders(), launches, strict=True)
            if launch is None and (folder / "launch.json").exists()
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
        found = [p for p in (self.path / "launches").glob("[0-9]*-*") if p.is_dir()]
        return sorted(found, key=lambda folder: int(folder.name.partition("-")[0]))

    def _read(self, folder: Path) -> Launch | None:
        path, seal = folder / "launch.json", folder / "launch.json.sha256"
        if not path.exists() or not seal.exists():
            return None
        if sha256_file(path) != seal.read_text(errors="replace").strip():
            return None
        return Launch(folder, read_json(path))


def results_folder() -> Path:
    """Where runs are kept: $LAB_RESULTS, or `results/` of the project."""
    return Path(os.environ.get("LAB_RESULTS") or PROJECT / "results").resolve()


def runs(results: Path, campaign: str | None = None) -> list[Run]:
    """All runs below `results` (or of one campaign), the one touched last at the end."""
    names = [campaign] if campaign else [p.name for p in results.glob("*") if p.is_dir()]
    found = [
        Run(path.parent)
        for name in names
        if name not in ("rehearsal", "reference")
        for path in (results / name).glob("*/status.json")
        if not path.parent.is_symlink()
    ]
    return sorted(found, key=lambda run: (run.status["touched_at"], run.run_id))


def pick_run(results: Path, campaign: str | None = None, run_id: str | None = None) -> Run:
    """The run asked for, or the one touched last; raises InputError that lists what there is."""
    found = runs(results, campaign)
    if run_id:
        found = [run for run in found if run.run_id == run_id]
    if not found:
        what = f"run {run_id}" if run_id else f"run of campaign '{campaign}'" if campaign else "run"
        known = sorted({f"{run.name}/{run.run_id}" for run in runs(results)}) or ["none yet"]
        raise InputError(f"{results}: there is no {what}; known: {', '.join(known[-8:])}")
    return found[-1]


def slot_digest(arm: dict[str, Any], owed: Any, window: Any, build: str) -> str:
    """Names what a launch was to measure; an equal digest means that it need not be measured again."""
    return digest([arm, owed, window, build])


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
