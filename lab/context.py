"""What each trial of a run is to be compared with, and what the audit finds in that light.

Without one place for it a treatment would be set against a control of another pass, of another load, or against one
that may not be believed itself.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lab.audit import INVALID, Code, Context, audit, audit_launch
from lab.campaign import CONTROL
from lab.health import hard_bound_tok_s, trial_bound
from lab.levers import LEVERS
from lab.levers.custom import Custom
from lab.metrics import GOODPUT, TOK_S_PER_GPU
from lab.records import JUDGED, NEVER_JUDGED, SEARCH, TREATMENT, Launch, Trial
from lab.roofline.hardware import Hardware

# Codes about the answers of an arm: they decide over the lever, and leave its measurements what they are.
ACCURACY_CODES = ("accuracy-regression", "accuracy-underpowered")


@dataclass(frozen=True)
class Audited:
    """A trial and what the audit found, an invalidating code of its whole launch included."""

    trial: Trial
    codes: list[Code]

    @property
    def valid(self) -> bool:
        return not any(code.severity == INVALID for code in self.codes)

    @property
    def judged(self) -> bool:
        """Whether a verdict may rest on it: the judged window of a launch that lived, no search and no burn-in."""
        launch = self.trial.launch
        return self.trial.purpose == JUDGED and launch.role not in NEVER_JUDGED and launch.ok

    def withdrawing(self, metric: str) -> list[Code]:
        """The codes because of which this metric of the trial may not be used."""
        return [code for code in self.codes if metric in code.withdraws]

    def value(self, metric: str) -> float | None:
        """The metric's value (`kv_tokens`: what the server said); None when it is missing or was withdrawn."""
        measured = "output_tok_s" if metric == TOK_S_PER_GPU else metric
        return None if self.withdrawing(measured) else self.trial.value(metric)

    def lacks(self, metric: str) -> bool:
        """Whether the record cannot tell this metric at all, however the window had gone."""
        metrics = self.trial.metrics
        if metric == TOK_S_PER_GPU:
            return not self.trial.launch.gpus
        return metrics.get(metric) is None if metric == GOODPUT else metric not in metrics


@dataclass(frozen=True)
class AuditedRun:
    """All trials of a run with their codes, and the codes of its launches by launch id."""

    trials: list[Audited]
    launch_codes: dict[str, list[Code]] = field(default_factory=dict)


def audit_run(
    launches: Sequence[Launch], hardware: Hardware | None, max_drop_pct: float, metrics: tuple[str, ...] = ()
) -> AuditedRun:
    """Audit every launch and trial in the light of the others; `metrics`: what the rule and its guards judge by.

    Controls come first, in order, each set against the controls before it, so that a change of the machine in the
    middle of a run is seen; then all other trials against the controls found valid.
    """
    return _Audit(launches, hardware, max_drop_pct, metrics).done()


def accuracy_record(launches: Sequence[Launch], arm: str) -> dict[str, Any] | None:
    """The record of an arm's accuracy probe: of its first launch that lived and has one."""
    records = [x.record.get("accuracy") for x in launches if x.arm == arm and x.ok and x.role not in NEVER_JUDGED]
    return next((record for record in records if record is not None), None)


Key = tuple[str, int, str]


def _key(trial: Trial) -> Key:
    """What two trials must have in common to be compared at all."""
    return trial.workload, trial.concurrency, trial.purpose


class _Audit:
    def __init__(
        self, launches: Sequence[Launch], hardware: Hardware | None, max_drop_pct: float, metrics: tuple[str, ...]
    ) -> None:
        self.launches, self.hardware, self.metrics = launches, hardware, metrics
        controls = [launch for launch in launches if launch.arm == CONTROL and launch.ok]
        caps = [cap for launch in controls if (cap := launch.effective.get("cap")) is not None]
        self.control_cap = min(caps) if caps else None
        self.searched = Counter(launch.arm for launch in launches if launch.role == SEARCH)
        self.fresh = Counter(launch.arm for launch in launches if launch.role == TREATMENT and launch.ok)
        self.controls: dict[Key, list[Trial]] = defaultdict(list)
        self.repeats: dict[tuple[str, Key], list[Trial]] = defaultdict(list)
        accuracy = accuracy_record(launches, CONTROL)
        self.launch_codes = {
            launch.id: audit_launch(
                launch, Context(control_accuracy=None if launch.arm == CONTROL else accuracy, max_drop_pct=max_drop_pct)
            )
            for launch in launches
        }

    def done(self) -> AuditedRun:
        found = {entry.trial.id: entry for arm in (True, False) for entry in self._pass_over(arm)}
        return AuditedRun([found[trial.id] for launch in self.launches for trial in launch.trials], self.launch_codes)

    def _pass_over(self, controls: bool) -> list[Audited]:
        launches = [launch for launch in self.launches if (launch.arm == CONTROL) == controls]
        return [self._audited(trial) for launch in launches for trial in launch.trials]

    def _audited(self, trial: Trial) -> Audited:
        launch = trial.launch
        compared = launch.ok and launch.role not in NEVER_JUDGED
        codes = audit(trial, self._context(trial, compared))
        codes += [
            code
            for code in self.launch_codes[launch.id]
            if code.severity == INVALID and code.code not in ACCURACY_CODES
        ]
        entry = Audited(trial, codes)
        if compared and entry.valid:
            self.repeats[launch.arm, _key(trial)].append(trial)
            if launch.arm == CONTROL:
                self.controls[_key(trial)].append(trial)
        return entry

    def _context(self, trial: Trial, compared: bool) -> Context:
        launch = trial.launch
        nominal = trial_bound(trial, self.hardware)
        bounds = {
            "bound_tok_s": nominal.bound_tok_s if nominal else None,
            "hard_bound_tok_s": hard_bound_tok_s(trial, self.hardware) if nominal else None,
        }
        control_cap = None if launch.arm == CONTROL else self.control_cap
        if not compared:
            return Context(control_cap=control_cap, metrics=self.metrics, **bounds)
        controls = self.controls[_key(trial)]
        control = _nearest(trial, controls)
        kind = LEVERS.get(launch.record["arm"]["lever"] or "", Custom)
        return Context(
            control_cap=control_cap,
            metrics=self.metrics,
            control=control,
            repeats=tuple(self.repeats[launch.arm, _key(trial)]),
            controls=len(controls),
            candidates=self.searched[launch.arm] if launch.arm != CONTROL else 0,
            fresh=self.fresh[launch.arm],
            lever_changes_text=launch.arm != CONTROL and kind.changes_text,
            lever_changes_speculation=control is not None
            and bool(launch.effective.get("speculative")) != bool(control.launch.effective.get("speculative")),
            **bounds,
        )


def _nearest(trial: Trial, controls: Sequence[Trial]) -> Trial | None:
    """The nearest control in the order of launches, of the same pass where there is one: its arms share prompts."""

    def distance(control: Trial) -> tuple[bool, int]:
        launch = control.launch
        other_pass = launch.pass_number != trial.launch.pass_number
        return other_pass, abs(launch.record["order"] - trial.launch.record["order"])

    return min(controls, key=distance, default=None)
