"""From a campaign file to a run folder: everything that can be known wrong is known before the first launch.

Without it, a missing checkpoint or a misspelt flag of the last lever surfaces after an hour of measurements.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from lab import engines, observe, plan
from lab.campaign import PROJECT, Arm, Campaign
from lab.engines.base import Engine
from lab.errors import InputError, say
from lab.expectations import check_devices, with_predictions
from lab.files import digest, make_folder
from lab.levers import Lever, resolve
from lab.observe import bandwidth
from lab.plan import LeverPlan
from lab.records import utc_now
from lab.roofline.hardware import Hardware
from lab.roofline.model import Model
from lab.runs import Run
from lab.secrets import redacted
from lab.this_machine import hardware_here

_PACKAGES = ("jupyterlab", "papermill", "mlflow", "pandas", "numpy", "xllamacpp")


@dataclass(frozen=True)
class Prepared:
    """A checked campaign with its engine, model and the plan of each lever."""

    campaign: Campaign
    engine: Engine
    model: Model
    levers: list[LeverPlan]
    passes: int


def prepare(campaign: Campaign, only: Sequence[str] | None = None, passes: int | None = None) -> Prepared:
    """Check the campaign against its engine and model; raises InputError for the first thing that is wrong.

    `only`: names of levers to measure (None: all); `passes`: the most there may be, instead of `rule.passes.max`.
    """
    levers = resolve(campaign, only)
    if not levers and only is None:
        raise campaign.document.error(("levers",), "there is nothing to judge; name at least one lever")
    engine = _engine(campaign)
    control = campaign.control
    _, found = engine.model_of(_located(campaign, engine, control, ("model", "checkpoint")))
    model = replace(found, name=campaign.model.name)
    plans, arms = [], [control]
    for lever in levers:
        planned = plan_lever(lever, engine, model, control)
        treatments = [] if planned.not_applicable or lever.searches else lever.treatments(control, engine)
        for arm in treatments:
            if arm.digest == control.digest:
                text = "the treatment is equal to the control; change a flag, variable, checkpoint or runtime"
                raise campaign.document.error(("levers", lever.name), text)
            if arm.checkpoint != control.checkpoint:
                _located(campaign, engine, arm, ("levers", lever.name))
        plans.append(planned)
        arms += treatments
    _check_arms(campaign, engine, arms)
    check_devices(campaign, arms)
    return Prepared(campaign, engine, model, plans, passes or campaign.rule.passes.max)


def plan_lever(lever: Lever, engine: Engine, model: Model, control: Arm) -> LeverPlan:
    """What a run does about one lever."""
    reason = lever.not_applicable(engine, model)
    arms = () if reason else tuple(redacted(arm.model_dump()) for arm in lever.treatments(control, engine))
    return LeverPlan(
        name=lever.name,
        notebook=lever.notebook,
        title=lever.title,
        arms=arms,
        not_applicable=reason,
        searches=0 if reason else lever.searches,
    )


def create_run(prepared: Prepared, results: Path, mode: str) -> Run:
    """Find out what serves, and what is expected of every arm, and open the run folder; `mode`: campaign (by `lab run`)
    or block (by hand)."""
    campaign = prepared.campaign
    make_folder(results)
    hardware = _hardware(prepared)
    record = {
        "file": redacted(campaign.dump()),
        "path": str(campaign.document.path),
        "digest": campaign_digest(campaign),
        "rule_digest": campaign.rule.digest(),
        "created_at": utc_now(),
        "simulated": prepared.engine.simulated,
        "hardware": None if hardware is None else asdict(hardware),
        "machine": observe.describe_machine(),
        "model": asdict(prepared.model),
        "engine": prepared.engine.build(campaign.control),
        "software": {name: metadata.version(name) for name in _PACKAGES} | {"python": platform.python_version()},
        "git": _git(),
    }
    expected = plan.estimate(campaign, prepared.levers, prepared.passes)
    levers = with_predictions(campaign, prepared.engine, prepared.model, hardware, prepared.levers)
    return Run.create(results, record, plan.dump(levers, prepared.passes, mode, expected))


def _hardware(prepared: Prepared) -> Hardware | None:
    """What serves: what the file names, else the GPUs of this machine, else its processors, measured.

    None, and so no bound: a simulated server, which runs on no hardware, and GPUs that the catalogue does not know.
    """
    campaign, engine = prepared.campaign, prepared.engine
    if engine.simulated:
        return None
    if (hardware := campaign.named_hardware()) is not None:
        return hardware
    if engine.leaves_gpus_alone:
        return bandwidth.probe()
    try:
        return hardware_here(observe.local_gpus({**os.environ, **campaign.control.env}))
    except InputError as error:
        say(f"lab: {error}; this run has no bound")
        return None


def campaign_digest(campaign: Campaign) -> str:
    """Names the resolved file: a run is resumed only under the file it began with."""
    return digest(campaign.dump())


def _engine(campaign: Campaign) -> Engine:
    try:
        return engines.get(campaign.server.engine)
    except InputError as error:
        raise campaign.document.error(("server", "engine"), str(error)) from None


def _located(campaign: Campaign, engine: Engine, arm: Arm, location: tuple[str, ...]) -> Arm:
    try:
        return engine.located(arm, campaign.folder)
    except InputError as error:
        raise campaign.document.error(location, str(error)) from None


def _check_arms(campaign: Campaign, engine: Engine, arms: Sequence[Arm]) -> None:
    try:
        engine.check_all([engine.located(arm, campaign.folder) for arm in arms])
    except InputError as error:
        raise InputError(f"{campaign.document.path}: {error}") from None


def _git() -> dict[str, Any]:
    def ask(*arguments: str) -> str | None:
        try:
            answer = subprocess.run(
                ["git", "-C", str(PROJECT), *arguments], capture_output=True, text=True, timeout=20, check=True
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return answer.stdout.strip()

    changes = ask("status", "--porcelain")
    return {"commit": ask("rev-parse", "HEAD"), "dirty": None if changes is None else bool(changes)}
