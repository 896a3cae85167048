"""From the records of a run to one verdict row per treatment.

Without it in one place, the table, the notebooks and the dashboard would each weigh the records differently. It only
reads: the same records and rule give the same rows at any later time.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lab.audit import INVALID, WARNING, Code, Context, audit
from lab.campaign import CONTROL, Rule
from lab.errors import InputError
from lab.files import write_json
from lab.health import hardware_of, health, predicted_effect_pct
from lab.plan import LeverPlan, load_levers
from lab.records import JUDGED, MATCHED, SEARCH, Launch, Trial
from lab.runs import Run
from lab.stats.compare import Effect, compare
from lab.verdict import Evidence, decide

# A drift of the machine over the run worth telling; passes cancel it, so it never changes a verdict.
DRIFT_FINDING_PCT = 5.0
DRIFT_FINDING_SPREADS = 3.0


@dataclass(frozen=True)
class Audited:
    """A trial and what the audit found."""

    trial: Trial
    codes: list[Code]

    @property
    def valid(self) -> bool:
        return not any(code.severity == INVALID for code in self.codes)

    @property
    def judged(self) -> bool:
        """Whether a verdict may rest on it: the judged window of a launch that lived, and no search."""
        launch = self.trial.launch
        return self.trial.purpose == JUDGED and launch.role != SEARCH and launch.ok


@dataclass(frozen=True)
class Judgement:
    """Verdict rows (keys of the contract, section 4) and the codes of every trial."""

    rule: Rule
    rows: list[dict[str, Any]]
    audited: list[Audited]


def judge(run: Run, rule: Rule | None = None) -> Judgement:
    """Judge a run by its own frozen rule, or by another one; raises InputError when the frozen one was edited."""
    rule = rule or _frozen_rule(run)
    launches = run.launches()
    key = (run.path, tuple(launch.id for launch in launches), tuple(run.notebook_failures()), rule.digest())
    if key not in _JUDGED:
        _JUDGED.clear()
        _JUDGED[key] = _Judge(run, rule, launches).judgement()
    return _JUDGED[key]


# The last judgement: a notebook asks for the same one in every cell, and closed launches never change.
_JUDGED: dict[Any, Judgement] = {}


def _frozen_rule(run: Run) -> Rule:
    rule = Rule.model_validate(run.campaign["file"]["rule"])
    if rule.digest() != run.campaign["rule_digest"]:
        raise InputError(f"{run.path / 'campaign.json'}: its rule was changed after the run began; restore it")
    return rule


def write(run: Run, judgement: Judgement) -> None:
    """Keep a judgement beside those under other rules: judgements/<rule-digest>/verdicts.json and audits.json."""
    folder = run.path / "judgements" / judgement.rule.digest()
    audits = [
        {"trial": entry.trial.id, "valid": entry.valid, "codes": [asdict(code) for code in entry.codes]}
        for entry in judgement.audited
    ]
    write_json(folder / "verdicts.json", judgement.rows)
    write_json(folder / "audits.json", audits)


def capped_batches(run: Run) -> list[int]:
    """Batches that capped treatments really ran, which the next control launches measure for comparison."""
    entries = judge(run).audited
    capped = [entry.trial for entry in entries if "capacity-limited" in _names(entry.codes)]
    judged = [trial for trial in capped if trial.purpose == JUDGED and trial.launch.role != SEARCH]
    return sorted({round(trial.server["running"]) for trial in judged})


class _Judge:
    def __init__(self, run: Run, rule: Rule, launches: list[Launch]) -> None:
        self.run, self.rule, self.launches = run, rule, launches
        self.hardware = hardware_of(run.campaign["hardware"])
        caps = [launch.effective.get("cap") for launch in self.launches if launch.arm == CONTROL and launch.ok]
        known = [cap for cap in caps if cap is not None]
        self.control_cap = min(known) if known else None
        self.audited = [
            Audited(trial, audit(trial, Context(None if launch.arm == CONTROL else self.control_cap)))
            for launch in self.launches
            for trial in launch.trials
        ]

    def judgement(self) -> Judgement:
        rows = [row for lever in load_levers(self.run.plan) for row in self._rows(lever)]
        _adjust(rows)
        return Judgement(self.rule, rows, self.audited)

    def _rows(self, lever: LeverPlan) -> list[dict[str, Any]]:
        if lever.not_applicable:
            return [self._row(lever, {"name": lever.name, "treatment": None})]
        return [self._row(lever, arm) for arm in lever.arms]

    def _row(self, lever: LeverPlan, arm: dict[str, Any]) -> dict[str, Any]:
        name = arm["name"]
        launches = [x for x in self.launches if x.arm == name and x.role != SEARCH]
        treatment, control = self._judged(name), self._judged(CONTROL)
        valid = [entry.trial for entry in treatment if entry.valid]
        controls = [entry.trial for entry in control if entry.valid]
        effect = self._effect(name, self.rule.metric) if valid and controls else None
        matched = self._matched(name) if valid else None
        invalid = _recurring(control) or _recurring(treatment)
        capped = next((c for entry in treatment for c in entry.codes if c.code == "capacity-limited"), None)
        running, running_control = (_mean(t.server["running"] for t in trials) for trials in (valid, controls))
        guards = {key: self._guard(name, key) if effect else "unknown" for key in self.rule.guards}
        verdict = decide(
            Evidence(
                title=lever.title,
                not_applicable=lever.not_applicable,
                failure=self._failure(lever, launches),
                invalid=invalid,
                treatment_launches=len(valid),
                effect=effect,
                effect_matched=matched,
                capped=capped,
                running=running,
                guards=guards,
            ),
            self.rule,
        )
        mine, theirs = health(valid, self.hardware), health(controls, self.hardware)
        codes = [*invalid, *_recurring(treatment, WARNING)]
        return {
            "campaign": self.run.name,
            "run_id": self.run.run_id,
            "lever": lever.name,
            "treatment": launches[-1].record["arm"]["treatment"] if launches else arm["treatment"],
            "verdict": verdict.label,
            "reason": verdict.reason,
            "metric": self.rule.metric,
            "workload": self.rule.workload,
            "concurrency_offered": self.rule.concurrency,
            "concurrency_running": running,
            "concurrency_running_control": running_control if launches else None,
            **_interval(effect),
            "p_adjusted": None,
            "gap_closed_pct": self._gap_closed_pct(controls, effect),
            "effect_matched_batch_pct": matched.effect_pct if matched else None,
            "launches": effect.launches if effect else len(valid) + len(controls) if launches else 0,
            "passes": len({launch.pass_number for launch in launches}),
            "screened": len(valid) == 1,
            "bound_tok_s": mine.bound_tok_s,
            "bound_fraction": mine.bound_fraction,
            "bound_fraction_control": theirs.bound_fraction if launches else None,
            "predicted_effect_pct": predicted_effect_pct(valid, controls, self.hardware),
            "accuracy": "not-tested",
            "codes": list(dict.fromkeys(_names(codes))),
            "findings": [*verdict.findings, *(["drift"] if _drifts(effect) else []), *_deaths(launches)],
            "guards": guards,
            "proof": _proof(launches),
            "simulated": self.run.campaign.get("simulated", False),
        }

    def _judged(self, arm: str) -> list[Audited]:
        return [entry for entry in self.audited if entry.judged and entry.trial.launch.arm == arm]

    def _effect(self, arm: str, metric: str) -> Effect | None:
        """The launch-level comparison of one metric over all valid judged trials of the run."""
        entries = [entry.trial for entry in self.audited if entry.judged and entry.valid]
        return self._compare([(trial, _value(trial, metric)) for trial in entries], arm)

    def _matched(self, arm: str) -> Effect | None:
        """The treatment's capped windows against control windows at that batch."""
        mine = [entry.trial for entry in self._judged(arm) if entry.valid]
        batch = _mean(trial.server["running"] for trial in mine)
        if batch is None or round(batch) >= self.rule.concurrency:
            return None
        controls = [
            entry.trial
            for entry in self.audited
            if entry.valid
            and entry.trial.purpose == MATCHED
            and entry.trial.launch.ok
            and entry.trial.concurrency == round(batch)
        ]
        trials = [*mine, *controls]
        return self._compare([(trial, _value(trial, self.rule.metric)) for trial in trials], arm)

    def _compare(self, values: Sequence[tuple[Trial, float | None]], arm: str) -> Effect | None:
        import pandas

        rows = [
            {
                "pass": trial.launch.pass_number,
                "order": trial.launch.record["order"],
                "started_s": trial.record["window"]["opened_s"],
                "arm": trial.launch.arm,
                "value": value,
            }
            for trial, value in values
            if value is not None and value > 0
        ]
        arms = {row["arm"] for row in rows}
        if not {arm, CONTROL} <= arms:
            return None
        frame = pandas.DataFrame(rows).sort_values("order", ignore_index=True)
        return compare(frame, CONTROL, arm, self.rule.alpha)

    def _gap_closed_pct(self, controls: Sequence[Trial], effect: Effect | None) -> float | None:
        """The share of the way from the control to the rule's target that the lever goes, in percent."""
        start, target = _mean(_value(trial, self.rule.metric) for trial in controls), self.rule.target
        if target is None or start is None or start == target or effect is None or effect.effect_pct is None:
            return None
        return start * effect.effect_pct / (target - start)

    def _guard(self, arm: str, metric: str) -> str:
        """held, broken or unknown: where the interval of a second metric lies against its limit."""
        guard, effect = self.rule.guards[metric], self._effect(arm, metric)
        if effect is None or effect.ci_low_pct is None or effect.ci_high_pct is None:
            return "unknown"
        if guard.max_increase_pct is not None:
            low, high, limit = effect.ci_low_pct, effect.ci_high_pct, guard.max_increase_pct
        else:
            low, high, limit = -effect.ci_high_pct, -effect.ci_low_pct, guard.max_decrease_pct or 0.0
        return "broken" if low > limit else "held" if high <= limit else "unknown"

    def _failure(self, lever: LeverPlan, launches: Sequence[Launch]) -> str | None:
        failed = [launch for launch in launches if not launch.ok]
        if failed and not any(launch.ok for launch in launches):
            failure = failed[-1].record["failure"]
            return f"{failure['kind']}: {failure['reason']}"
        note = self.run.notebook_failures().get(lever.name)
        return note if note and not launches else None


