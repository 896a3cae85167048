"""What a run folder looks like as MLflow runs: campaign, then levers, then launches. Pure: no MLflow, no network.

Without one projection from files, the page says something else than the files, and publishing twice gives two runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from lab.campaign import BASELINE
from lab.errors import InputError
from lab.files import read_json
from lab.records import JUDGED, NEVER_JUDGED, Launch
from lab.report import table, words
from lab.runs import Run
from lab.tracking.entry import Entry, note, short

NOTE = "mlflow.note.content"
FINISHED, FAILED, KILLED = "FINISHED", "FAILED", "KILLED"
RUN_STATES = {"done": FINISHED, "failed": FAILED}
ROW_METRICS = {
    "effect_pct": "effect_pct",
    "effect_pct_lo": "ci_low_pct",
    "effect_pct_hi": "ci_high_pct",
    "effect_matched_batch_pct": "effect_matched_batch_pct",
    "p_value": "p_value",
    "p_adjusted": "p_adjusted",
    "running": "concurrency_running",
    "control_running": "concurrency_running_control",
    "bound_fraction": "bound_fraction",
    "control_bound_fraction": "bound_fraction_control",
    "bound_tok_s": "bound_tok_s",
    "predicted_effect_pct": "predicted_effect_pct",
    "launches": "launches",
    "passes": "passes",
}
Row = Mapping[str, Any]


def verdicts(run: Run) -> list[dict[str, Any]]:
    """The rows judged under the run's own rule; empty when the run was never judged."""
    return _judgement(run, "verdicts.json")


def _judgement(run: Run, name: str) -> list[dict[str, Any]]:
    path = run.path / "judgements" / run.campaign["rule_digest"] / name
    return read_json(path) if path.exists() else []


def campaign_entry(run: Run, rows: Sequence[Row]) -> Entry:
    """The whole run as a tree of entries; raises InputError when a record is damaged."""
    return _Projection(run, rows).campaign()


