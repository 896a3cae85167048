"""`lab aa`: control against control on the real server, the noise floor of a campaign.

Without it nobody knows whether "+3 %" is more than what the same server does from one start to the next.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lab.campaign import CONTROL, Campaign
from lab.context import audit_run
from lab.errors import LabError
from lab.hosts import host_lock
from lab.measure import Task, measure
from lab.plan import Owed
from lab.prepare import create_run, prepare
from lab.records import CLOSING, JUDGED, OPENING, REPEAT
from lab.runs import Run, results_folder, runs
from lab.stats.noise import Noise, noise, resolved_pct

AGAIN = "again"
"""Every second launch of the control, as if it were a treatment."""
FOLDER = "aa"
"""Below the results: apart from the campaigns' own runs."""


@dataclass(frozen=True)
class Floor:
    """The run that was measured, its noise, and how many of its launches were left out as invalid."""

    run: Run
    noise: Noise
    left_out: int


def measure_floor(path: str, passes: int, say: Callable[[str], None]) -> Floor:
    """Launch the control 2·passes + 1 times, each with two windows at the judged load.

    `say` receives a line for each launch. Raises InputError for bad input, LabError when the control fails.
    """
    campaign = Campaign.load(path)
    with host_lock(campaign=str(campaign.document.path)):
        prepared = prepare(campaign, [], passes)
        run = create_run(prepared, results_folder() / FOLDER, FOLDER)
        run.set_status("running")
        rule = campaign.rule
        owed = [Owed(rule.workload, rule.concurrency, purpose) for purpose in (JUDGED, REPEAT)]
        try:
            for order in range(2 * passes + 1):
                task = Task(campaign.control, (order + 1) // 2, CLOSING if order else OPENING, owed)
                launch = measure(run, campaign, prepared.engine, task, lambda text: None)
                if not launch.ok:
                    failure = launch.record["failure"]
                    raise LabError(f"the control failed ({failure['kind']}): {failure['reason']}")
                values = ", ".join(_shown(trial.metrics[rule.metric]) for trial in launch.trials)
                say(f"pass {launch.pass_number}  {launch.id:<16} {rule.metric} {values}")
        except BaseException as error:
            run.set_status("failed", str(error) or type(error).__name__)
            raise
        run.set_status("done")
    return floor_of(run, campaign)


def floor_of(run: Run, campaign: Campaign) -> Floor:
    """The noise in the records of such a run; raises LabError when too few of its launches are valid."""
    rule = campaign.rule
    rows: list[dict[str, Any]] = []
    repeats: list[tuple[float, float]] = []
    launches = run.launches()
    audited = audit_run(launches, None, campaign.accuracy.max_task_drop_pct, (rule.metric,)).trials
    for launch in launches:
        entries = {e.trial.purpose: e for e in audited if e.trial.launch.id == launch.id and e.valid}
        values = {purpose: entry.value(rule.metric) for purpose, entry in entries.items()}
        judged, repeat = values.get(JUDGED), values.get(REPEAT)
        if judged:
            order, started_s = launch.record["order"], entries[JUDGED].trial.window["opened_s"]
            arm = AGAIN if order % 2 else CONTROL
            rows.append({"order": order, "started_s": started_s, "arm": arm, "value": judged})
        if judged and repeat:
            repeats.append((judged, repeat))
    arms = [row["arm"] for row in rows]
    if min(arms.count(CONTROL), arms.count(AGAIN)) < 2:
        raise LabError(f"{run.path}: too few of its launches are valid to tell their spread; see lab audit {run.path}")
    found = noise(rows, CONTROL, AGAIN, repeats, rule.alpha)
    return Floor(run, found, len(launches) - len(rows))


def too_coarse(campaign: Campaign, passes: int) -> str | None:
    """Why so many passes cannot tell what the rule asks, by the last `lab aa` of this campaign; None: they can, or
    nothing is known."""
    rule = campaign.rule
    known = [run for run in runs(results_folder() / FOLDER, campaign.name) if run.status["state"] == "done"]
    if not known or not rule.min_effect_pct:
        return None
    spread = floor_of(known[-1], campaign).noise.launch_cv_pct
    least = None if spread is None else resolved_pct(spread, passes, rule.alpha)
    if least is None or least <= rule.min_effect_pct:
        return None
    return (
        f"identical launches differ by {spread:.1f} % here (run {known[-1].run_id} of lab aa): {passes} passes tell "
        f"gains from {least:.1f} % on, the rule asks for {rule.min_effect_pct:g} %; more passes or longer windows would"
    )


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def render(floor: Floor, campaign: Campaign) -> str:
    """The floor in words, and what it lets a campaign tell."""
    found, rule = floor.noise, campaign.rule
    lines = [
        f"{campaign.name}: {rule.metric} of {rule.workload} at C={rule.concurrency}, {found.launches} launches of the "
        f"control" + (f", {floor.left_out} left out as invalid" if floor.left_out else ""),
        f"from launch to launch    {_pct(found.launch_cv_pct)}",
        f"inside a launch          {_pct(found.window_cv_pct)} from window to window",
        f"drift over the run       {_pct(found.drift_pct)}",
        "",
        "passes  smallest gain that is adopted four times in five",
    ]
    for passes, effect in found.resolved_pct.items():
        mark = "  ← the rule's passes.max" if passes == rule.passes.max else ""
        lines.append(f"{passes:>6}  {_pct(effect)}{mark}")
    return "\n".join(lines)


def _pct(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} %"