def _value(trial: Trial, metric: str) -> float | None:
    if metric == "kv_tokens":
        return trial.launch.effective.get("kv_tokens")
    return trial.metrics.get(metric)


def _recurring(entries: Sequence[Audited], severity: str = INVALID) -> list[Code]:
    """Codes of one severity that recur in an arm, or that left it without a valid trial."""
    found = [code for entry in entries for code in entry.codes if code.severity == severity]
    counts = Counter(code.code for code in found)
    nothing_left = severity == INVALID and not any(entry.valid for entry in entries)
    recurring = [code for code in found if counts[code.code] > 1 or nothing_left]
    return list({code.code: code for code in recurring}.values())


def _names(codes: Iterable[Code]) -> list[str]:
    return [code.code for code in codes]


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _interval(effect: Effect | None) -> dict[str, float | None]:
    names = ("effect_pct", "ci_low_pct", "ci_high_pct", "p_value")
    return {name: getattr(effect, name) if effect else None for name in names}


def _proof(launches: Sequence[Launch]) -> str | None:
    """What showed, or failed to show, the lever on the server of the last launch that was asked."""
    proofs = [launch.record["proof"]["text"] for launch in launches if launch.record["proof"]]
    return proofs[-1] if proofs else None


def _deaths(launches: Sequence[Launch]) -> list[str]:
    """A launch that died is told even where others carried the verdict."""
    return ["launch-died"] if any(launch.record["state"] == "died" for launch in launches) else []


def _drifts(effect: Effect | None) -> bool:
    """Whether the drift is large, and larger than the launch noise that its own estimate holds."""
    if effect is None or effect.drift_pct is None or effect.residual_cv_pct is None:
        return False
    return abs(effect.drift_pct) >= max(DRIFT_FINDING_PCT, DRIFT_FINDING_SPREADS * effect.residual_cv_pct)


def _adjust(rows: list[dict[str, Any]]) -> None:
    """Holm's step-down adjustment over the campaign (1979, Scand. J. Statist. 6:65-70): a column, not the verdict."""
    tested = sorted((row for row in rows if row["p_value"] is not None), key=lambda row: row["p_value"])
    running = 0.0
    for index, row in enumerate(tested):
        running = max(running, min(1.0, (len(tested) - index) * row["p_value"]))
        row["p_adjusted"] = running
