"""Write a run folder to MLflow, as often as wanted: what is there and right is left alone.

Without a key and a digest on every MLflow run, publishing again doubles the page, and a run whose judgement changed
keeps the old verdict.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import requests

from lab.errors import LabError
from lab.runs import Run
from lab.tracking import pages, store
from lab.tracking.entries import campaign_entry, verdicts
from lab.tracking.entry import Entry, note

if TYPE_CHECKING:
    from mlflow.entities import Run as Row

KEY, DIGEST, REVISION, MISSING = "lab.run_key", "lab.digest", "lab.revision", "missing."
HOW_TO_READ = "One run per campaign; below it one per lever, with its verdict; below that the launches."
CLIENT_DEFAULTS = {
    **store.QUIET,
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_TRUNCATE_LONG_VALUES": "false",
}


@dataclass(frozen=True)
class Published:
    """What a publication did: how many MLflow runs were created, changed and left alone, and where to look.

    `link` opens the table of verdicts; it is None when the server was only there for the publication: `lab ui`.
    """

    experiment: str
    link: str | None
    created: int
    updated: int
    unchanged: int
    seconds: float


def publish(path: Path, rows: Sequence[Mapping[str, Any]] | None = None) -> Published:
    """Publish a run folder (results/<campaign>/<run-id>, also below rehearsal/); `rows`: its verdicts, by default
    those under its own rule.

    Raises LabError when MLflow does not answer or refuses, InputError when a record is damaged. The files are never
    changed, and a publication that was cut short is completed by the next.
    """
    started = time.monotonic()
    run = Run(Path(path).resolve())
    rows = verdicts(run) if rows is None else rows
    entry = campaign_entry(run, rows)
    for name, value in CLIENT_DEFAULTS.items():
        os.environ.setdefault(name, value)
    name = _experiment_name(run, entry)
    with store.opened(_results_of(run), meanwhile=_load_mlflow) as target:
        from mlflow.exceptions import MlflowException

        try:
            publisher = _Publisher(target.uri, name, entry)
            publisher.push(entry)
        except (MlflowException, requests.RequestException) as error:
            raise store.unanswered(target.uri, error) from error
    counts, seconds = publisher.counts, round(time.monotonic() - started, 1)
    link = pages.verdicts_link(store.shown(target.uri), publisher.experiment_id) if target.lasting else None
    return Published(
        name,
        link,
        created=counts["created"],
        updated=counts["updated"],
        unchanged=counts["unchanged"],
        seconds=seconds,
    )


def _load_mlflow() -> None:
    """Importing it takes seconds, which a starting server takes as well."""
    import mlflow  # noqa: F401


def _results_of(run: Run) -> Path:
    above = run.path.parent.parent
    return above.parent if above.name == "rehearsal" else above


def _experiment_name(run: Run, entry: Entry) -> str:
    return f"levers-{run.name}" + ("-rehearsal" if entry.tags["simulated"] == "true" else "")


class _Publisher:
    """One publication: the client, the experiment and the MLflow runs that are there, by key."""

    def __init__(self, uri: str, experiment: str, entry: Entry) -> None:
        from mlflow import MlflowClient

        self.client = MlflowClient(tracking_uri=uri)
        self.experiment_id = self._experiment(experiment, entry)
        self.known = self._runs_of(entry.key)
        self.counts: Counter[str] = Counter()

    def push(self, entry: Entry, parent_id: str | None = None) -> None:
        """Bring the entry and all below it up to date.

        The digest goes in with the last batch and the end comes after it, so that a run cut short differs from what
        is wanted and is written again.
        """
        row = self.known.get(entry.key)
        wanted = {**entry.labels, DIGEST: entry.digest, **_parent_tag(parent_id)}
        if row is not None and row.info.status == entry.status and wanted.items() <= row.data.tags.items():
            self.counts["unchanged"] += 1
            run_id = row.info.run_id
        else:
            self.counts["updated" if row else "created"] += 1
            run_id = self._write(entry, row, wanted, parent_id)
        for child in entry.children:
            self.push(child, run_id)

    def _write(self, entry: Entry, row: Row | None, tags: Mapping[str, str], parent_id: str | None) -> str:
        if row is not None and _cannot_become(row, entry):
            self.client.delete_run(row.info.run_id)
            row = None
        if row is None:
            first = {KEY: entry.key, **_parent_tag(parent_id)}
            row = self.client.create_run(self.experiment_id, entry.span_ms[0], first, entry.name)
        run_id = row.info.run_id
        _upload(row.info.artifact_uri, self.client.tracking_uri, entry)
        for name in row.data.tags:
            if name.startswith(MISSING) and name not in tags:
                self.client.delete_tag(run_id, name)
        self._log(row, entry, tags)
        self.client.set_terminated(run_id, entry.status, entry.span_ms[1])
        return run_id

    def _log(self, row: Row, entry: Entry, tags: Mapping[str, str]) -> None:
        """One batch; a metric that changed goes to the next step, because the page shows the last one."""
        from mlflow.entities import Metric, Param, RunTag

        revision = int(row.data.tags.get(REVISION, "-1")) + 1
        present = row.data.metrics
        metrics = [
            Metric(name, value, entry.span_ms[1], revision)
            for name, value in entry.finite.items()
            if present.get(name) != value
        ]
        params = [Param(name, value) for name, value in entry.params.items() if name not in row.data.params]
        labels = [RunTag(name, value) for name, value in {**tags, REVISION: str(revision)}.items()]
        self.client.log_batch(row.info.run_id, metrics, params, labels)

    def _experiment(self, name: str, entry: Entry) -> str:
        """The experiment's id; its note and view are written only when they differ."""
        found = self.client.get_experiment_by_name(name)
        if found is not None and found.lifecycle_stage == "deleted":
            raise LabError(
                f"experiment '{name}' was deleted in MLflow; restore it: "
                f"mlflow experiments restore --experiment-id {found.experiment_id}"
            )
        experiment_id = self.client.create_experiment(name) if found is None else found.experiment_id
        text = f"# {entry.name}\n\n{entry.tags['mlflow.note.content']}\n{HOW_TO_READ}\n"
        tags = {"lab.schema": "1", "mlflow.note.content": note(text), **pages.VIEW_TAGS}
        present = {} if found is None else found.tags
        for key, value in tags.items():
            if present.get(key) != value:
                self.client.set_experiment_tag(experiment_id, key, value)
        return experiment_id

    def _runs_of(self, key: str) -> dict[str, Row]:
        """The MLflow runs that hold this run folder, by key."""
        found: dict[str, Row] = {}
        query, token = f"tags.`{KEY}` LIKE '{key}%'", None
        while True:
            page = self.client.search_runs([self.experiment_id], query, max_results=1000, page_token=token)
            found |= {row.data.tags[KEY]: row for row in page}
            token = page.token
            if not token:
                return found