class _Projection:
    """A run folder and its verdicts, with what all entries share."""

    def __init__(self, run: Run, rows: Sequence[Row]) -> None:
        self.run, self.rows, self.launches = run, rows, run.launches()
        self.file = run.campaign["file"]
        self.audits = {audit["trial"]: audit for audit in _judgement(run, "audits.json")}
        self.rule = self.file["rule"]
        self.machine: str | None = (run.campaign.get("hardware") or {}).get("name")
        marks = [launch.record["simulated"] for launch in self.launches] + [row["simulated"] for row in rows]
        self.key = "/".join(["rehearsal"] * any(marks) + [run.name, run.run_id])
        self.tags = {"campaign": run.name, "run_id": run.run_id, "simulated": str(any(marks)).lower()}
        self.span = _span(self.launches) or _start_of(run)

    def campaign(self) -> Entry:
        run, rows, state = self.run, self.rows, self.run.status["state"]
        treatments = [(row["lever"], row["treatment"]) for row in rows] + [_arm(launch) for launch in self.launches]
        return Entry(
            key=self.key,
            name=f"{run.name} {run.run_id[4:13]}Z",
            span_ms=self.span,
            status=RUN_STATES.get(state, KILLED),
            params={
                "model": short(self.file["model"]["name"]),
                "checkpoint": short(self.file["model"]["checkpoint"]),
                "engine": short(self.file["server"]["engine"]),
                "build": short(run.campaign.get("engine")),
                "hardware": short(self.machine),
                **{f"rule.{name}": short(value) for name, value in self.rule.items()},
            },
            metrics={
                "levers_total": len({row["lever"] for row in rows}),
                "levers_adopted": len({row["lever"] for row in rows if row["verdict"] == "adopt"}),
                "launches": len(self.launches),
            },
            tags={
                **self.tags,
                "lab.kind": "campaign",
                "lab.state": state,
                "git.commit": (run.campaign.get("git") or {}).get("commit") or "unknown",
                NOTE: note(table.render(rows, "md", heading=self.heading())),
                **_tables("verdicts.json"),
            },
            artifacts={
                **_present({name: run.path / name for name in ("campaign.json", "plan.json")}),
                **_shown_in(run.lever_folder("summary")),
            },
            texts={"verdicts.json": as_table(rows, table.KEYS)},
            children=[self.lever(*treatment) for treatment in dict.fromkeys([(BASELINE, None), *treatments])],
        )

    def heading(self) -> str:
        controls = [launch for launch in self.launches if _arm(launch) == (BASELINE, None) and launch.ok]
        effective = controls[0].record["effective"] if controls else None
        return words.heading(self.file, self.run.plan["passes"], self.run.run_id, effective, self.machine)

    def _mean(self, launches: Sequence[Launch], metric: str) -> float | None:
        """The mean of a metric over the trials that the verdict rests on; None when none has it."""
        trials = [
            trial
            for launch in launches
            if launch.ok and launch.role not in NEVER_JUDGED
            for trial in launch.trials
            if trial.purpose == JUDGED and self.audits.get(trial.id, {}).get("valid", True)
        ]
        known = [value for trial in trials if (value := trial.value(metric)) is not None]
        return fmean(known) if known else None

    def lever(self, lever: str, treatment: str | None) -> Entry:
        """A treatment with its verdict; the baseline, and a treatment that was never judged, have none."""
        row = next((row for row in self.rows if (row["lever"], row["treatment"]) == (lever, treatment)), None)
        own = [launch for launch in self.launches if _arm(launch) == (lever, treatment)]
        controls = [launch for launch in self.launches if _arm(launch) == (BASELINE, None)]
        metric = self.rule["metric"]
        key = "/".join([self.key, lever, *([treatment] if treatment else [])])
        return Entry(
            key=key,
            name=f"{lever} {treatment}" if [row["lever"] for row in self.rows].count(lever) > 1 else lever,
            span_ms=_span(own) or self.span,
            status=FAILED if row is not None and row["verdict"] == "failed" else FINISHED,
            params={
                "concurrency": short(self.rule["concurrency"]),
                "workload": short(self.rule["workload"]),
                "settings": short(self.file["levers"].get(lever, {})),
            },
            metrics={
                f"control_{metric}": self._mean(controls, metric),
                **({} if lever == BASELINE else {f"treatment_{metric}": self._mean(own, metric)}),
                **({} if row is None else {name: row[source] for name, source in ROW_METRICS.items()}),
            },
            tags={
                **self.tags,
                "lab.kind": BASELINE if lever == BASELINE else "lever" if row is not None else "search",
                "lever": lever,
                **_tables("tables/trials.json"),
                **({} if row is None else _verdict_tags(row)),
            },
            artifacts=_shown_in(self.run.lever_folder(lever)),
            texts={"tables/trials.json": _trials_table(own)},
            children=[self.launch(key, launch) for launch in own],
        )

    def launch(self, parent_key: str, launch: Launch) -> Entry:
        """One launch with the figures of its judged trial; those of its other trials carry the trial's name."""
        record, arm = launch.record, launch.record["arm"]
        judged = next((trial for trial in launch.trials if trial.purpose == JUDGED), None)
        metrics: dict[str, float | None] = {"ready_seconds": record["timings"].get("ready_seconds")}
        params = {"arm": arm["name"], "pass": record["pass"], "order": record["order"]}
        params |= {"arm_digest": record["arm_digest"], "flags": arm["flags"], "env": arm["env"]}
        if judged is not None:
            metrics |= {**judged.metrics, "running": judged.server["running"]}
            metrics["concurrency_little"] = judged.client["littles_law"]
            params |= {"workload": judged.workload, "concurrency": judged.concurrency}
        for trial in launch.trials:
            if trial is not judged:
                metrics[f"output_tok_s.{trial.folder.name}"] = trial.metrics["output_tok_s"]
        return Entry(
            key=f"{parent_key}/{launch.id}",
            name=launch.id,
            span_ms=_launch_span(launch),
            status=FINISHED if launch.ok else FAILED,
            params={name: short(value) for name, value in params.items()},
            metrics=metrics,
            tags={
                **self.tags,
                "lab.kind": "launch",
                "lever": arm["lever"] or BASELINE,
                "arm": arm["name"],
                "pass": str(record["pass"]),
                "state": record["state"],
                **self.validity(launch),
                "failure": note((record["failure"] or {}).get("reason", "")),
            },
            artifacts={
                "launch.json": launch.folder / "launch.json",
                **{f"trials/{trial.folder.name}.json": trial.folder / "trial.json" for trial in launch.trials},
            },
        )

    def validity(self, launch: Launch) -> dict[str, str]:
        """Whether the launch's trials may be believed, and every code that the audit raised."""
        audits = [self.audits[trial.id] for trial in launch.trials if trial.id in self.audits]
        codes = dict.fromkeys(code["code"] for audit in audits for code in audit["codes"])
        valid = "not audited" if not audits else "valid" if all(audit["valid"] for audit in audits) else "invalid"
        return {"validity": valid, "codes": " ".join(codes)}


