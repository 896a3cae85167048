"""`lab aa`: control against control on the real server, the noise floor of a campaign.

Without it nobody knows whether "+3 %" is more than what the same server does from one start to the next.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lab.campaign import CONTROL, Campaign
from lab.context import audit_run
from lab.effects import launch_row
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
                values = ", ".join(_shown(trial.value(rule.metric)) for trial in launch.trials)
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
        found = {purpose: launch_row(entry, rule.metric) for purpose, entry in entries.items()}
        judged, repeat = found.get(JUDGED), found.get(REPEAT)
        if judged:
            rows.append(judged | {"arm": AGAIN if judged["order"] % 2 else CONTROL})
        if judged and repeat:
            repeats.append((judged["value"], repeat["value"]))
    arms = [row["arm"] for row in rows]
    if min(arms.count(CONTROL), arms.count(AGAIN)) < 2:
        raise LabError(f"{run.path}: too few of its launches are valid to tell their spread; see lab audit {run.path}")
    found = noise(rows, CONTROL, AGAIN, repeats, rule.alpha)
    return Floor(run, found, len(launches) - len(rows))


@dataclass(frozen=True)
class Reach:
    """What so many passes can tell, by the last `lab aa`: identical launches differ by launch_cv_pct, gains from
    resolved_pct on are adopted four times in five; enough: that is what the rule asks."""

    run_id: str
    passes: int
    launch_cv_pct: float
    resolved_pct: float
    enough: bool

    def __str__(self) -> str:
        return (
            f"identical launches differ by {self.launch_cv_pct:.1f} % here (run {self.run_id} of lab aa): "
            f"{self.passes} passes tell gains from {self.resolved_pct:.1f} % on"
        )


def reach(campaign: Campaign, passes: int) -> Reach | None:
    """None where no `lab aa` of this campaign is on record, or one pass has no interval."""
    known = [run for run in runs(results_folder() / FOLDER, campaign.name) if run.status["state"] == "done"]
    spread = floor_of(known[-1], campaign).noise.launch_cv_pct if known else None
    least = None if spread is None else resolved_pct(spread, passes, campaign.rule.alpha)
    if spread is None or least is None:
        return None
    least_asked = campaign.rule.min_effect_pct
    return Reach(known[-1].run_id, passes, spread, least, enough=not least_asked or least <= least_asked)


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
