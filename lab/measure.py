"""One launch: start an arm, measure the trials it owes, keep the proof, close the record.

Without one place for this, the notebook and the batch run would each measure a little differently.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import requests

from lab import load, observe
from lab.accuracy.probe import probe
from lab.campaign import Arm, Campaign, Window
from lab.engines.base import ArmFailed, Engine, Failure
from lab.engines.server import Server
from lab.expectations import devices_named
from lab.files import digest, sha256_file, write_json
from lab.hosts import marked_processes
from lab.levers.base import Lever
from lab.observe.gpus import local_gpus
from lab.observe.timeline import patiently
from lab.one_trial import measure_trial
from lab.plan import Owed, launch_seconds
from lab.records import SCHEMA, Launch, close_launch, compress_log, slot_digest, utc_now
from lab.runs import Run
from lab.secrets import redacted

if TYPE_CHECKING:
    from lab.observe.gpus import Gpus
    from lab.observe.timeline import IdleLook

# A look at an idle server before its first trial; nobody else knows a server that the lab just started.
IDLE_LOOK_SECONDS = 1.0
# How long a server whose connections broke may take to be seen as ended.
END_SECONDS = 2.0
# A server counts as started only with tokens in hand (`Engine.launch`).
_READY = {"health": True, "completion_tokens": 1}
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Task:
    """What one launch is for."""

    arm: Arm
    pass_number: int
    role: str
    owed: Sequence[Owed]
    lever: Lever | None = None
    control: Launch | None = None
    window_share: float = 1.0
    accuracy_items: int = 0


def measure(run: Run, campaign: Campaign, engine: Engine, task: Task, progress: Progress) -> Launch:
    """Measure one launch and write its record; an arm that will not start, or dies, is a record too.

    Raises InputError for what was wrong before the start (checkpoint, runtime) and lets an interrupt through; the
    server is stopped in every case.
    """
    arm = engine.located(task.arm, campaign.folder)
    checkpoint, model = engine.model_of(arm)
    gpus = local_gpus({**os.environ, **arm.env})
    number, folder = run.new_launch(task.arm.name)
    started_at, started_s = utc_now(), time.monotonic()
    record: dict[str, Any] = {
        "campaign": run.name,
        "run_id": run.run_id,
        "launch": number,
        "order": number,
        "pass": task.pass_number,
        "role": task.role,
        "arm": redacted(task.arm.model_dump()),
        "arm_digest": task.arm.digest,
        "slot_digest": slot_of(campaign, task.arm, engine),
        "simulated": engine.simulated,
        "time_factor": 1.0,
        "checkpoint": {**asdict(checkpoint), "path": arm.checkpoint},
        "model": asdict(model),
        "argv": [],
        "env": {},
        "effective": {},
        "build": engine.build(task.arm),
        "state": "ok",
        "failure": None,
        "ready": None,
        "proof": None,
        "accuracy": None,
        "exit": None,
        "machine": observe.describe_machine(gpus),
        "gpus_named": devices_named(campaign),
        "trials": [],
    }
    # Runs of two results folders may begin in the same second: the path tells their processes apart.
    ready_seconds, marker = None, f"{run.run_id}/{folder.name}/{digest(str(folder.resolve()))}"
    try:
        with engine.launch(
            arm,
            folder,
            campaign.limits,
            marker=marker,
        ) as server:
            ready_seconds = server.ready_seconds
            record |= {"argv": server.argv, "env": server.env, "time_factor": server.time_factor}
            record["ready"] = _READY | {"model": server.model}
            try:
                record["effective"] = _facts(server)
                _measure_trials(run, campaign, task, server, record, folder, gpus, progress)
                record["effective"] = _facts(server)
                record["accuracy"] = _accuracy(task, engine, server)
            except (load.LoadFailed, requests.RequestException) as error:
                record |= {"state": "died", "failure": asdict(_death(engine, server, error))}
        if server.exit:
            record["exit"] = {**asdict(server.exit), "left": len(marked_processes(marker, exact=True))}
    except ArmFailed as error:
        record |= {"state": "failed", "failure": asdict(error.failure)}
        record["ready"] = {"health": error.failure.healthy, "completion_tokens": None, "model": None}
    compress_log(folder)
    record["timings"] = {
        "started_at": started_at,
        "started_s": started_s,
        "ready_seconds": ready_seconds,
        "closed_at": utc_now(),
        "seconds": time.monotonic() - started_s,
        "planned_seconds": launch_seconds(_window(campaign, task), len(task.owed), record["time_factor"]),
    }
    if task.lever and task.control and record["state"] == "ok":
        proof = task.lever.proof(task.control, Launch(folder, record), engine)
        record["proof"] = asdict(proof)
    return close_launch(folder, record)


def slot_of(campaign: Campaign, arm: Arm, engine: Engine) -> str:
    """Names what a launch of `arm` measures: an equal one on record need not be measured again."""
    workloads = campaign.file.model_dump()["workloads"]
    for workload in workloads.values():
        if workload["path"]:
            workload["path_sha256"] = sha256_file(campaign.folder / workload["path"])
    window = campaign.window.model_dump()
    return slot_digest(arm.model_dump(), workloads, window, engine.build(arm))


def _facts(server: Server) -> dict[str, dict[str, Any]]:
    return {key: {"value": fact.value, "source": fact.source} for key, fact in patiently(server.describe).items()}


def _death(engine: Engine, server: Server, error: Exception) -> Failure:
    """Why a launch could not be measured to its end: the server ended, or it lives and does not answer."""
    deadline = time.monotonic() + END_SECONDS
    while server.alive() and time.monotonic() < deadline:
        time.sleep(0.1)
    if server.alive():
        text = f"the server stopped answering: {error}; raise limits.stall_seconds if it was only slow"
        return Failure("unresponsive", text)
    end = server.stop()
    cause = engine.failure(server.log_text(), end.code if end else None)
    return Failure(cause.kind, f"the server ended under load: {cause.reason}", cause.detail)


def _accuracy(task: Task, engine: Engine, server: Server) -> dict[str, Any] | None:
    """The answers to the questions of the accuracy probe; None when none were asked or the server did not answer."""
    if not task.accuracy_items:
        return None
    try:
        return probe(
            server.url,
            server.model,
            items=task.accuracy_items,
            extras=engine.request_extras(),
            headers=server.headers,
        )
    except requests.RequestException:
        return None


def _window(campaign: Campaign, task: Task) -> Window:
    if task.window_share == 1:
        return campaign.window
    shares = {name: value * task.window_share for name, value in campaign.window.model_dump().items()}
    return campaign.window.model_copy(update=shares)


def _measure_trials(
    run: Run,
    campaign: Campaign,
    task: Task,
    server: Server,
    record: dict[str, Any],
    folder: Path,
    gpus: Gpus | None,
    progress: Progress,
) -> None:
    window = _window(campaign, task)
    facts = {key: fact["value"] for key, fact in record["effective"].items()}
    control = task.control.effective if task.control else facts
    idle: IdleLook | None = observe.idle_look(server.sample, IDLE_LOOK_SECONDS / server.time_factor)
    for owed in task.owed:
        workload = campaign.workloads[owed.workload]
        trial_folder = folder / "trials" / owed.name
        progress(f"{task.arm.name}: {owed.workload} at C={owed.concurrency}")
        server.reset_cache()
        sections = measure_trial(
            server,
            workload,
            owed.concurrency,
            salt=digest([campaign.name, task.pass_number, owed.workload, owed.concurrency, owed.purpose])[:6],
            window=window,
            limits=campaign.limits,
            folder=trial_folder,
            workload_folder=campaign.folder,
            facts=facts,
            context_tokens=control.get("context_tokens"),
            idle=idle,
            gpus=gpus,
        )
        trial = {
            "schema": SCHEMA,
            "simulated": record["simulated"],
            **{key: record[key] for key in ("campaign", "run_id", "launch", "order", "pass", "role")},
            "arm": task.arm.name,
            "lever": task.arm.lever,
            "treatment": task.arm.treatment,
            "workload": owed.workload,
            "concurrency": owed.concurrency,
            "purpose": owed.purpose,
            **sections,
        }
        write_json(trial_folder / "trial.json", trial)
        record["trials"].append(owed.name)
        idle = None