def _verdict_tags(row: Row) -> dict[str, str]:
    return {
        "treatment": row["treatment"] or "",
        "verdict": row["verdict"],
        "verdict.reason": note(row["reason"]),
        "accuracy": row["accuracy"],
        "codes": " ".join(row["codes"]),
        "findings": " ".join(row["findings"]),
        NOTE: note(table.render([row], "md")),
    }


def as_table(rows: Iterable[Row], columns: Sequence[str]) -> str:
    """Rows in the shape that MLflow's page shows as a table; lists and mappings as text, missing as null."""
    cells = [[table.flat(row.get(column)) for column in columns] for row in rows]
    return json.dumps({"columns": list(columns), "data": cells}, ensure_ascii=False)


def _trials_table(launches: Sequence[Launch]) -> str:
    trials = [
        {
            "trial": trial.id,
            "pass": launch.pass_number,
            "arm": launch.arm,
            "purpose": trial.purpose,
            "asked": trial.concurrency,
            "ran": trial.server["running"],
            **trial.metrics,
        }
        for launch in launches
        for trial in launch.trials
    ]
    return as_table(trials, list(dict.fromkeys(key for trial in trials for key in trial)))


def _tables(path: str) -> dict[str, str]:
    """The tag by which the page knows that an artifact is a table."""
    return {"mlflow.loggedArtifacts": json.dumps([{"path": path, "type": "table"}])}


def _arm(launch: Launch) -> tuple[str, str | None]:
    """The lever and treatment that a launch belongs to; control launches belong to the baseline."""
    arm = launch.record["arm"]
    return (arm["lever"], arm["treatment"]) if arm["lever"] else (BASELINE, None)


def _start_of(run: Run) -> tuple[int, int]:
    """The run's own start, twice: the span of a run without launches, in milliseconds since 1970."""
    started = int(datetime.strptime(run.run_id, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp() * 1000)
    return started, started


def _span(launches: Sequence[Launch]) -> tuple[int, int] | None:
    """First start and last end of launches in milliseconds since 1970; None when there are none."""
    spans = [_launch_span(launch) for launch in launches]
    return (min(start for start, _ in spans), max(end for _, end in spans)) if spans else None


def _launch_span(launch: Launch) -> tuple[int, int]:
    timings = launch.record["timings"]
    return _milliseconds(timings["started_at"], launch), _milliseconds(timings["closed_at"], launch)


def _milliseconds(stamp: str, launch: Launch) -> int:
    try:
        return int(datetime.fromisoformat(stamp).timestamp() * 1000)
    except (TypeError, ValueError) as error:
        raise InputError(f"{launch.folder / 'launch.json'}: '{stamp}' is not an ISO time") from error


def _shown_in(folder: Path) -> dict[str, Path]:
    """The executed notebook, as itself and as a page, and the pictures of a notebook's folder."""
    notebook = {f"notebook/{name}": folder / name for name in ("executed.ipynb", "executed.html")}
    return _present(notebook) | {f"plots/{path.name}": path for path in sorted(folder.glob("plots/*.png"))}


def _present(artifacts: Mapping[str, Path]) -> dict[str, Path]:
    return {name: path for name, path in artifacts.items() if path.is_file()}
