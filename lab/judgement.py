"""From the records of a run to one verdict row per treatment.

Without it in one place, the table, the notebooks and the dashboard would each weigh the records differently. It only
reads: the same records and rule give the same rows at any later time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from lab import retry
from lab.accuracy.gate import gate, state
from lab.audit import Code
from lab.audit.repeats import not_counterbalanced
from lab.audit.theory import prediction_missed
from lab.campaign import CONTROL, Accuracy, Passes, Rule
from lab.context import ACCURACY_CODES, Audited, accuracy_record, audit_run
from lab.effects import guard, judged, matched_effect, traded
from lab.errors import InputError
from lab.files import write_json
from lab.health import hardware_of
from lab.metrics import GOODPUT, TOK_S_PER_GPU
from lab.plan import LeverPlan, load_levers
from lab.records import JUDGED, NEVER_JUDGED, SEARCH, Launch
from lab.row_bounds import PREDICTED_METRIC, RowBounds, row_bounds
from lab.row_codes import invalidating, names, recurring_of_launches, recurring_warnings, withdrawing
from lab.row_figures import adjust, drifts, gap_closed_pct, interval, mean, proof
from lab.runs import Run
from lab.stats.compare import Effect
from lab.verdict import Evidence, Verdict, decide

# Launches of a treatment in a block: control, treatment, treatment, control.
BLOCK_LAUNCHES = 2
NOT_TESTED, UNKNOWN = "not-tested", "unknown"


@dataclass(frozen=True)
class Judgement:
    """Verdict rows (keys of the contract, section 4), and the codes of every trial and of every launch (by id).

    settled: arms that the sequential rule needs no further pass of; attempts: by arm, pass and role; launch_cv_pct: how
    far launches of one arm differ, drift taken out, by the arm compared with the control.
    """

    rule: Rule
    rows: list[dict[str, Any]]
    audited: list[Audited]
    launch_codes: dict[str, list[Code]]
    settled: frozenset[str] = frozenset()
    attempts: dict[retry.Slot, list[retry.Attempt]] = field(default_factory=dict)
    launch_cv_pct: dict[str, float] = field(default_factory=dict)


def judge(run: Run, rule: Rule | None = None) -> Judgement:
    """Judge a run by its own frozen rule, or by another one; raises InputError when the frozen one was edited, or the
    records cannot answer what the rule asks."""
    rule = rule or _frozen_rule(run)
    launches = run.launches()
    key = (run.path, tuple(launch.id for launch in launches), tuple(run.notebook_failures()), rule.digest())
    found = _JUDGED.get(key)
    if found is None:
        found = _Judge(run, rule, launches).judgement()
        _JUDGED.clear()
        _JUDGED[key] = found
    return found


# The last judgement: a notebook asks for the same one in every cell, and closed launches never change.
_JUDGED: dict[Any, Judgement] = {}


def _frozen_rule(run: Run) -> Rule:
    rule = Rule.model_validate(run.campaign["file"]["rule"])
    if rule.digest() != run.campaign["rule_digest"]:
        raise InputError(f"{run.path / 'campaign.json'}: its rule was changed after the run began; restore it")
    return rule


def _check_answerable(run: Run, rule: Rule, entries: Sequence[Audited]) -> None:
    """Raise InputError for a workload, load or metric of the rule that no judged trial has."""
    judged = [entry for entry in entries if entry.judged]
    asked = f"{rule.workload} at C={rule.concurrency}"
    had = sorted({f"{entry.trial.workload} at C={entry.trial.concurrency}" for entry in judged})
    if judged and asked not in had:
        raise InputError(f"{run.path}: its rule is about {asked}, its judged windows are of {', '.join(had)}")
    if judged and all(entry.lacks(rule.metric) for entry in judged):
        why = {
            TOK_S_PER_GPU: "the server did not say how many GPUs it uses",
            GOODPUT: f"the workload {rule.workload} had no slo when it was measured",
        }.get(rule.metric, "no trial has it")
        raise InputError(f"{run.path}: its records cannot tell the rule's metric {rule.metric}: {why}")


def write(run: Run, judgement: Judgement) -> None:
    """Keep a judgement beside those under other rules: judgements/<rule-digest>/verdicts.json audits.json (trials) and
    launch_audits.json."""
    folder = run.path / "judgements" / judgement.rule.digest()
    audits = [
        {"trial": entry.trial.id, "valid": entry.valid, "codes": [asdict(code) for code in entry.codes]}
        for entry in judgement.audited
    ]
    launches = [
        {"launch": name, "codes": [asdict(code) for code in codes]} for name, codes in judgement.launch_codes.items()
    ]
    write_json(folder / "verdicts.json", judgement.rows)
    write_json(folder / "audits.json", audits)
    write_json(folder / "launch_audits.json", launches)


def capped_batches(run: Run) -> list[int]:
    """Batches that capped treatments really ran, which the next control launches measure for comparison."""
    entries = judge(run).audited
    capped = [entry.trial for entry in entries if "capacity-limited" in names(entry.codes)]
    judged = [trial for trial in capped if trial.purpose == JUDGED and trial.launch.role not in NEVER_JUDGED]
    return sorted({round(trial.server["running"]) for trial in judged})


class _Judge:
    def __init__(self, run: Run, rule: Rule, launches: list[Launch]) -> None:
        self.run, self.rule, self.launches = run, rule, launches
        self.looked_at = rule.model_copy(update={"passes": _passes(run, rule)})
        self.hardware = hardware_of(run.campaign["hardware"])
        self.accuracy = Accuracy.model_validate(run.campaign["file"].get("accuracy", {}))
        found = audit_run(launches, self.hardware, self.accuracy.max_task_drop_pct, (rule.metric, *rule.guards))
        self.audited, self.launch_codes = found.trials, found.launch_codes
        self.attempts = retry.attempts(launches, found.trials)
        self.settled: set[str] = set()
        self.launch_cv_pct: dict[str, float] = {}
        _check_answerable(run, rule, found.trials)

    def judgement(self) -> Judgement:
        rows = [row for lever in load_levers(self.run.plan) for row in self._rows(lever)]
        adjust(rows)
        return Judgement(
            self.rule,
            rows,
            self.audited,
            self.launch_codes,
            frozenset(self.settled),
            self.attempts,
            self.launch_cv_pct,
        )

    def _rows(self, lever: LeverPlan) -> list[dict[str, Any]]:
        if lever.not_applicable:
            return [self._row(lever, {"name": lever.name, "treatment": None})]
        return [self._row(lever, arm) for arm in lever.arms]

    def _row(self, lever: LeverPlan, arm: dict[str, Any]) -> dict[str, Any]:
        name, rule = arm["name"], self.rule
        launches = [x for x in self.launches if x.arm == name and x.role != SEARCH]
        treatment, control = self._judged(name), self._judged(CONTROL)
        valid, controls = ([entry for entry in side if entry.valid] for side in (treatment, control))
        running, running_control = (mean(e.trial.server["running"] for e in side) for side in (valid, controls))
        found = judged(self.audited, name, self.looked_at, len(lever.arms)) if valid and controls else None
        measured = found.effect if found else None
        if found and found.settled:
            self.settled.add(name)
        if measured and measured.df and measured.residual_cv_pct is not None:
            self.launch_cv_pct[name] = measured.residual_cv_pct
        evidence = Evidence(
            title=lever.title,
            not_applicable=lever.not_applicable,
            failure=self._failure(lever, name, launches),
            invalid=invalidating(self.attempts, CONTROL, control) or invalidating(self.attempts, name, treatment),
            treatment_launches=len(valid),
            judged=found,
            effect_matched=matched_effect(self.audited, name, running, rule) if valid else None,
            capped=next((c for entry in treatment for c in entry.codes if c.code == "capacity-limited"), None),
            running=running,
            withdrawn=withdrawing([*valid, *controls], (rule.metric,)),
            accuracy=self._accuracy(name),
            accuracy_codes=self._accuracy_codes(launches),
            accuracy_unknown_allowed=self.accuracy.allow_unknown,
            traded=traded(self.audited, name, rule) if measured else {},
            guards={key: guard(self.audited, name, key, rule) if measured else "unknown" for key in rule.guards},
        )
        verdict = decide(evidence, self.looked_at)
        bounds = row_bounds(valid, controls, self.hardware)
        codes = self._codes(evidence, treatment, valid, controls, launches, bounds.predicted_pct)
        return {
            "campaign": self.run.name,
            "run_id": self.run.run_id,
            "lever": lever.name,
            "treatment": launches[-1].record["arm"]["treatment"] if launches else arm["treatment"],
            "verdict": verdict.label,
            "reason": verdict.reason,
            "metric": rule.metric,
            "workload": rule.workload,
            "concurrency_offered": rule.concurrency,
            "concurrency_running": running,
            "concurrency_running_control": running_control if launches else None,
            **interval(measured),
            "p_adjusted": None,
            "gap_closed_pct": gap_closed_pct(rule, controls, measured),
            "effect_matched_batch_pct": evidence.effect_matched.effect_pct if evidence.effect_matched else None,
            "launches": measured.launches if measured else len(valid) + len(controls) if launches else 0,
            "passes": len({launch.pass_number for launch in launches}),
            "screened": len(valid) == 1,
            **bounds.figures(bool(launches)),
            "accuracy": evidence.accuracy,
            "codes": codes,
            "findings": self._findings(verdict, measured, bounds, codes, launches),
            "guards": evidence.guards,
            "proof": proof(launches),
            "simulated": self.run.campaign.get("simulated", False),
        }

    def _judged(self, arm: str) -> list[Audited]:
        return [entry for entry in self.audited if entry.judged and entry.trial.launch.arm == arm]

    def _codes(
        self,
        evidence: Evidence,
        treatment: Sequence[Audited],
        valid: Sequence[Audited],
        controls: Sequence[Audited],
        launches: Sequence[Launch],
        predicted: float | None,
    ) -> list[str]:
        """Invalidating and warning codes that recurred, those that took a figure away, and those of whole launches."""
        orders = [[entry.trial.launch.record["order"] for entry in side] for side in (valid, controls)]
        measured = evidence.judged.effect if evidence.judged else None
        missed = prediction_missed(measured, predicted) if self.rule.metric == PREDICTED_METRIC else None
        of_the_row = (not_counterbalanced(*orders), missed)
        codes = [
            *evidence.invalid,
            *recurring_warnings(treatment),
            *withdrawing([*valid, *controls], (self.rule.metric, *self.rule.guards)),
            *recurring_of_launches(launches, self.launch_codes),
            *evidence.accuracy_codes,
            *(code for code in of_the_row if code is not None),
        ]
        return list(dict.fromkeys(names(codes)))

    def _accuracy(self, arm: str) -> str:
        """The state of the paired gate; not-tested unless both arms were probed."""
        control, treatment = (accuracy_record(self.launches, name) for name in (CONTROL, arm))
        if control is None or treatment is None:
            return NOT_TESTED
        tested = gate(control, treatment, self.accuracy.max_task_drop_pct)
        return UNKNOWN if tested is None else state(tested, self.accuracy.max_task_drop_pct)

    def _accuracy_codes(self, launches: Sequence[Launch]) -> list[Code]:
        """Of the launch whose record the gate read: the first that lived and has one."""
        probed = [x for x in launches if x.ok and x.role not in NEVER_JUDGED and x.record.get("accuracy") is not None]
        return [code for x in probed[:1] for code in self.launch_codes[x.id] if code.code in ACCURACY_CODES]

    def _findings(
        self,
        verdict: Verdict,
        measured: Effect | None,
        bounds: RowBounds,
        codes: Sequence[str],
        launches: Sequence[Launch],
    ) -> list[str]:
        first = any(code.code == "first-launch" for launch in launches for code in self.launch_codes[launch.id])
        told = {
            "drift": drifts(measured),
            "throttled": "throttled" in codes,
            "first-launch": first,
            "launch-died": any(launch.record["state"] == "died" for launch in launches),
        }
        named = self.run.campaign["file"].get("hardware")
        roofline = bounds.findings(measured, self.rule.metric, launches, named)
        return [*verdict.findings, *(name for name, true in told.items() if true), *roofline]

    def _failure(self, lever: LeverPlan, arm: str, launches: Sequence[Launch]) -> str | None:
        """Why the arm never lived, or could not be launched in a pass although it was tried again."""
        failed = [launch for launch in launches if not launch.ok]
        if failed and not any(launch.ok for launch in launches):
            failure = failed[-1].record["failure"]
            return f"{failure['kind']}: {failure['reason']}"
        if gone := retry.failed_pass(self.attempts, arm):
            return gone
        note = self.run.notebook_failures().get(lever.name)
        return note if note and not launches else None


def _passes(run: Run, rule: Rule) -> Passes:
    """How often the rule looks: up to as many passes as the run planned; once, at its end, in a block by hand, whose
    treatment is launched twice."""
    last = BLOCK_LAUNCHES if run.plan["mode"] == "block" else run.plan["passes"]
    return Passes(min=min(rule.passes.min, last), max=last)