def _parent_tag(parent_id: str | None) -> dict[str, str]:
    return {} if parent_id is None else {"mlflow.parentRunId": parent_id}


def _cannot_become(row: Row, entry: Entry) -> bool:
    """A parameter changed or a metric has gone: MLflow can rewrite neither, so the run is replaced."""
    changed = any(entry.params.get(name) != value for name, value in row.data.params.items())
    return changed or not set(row.data.metrics) <= set(entry.finite)


def _upload(artifact_uri: str, tracking_uri: str, entry: Entry) -> None:
    """All files of an entry, straight to the store that the run names: asking for the run each time costs more."""
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    repository = get_artifact_repository(artifact_uri, tracking_uri=tracking_uri)
    with tempfile.TemporaryDirectory() as folder:
        for path, text in entry.texts.items():
            source = Path(folder, path)
            source.parent.mkdir(parents=True, exist_ok=True)
            source.write_text(text)
            repository.log_artifact(str(source), _parent(path))
        for path, original in entry.artifacts.items():
            source = Path(folder, path)
            source.parent.mkdir(parents=True, exist_ok=True)
            source.symlink_to(original.resolve())
            repository.log_artifact(str(source), _parent(path))


def _parent(path: str) -> str | None:
    parent = Path(path).parent.as_posix()
    return None if parent == "." else parent
