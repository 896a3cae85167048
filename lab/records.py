"""Launches and trials on disk: written once, checked when read, never changed.

Without immutable records a verdict cannot be made again, and nobody can say on what it rested.
"""

from __future__ import annotations

import datetime as dt
import gzip
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from lab.files import digest, dumps, explain_os_error, read_json, sha256_file, sha256_text, write_json, write_text
from lab.metrics import TOK_S_PER_GPU

SCHEMA = 1
OPENING, TREATMENT, CLOSING, RESUMED, SEARCH = "opening", "treatment", "closing", "resumed", "search"
BURN_IN = "burn-in"
"""A launch that lets an engine compile and tune before anything is judged."""
NEVER_JUDGED = (SEARCH, BURN_IN)
JUDGED, SWEEP, MATCHED, REPEAT = "judged", "sweep", "matched-batch", "repeat"


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
    def window(self) -> dict[str, Any]:
        return self.record["window"]

    @property
    def prompts(self) -> dict[str, Any]:
        return self.record["prompts"]

    @property
    def client(self) -> dict[str, Any]:
        return self.record["client"]

    @property
    def server(self) -> dict[str, Any]:
        return self.record["server"]

    @property
    def machine(self) -> dict[str, Any]:
        return self.record["machine"]

    @property
    def steady(self) -> dict[str, Any]:
        return self.record["steady"]

    @property
    def metrics(self) -> dict[str, float | None]:
        return self.record["metrics"]

    def value(self, metric: str) -> float | None:
        """A metric by any name that a rule may use; None when it is missing.

        `kv_tokens` and the number of GPUs behind `tok_s_per_gpu` are what the server said (see `Launch.gpus`).
        """
        if metric == "kv_tokens":
            return self.launch.effective.get("kv_tokens")
        if metric == TOK_S_PER_GPU:
            whole, gpus = self.metrics.get("output_tok_s"), self.launch.gpus
            return whole / gpus if whole is not None and gpus else None
        return self.metrics.get(metric)


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

    @property
    def gpus(self) -> int | None:
        """Devices that serve: as the server says, else as many as the campaign file names; None where neither does."""
        return self.effective.get("gpus") or self.record.get("gpus_named")

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


def slot_digest(arm: dict[str, Any], owed: Any, window: Any, build: str) -> str:
    """Names what a launch was to measure; an equal digest means that it need not be measured again."""
    return digest([arm, owed, window, build])
