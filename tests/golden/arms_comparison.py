"""Scenarios in which the arms were asked different things, or nobody can say what they were.

Without them the arm with shorter answers or another sampling temperature wins, and the lever gets the credit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lab.audit import INVALID, WARNING
from lab.campaign import Campaign
from tests.golden.scenario import Scenario
from tests.golden.stage import PAIR, Play

OPENING_LAUNCH, TREATMENT_LAUNCH = 0, 1


def _renamed(launch: int) -> Any:
    """Another seed of the prompts: it follows from the campaign's name."""

    def between(number: int, campaign: Campaign) -> Campaign:
        return _edited(campaign, name="other") if number == launch else campaign

    return between


def _warmer(number: int, campaign: Campaign) -> Campaign:
    """Somebody edits the workload before the treatment is launched."""
    if number != TREATMENT_LAUNCH:
        return campaign
    load = campaign.workloads["load"].model_copy(update={"temperature": 0.7})
    return _edited(campaign, workloads={"load": load})


def _more_patient(number: int, campaign: Campaign) -> Campaign:
    """Somebody edits a limit, which no request holds."""
    limits = campaign.limits.model_copy(update={"drain_seconds": 90.0})
    return _edited(campaign, limits=limits) if number == TREATMENT_LAUNCH else campaign


def _edited(campaign: Campaign, **fields: Any) -> Campaign:
    return replace(campaign, file=campaign.file.model_copy(update=fields))


SLOTS = {"max_running": 48}

SCENARIOS = [
    Scenario(
        code="prompt-set-differs",
        severity=INVALID,
        fires=Play(treatment=SLOTS, between=_renamed(TREATMENT_LAUNCH)),
        # The opening control belongs to another pass, whose prompts differ by design.
        silent=Play(treatment=SLOTS, between=_renamed(OPENING_LAUNCH)),
    ),
    Scenario(
        code="arms-not-comparable",
        severity=INVALID,
        fires=Play(flags={"dialect": "sglang"}, treatment=SLOTS, order=PAIR, between=_warmer),
        silent=Play(flags={"dialect": "sglang"}, treatment=SLOTS, order=PAIR, between=_more_patient),
    ),
    Scenario(
        code="output-length-drift",
        severity=WARNING,  # an ad-hoc lever may change the text
        fires=Play(flags={"dialect": "llamacpp"}, treatment={"output.stop_early_share": 0.4}),
        silent=Play(
            flags={"dialect": "llamacpp", "output.stop_early_share": 0.4},
            treatment={"output.stop_early_factor": 0.45},
        ),
        case="between arms",
    ),
    Scenario(
        code="input-length-drift",
        severity=INVALID,
        fires=Play(treatment={"prompt_tokens_factor": 1.3}),
        silent=Play(treatment={"prompt_tokens_factor": 1.005}),
        case="between arms",
    ),
    Scenario(
        code="config-unresolved",
        severity=INVALID,
        fires=Play(flags={"dialect": "sglang", "lies.kv_dtype": "auto"}),
        silent=Play(flags={"dialect": "sglang", "lies.kv_dtype": "float8_e4m3fn"}),
    ),
]
