"""One launch: start an arm, measure the trials it owes, keep the proof, close the record.

Without one place for this, the notebook and the batch run would each measure a little differently.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import requests

from lab import checkpoints, load, models, observe
from lab.campaign import Arm, Campaign
from lab.engines.base import ArmFailed, Engine, Failure, Server
from lab.files import digest, make_folder, write_json
from lab.levers.base import Lever
from lab.plan import Owed
from lab.records import SCHEMA, Launch, close_launch, compress_log, slot_digest, utc_now
from lab.runs import Run
from lab.secrets import redacted

# A look at an idle server before its first trial; nobody else knows a server that the lab just started.
IDLE_LOOK_SECONDS = 1.0
# How long a server whose connections broke may take to be seen as ended.
END_SECONDS = 2.0
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


def measure(run: Run, campaign: Campaign, engine: Engine, task: Task, progress: Progress) -> Launch:
    """Measure one launch and write its record; an arm that will not start, or dies, is a record too.

    Raises InputError for what was wrong before the start (checkpoint, runtime) and lets an interrupt through; the
    server is stopped in every case.
    """
    path = checkpoints.resolve(task.arm.checkpoint, campaign.folder)
    checkpoint, model = models.describe(path)
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
        "checkpoint": {**asdict(checkpoint), "path": str(path)},
        "model": asdict(model),
        "argv": [],
        "env": {},
        "effective": {},
        "build": engine.build(task.arm),
        "state": "ok",
        "failure": None,
        "proof": None,
        "exit": None,
        "machine": observe.describe_machine(),
        "trials": [],
    }
    ready_seconds = None
    try:
        with engine.launch(
            task.arm.model_copy(update={"checkpoint": str(path)}),
            folder,
            campaign.limits,
            marker=f"{run.run_id}/{folder.name}",
        ) as server:
            ready_seconds = server.ready_seconds
            record |= {"argv": server.argv, "env": server.env, "effective": _facts(server)}
            try:
                _measure_trials(run, campaign, engine, task, server, record, folder, progress)
                record["effective"] = _facts(server)
            except (load.LoadFailed, requests.RequestException) as error:
                record |= {"state": "died", "failure": asdict(_death(engine, server, error))}
        record["exit"] = asdict(server.exit) if server.exit else None
    except ArmFailed as error:
        record |= {"state": "failed", "failure": asdict(error.failure)}
    compress_log(folder)
    record["timings"] = {
        "started_at": started_at,
        "started_s": started_s,
        "ready_seconds": ready_seconds,
        "closed_at": utc_now(),
        "seconds": time.monotonic() - started_s,
    }
    if task.lever and task.control and record["state"] == "ok":
        proof = task.lever.proof(task.control, Launch(folder, record), engine)
        record["proof"] = asdict(proof)
    return close_launch(folder, record)


def slot_of(campaign: Campaign, arm: Arm, engine: Engine) -> str:
    """Names what a launch of `arm` measures: an equal one on record need not be measured again."""
    workloads = campaign.file.model_dump()["workloads"]
    window = campaign.window.model_dump()
    return slot_digest(arm.model_dump(), workloads, window, engine.build(arm))


def _facts(server: Server) -> dict[str, dict[str, Any]]:
    return {key: {"value": fact.value, "source": fact.source} for key, fact in server.describe().items()}


def _death(engine: Engine, server: Server, error: Exception) -> Failure:
    """Why a launch could not be measured to its end: the server ended, or it lives and does not answer."""
    deadline = time.monotonic() + END_SECONDS
    while server.alive() and time.monotonic() < deadline:
        time.sleep(0.1)
    if server.alive():
        text = f"the server stopped answering under load: {error}; raise limits.stall_seconds if it was only slow"
        return Failure("unresponsive", text)
    cause = engine.failure(server.log_text(), server.stop().code)
    return Failure(cause.kind, f"the server ended under load: {cause.reason}", cause.detail)


def _measure_trials(
    run: Run,
    campaign: Campaign,
    engine: Engine,
    task: Task,
    server: Server,
    record: dict[str, Any],
    folder: Any,
    progress: Progress,
) -> None:
    window = campaign.window
    if task.window_share != 1:
        window = window.model_copy(
            update={name: getattr(window, name) * task.window_share for name in ("warmup_seconds", "seconds")}
        )
    idle = observe.idle_look(server.sample, IDLE_LOOK_SECONDS)
    for owed in task.owed:
        workload = campaign.workloads[owed.workload]
        salt = digest([campaign.name, task.pass_number, owed.workload, owed.concurrency, owed.purpose])[:6]
        count = max(load.PROMPT_COUNT, 8 * owed.concurrency)
        prompts = load.build(workload, salt, count)
        trial_folder = folder / "trials" / owed.name
        make_folder(trial_folder)
        progress(f"{task.arm.name}: {owed.workload} at C={owed.concurrency}")
        measured = load.drive(
            server.url,
            server.model,
            prompts,
            concurrency=owed.concurrency,
            output_tokens=workload.output_tokens,
            window=window,
            limits=campaign.limits,
            extras=engine.request_extras(),
            tokens_path=engine.chunk_tokens_path,
            sample=server.sample,
            server_pid=server.pid,
            folder=trial_folder,
            idle_running_max=idle,
        )
        trial = {
            "schema": SCHEMA,
            "simulated": False,
            **{key: record[key] for key in ("campaign", "run_id", "launch", "order", "pass", "role")},
            "arm": task.arm.name,
            "lever": task.arm.lever,
            "treatment": task.arm.treatment,
            "workload": owed.workload,
            "concurrency": owed.concurrency,
            "purpose": owed.purpose,
            **asdict(measured),
        }
        trial["window"]["warmup_seconds"] = window.warmup_seconds
        write_json(trial_folder / "trial.json", trial)
        record["trials"].append(owed.name)
        idle = None
