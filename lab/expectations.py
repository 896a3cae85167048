"""What the roofline expects of each arm of a plan, worked out before the first launch and kept in the plan.

Without it in the run's own plan, nobody could tell a prediction from an explanation found afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lab.campaign import AUTO, CONTROL, Arm, Campaign
from lab.engines.base import Engine
from lab.errors import InputError, LabError
from lab.levers import Lever
from lab.levers import get as get_lever
from lab.plan import LeverPlan
from lab.planned_facts import facts_of_flags
from lab.predictions import Planned, Prediction
from lab.records import JUDGED, Trial
from lab.roofline.hardware import Hardware
from lab.roofline.model import Model
from lab.runs import results_folder, runs
from lab.served import layout_of
from lab.served_bound import cache_types

PAST_RUNS = 3
"""So many of the last runs of a campaign are searched for its control."""
UNNAMED = "hardware not named: no figure before the first launch"
PCT, SENTENCE = "predicted_pct", "prediction"
"""Keys of an arm in plan.json."""


def with_predictions(
    campaign: Campaign, engine: Engine, model: Model, hardware: Hardware | None, plans: Sequence[LeverPlan]
) -> list[LeverPlan]:
    """The plans with the prediction of each arm under PCT (None: no figure) and SENTENCE; `model`: the control's."""
    known = _Control(campaign, engine, model, hardware)
    found = []
    for plan in plans:
        lever = get_lever(campaign, plan.name)
        predicted = [known.expect(lever, Arm.model_validate(arm)) for arm in plan.arms]
        arms = [
            {**arm, PCT: one.effect_pct, SENTENCE: one.sentence} for arm, one in zip(plan.arms, predicted, strict=True)
        ]
        found.append(replace(plan, arms=tuple(arms)))
    return found


def expected(campaign: Campaign, engine: Engine, lever: Lever) -> list[Prediction]:
    """Of each arm of one lever, before there is a run: only for hardware that the file names, since nothing is measured
    here."""
    if campaign.hardware == AUTO:
        return [Prediction(None, UNNAMED)]
    try:
        _, model = engine.model_of(engine.located(campaign.control, campaign.folder))
        if lever.not_applicable(engine, model):
            return []
        known = _Control(campaign, engine, model, campaign.named_hardware())
        return [known.expect(lever, arm) for arm in lever.treatments(campaign.control, engine)]
    except LabError as error:
        return [Prediction(None, f"no figure: {error}")]


def noted(arms: Iterable[Mapping[str, Any]]) -> list[Prediction]:
    """The predictions that a plan holds; none for plans without them."""
    return [Prediction(arm[PCT], arm[SENTENCE]) for arm in arms if SENTENCE in arm]


def devices_named(campaign: Campaign) -> int | None:
    """How many devices the campaign's `hardware` names; None for `auto`."""
    return None if campaign.hardware == AUTO else campaign.hardware["count"]


def check_devices(campaign: Campaign, arms: Iterable[Arm]) -> None:
    """Raise InputError where an arm's flags spread over more devices than the campaign's `hardware.count`; what only
    the running server tells is a finding of its row (`row_bounds`)."""
    count = devices_named(campaign)
    for arm in arms:
        devices = facts_of_flags(arm.engine, arm.flags).get("gpus", 1)
        if count is not None and devices > count:
            text = f"is {count}, and the flags of arm '{arm.name}' spread it over {devices} devices; name as many"
            raise campaign.document.error(("hardware", "count"), text)


class _Control:
    """The control, as flags and the last record of it tell."""

    def __init__(self, campaign: Campaign, engine: Engine, model: Model, hardware: Hardware | None) -> None:
        self.campaign, self.engine, self.model, self.hardware = campaign, engine, model, hardware
        self.flags = facts_of_flags(engine.name, campaign.control.flags)
        past = None if engine.simulated else _last_control(campaign)
        self.facts = {**self.flags, **({} if past is None else _known(past.launch.effective))}
        self.context = _context(campaign) if past is None else past.metrics["mean_context_tokens"]
        self.from_record = past is not None

    def expect(self, lever: Lever, arm: Arm) -> Prediction:
        """What the roofline expects of one treatment; never an error: a run does not end for it."""
        if self.engine.simulated:
            return Prediction(None, "no figure: a simulated server runs on no hardware")
        if self.hardware is None:
            return Prediction(None, "no figure: the hardware of this machine is not known")
        try:
            control, treatment = self._planned(self.facts, self.model), self._treatment(arm)
            found = lever.prediction(control, treatment)
        except LabError as error:
            return Prediction(None, f"no figure: {error}")
        if self.from_record or self.campaign.workloads[self.campaign.rule.workload].input_tokens:
            return found
        return replace(found, sentence=f"{found.sentence}; the prompts are not counted yet, their cache comes on top")

    def _treatment(self, arm: Arm) -> Planned:
        """The control with what the treatment's flags change."""
        flags = facts_of_flags(self.engine.name, arm.flags)
        gone = self.flags.keys() - flags.keys()
        changed = {name: value for name, value in flags.items() if self.flags.get(name) != value}
        facts = {name: value for name, value in self.facts.items() if name not in gone} | changed
        if "kv_dtype_asked" in changed:
            facts |= {"kv_dtype_k": None, "kv_dtype_v": None}
        model = self.model
        if arm.checkpoint != self.campaign.control.checkpoint:
            _, found = self.engine.model_of(self.engine.located(arm, self.campaign.folder))
            model = replace(found, name=model.name)
        return self._planned(facts, model)

    def _planned(self, facts: Mapping[str, Any], model: Model) -> Planned:
        layout = layout_of(facts, mixture=model.experts is not None)
        if layout is None or self.hardware is None:
            raise InputError("how the server will be spread over its GPUs is not known")
        asked, cap = self.campaign.rule.concurrency, facts.get("cap")
        return Planned(
            model=model,
            hardware=self.hardware,
            layout=layout,
            batch=float(asked if cap is None else min(asked, cap)),
            context=self.context,
            cache=cache_types(facts),
        )


def _known(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What a server showed; what it did not show leaves the flags' word."""
    return {name: value for name, value in facts.items() if value is not None}


def _last_control(campaign: Campaign) -> Trial | None:
    """The last judged trial of this control, at the rule's load, in the last runs of the campaign; None: there is none
    whose context is known."""
    rule, arm = campaign.rule, campaign.control.digest
    for run in reversed(runs(results_folder(), campaign.name)[-PAST_RUNS:]):
        for launch in reversed(run.launches()):
            if launch.arm != CONTROL or not launch.ok or launch.record.get("arm_digest") != arm:
                continue
            for trial in launch.trials:
                same = (trial.workload, trial.concurrency, trial.purpose) == (rule.workload, rule.concurrency, JUDGED)
                if same and trial.metrics["mean_context_tokens"]:
                    return trial
    return None


def _context(campaign: Campaign) -> float:
    """Tokens of context of a request, on average over its answer, as far as the file tells."""
    workload = campaign.workloads[campaign.rule.workload]
    read = (workload.input_tokens or 0) + (workload.prefix_tokens or 0)
    return read + (workload.output_tokens or 0) / 2
