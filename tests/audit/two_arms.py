"""A clean treatment trial beside a clean control trial of the same pass, each with some values changed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.campaign import Arm
from lab.records import CLOSING, TREATMENT, Launch, Trial
from tests.builders import TRIAL, changed, control_arm, launch_record

WINDOW = {"window.opened_s": 1020.0, "window.opened_at": "2026-11-30T20:46:00.000Z"}


def control_trial(
    changes: Mapping[str, Any] | None = None, facts: Mapping[str, Any] | None = None, **launch: Any
) -> Trial:
    """The closing control of pass 1; `launch` are values of its launch.json."""
    record = launch_record(facts=facts, **{"launch": 2, "order": 2, "pass": 1, "role": CLOSING, **launch})
    return Trial(Path("002-control/trials/chat-c4"), changed(TRIAL, changes), Launch(Path("002-control"), record))


def treatment_trial(
    changes: Mapping[str, Any] | None = None,
    facts: Mapping[str, Any] | None = None,
    arm: Mapping[str, Any] | None = None,
    **launch: Any,
) -> Trial:
    """The treatment of pass 1; `arm` are values of its arm, `launch` of its launch.json."""
    changed_arm = Arm(**{**control_arm().model_dump(), "name": "mtp", "lever": "mtp", "treatment": "on", **(arm or {})})
    base = {"launch": 1, "order": 1, "pass": 1, "role": TREATMENT, "proof": {"applied": True, "text": "shown"}}
    record = launch_record(changed_arm, facts, **{**base, **launch})
    return Trial(
        Path("001-mtp/trials/chat-c4"), changed(TRIAL, {**WINDOW, **(changes or {})}), Launch(Path("001-mtp"), record)
    )
