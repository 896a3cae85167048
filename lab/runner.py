"""A whole campaign: pass by pass, one papermill process per notebook, a watchdog around each.

Without it levers are run by hand in whatever order, share no controls, and a hung kernel holds the machine all night.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from bisect import bisect_right
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from lab import judgement, plan, retry
from lab.campaign import BASELINE, CONTROL, PROJECT, Campaign
from lab.errors import InputError, LabError, say
from lab.files import digest
from lab.floor import reach
from lab.hosts import LocalHost, host_lock
from lab.lever_study import step_name
from lab.notebook_process import Notebooks, last_line, write_html
from lab.outlook import describe, outlook
from lab.plan import LeverPlan, Step, load_levers
from lab.prepare import create_run, prepare
from lab.records import OPENING, TREATMENT, Launch
from lab.resume import check_build, resumable, same_plan
from lab.runs import Run, results_folder

NOTEBOOKS = PROJECT / "notebooks"
SUMMARY, ROOFLINE = "90_summary", "91_roofline"
# Notebooks of a whole run, by the folder that keeps them; they measure nothing.
OF_THE_RUN = {"summary": SUMMARY, "roofline": ROOFLINE}
# Kernel start, imports and pictures on a slow disk, beside what the launches themselves may take.
NOTEBOOK_LIMIT_SECONDS = 300
PUBLISH_LIMIT_SECONDS = 300


def run_campaign(
    path: str,
    *,
    only: Sequence[str] | None = None,
    passes: int | None = None,
    resume: bool = False,
    resume_id: str | None = None,
    fresh: bool = False,
    over_budget: bool = False,
    publish: bool = True,
) -> Run | None:
    """Measure a campaign to its end and return its run; None when there was nothing to resume.

    Raises InputError for bad input, before anything is written, and LabError when the run itself failed.
    """
    campaign = Campaign.load(path)
    with host_lock(campaign=str(campaign.document.path)):
        run = None if fresh else resumable(campaign, resume, resume_id)
        if run is not None and not same_plan(run, only, passes):
            if resume:
                raise InputError(
                    f"run {run.run_id} has other levers or passes; resume it without --levers and --passes"
                )
            run = None
        if run is None and resume:
            return None
        if run is None:
            prepared = prepare(campaign, only, passes)
            _check_budget(campaign, prepared.levers, prepared.passes, over_budget)
            known = reach(campaign, prepared.passes)
            if known and not known.enough:
                asked = campaign.rule.min_effect_pct
                say(f"warning: {known}, the rule asks for {asked:g} %; more passes or longer windows would")
            run = create_run(prepared, results_folder(), "campaign")
            resumed = False
        else:
            resumed = True
            prepared = prepare(campaign, [lever.name for lever in load_levers(run.plan)])
            check_build(run, prepared.engine.build(campaign.control))
            run.forget_notebook_failures()
            for damage in run.damaged():
                say(f"{damage}; it is measured again")
        run.set_status("running")
        return _Runner(campaign, run, resumed, over_budget).complete(publish)


def _check_budget(campaign: Campaign, levers: Sequence[LeverPlan], passes: int, over_budget: bool) -> None:
    if campaign.budget is None or over_budget:
        return

    def hours(number: int) -> float:
        return plan.estimate(campaign, levers, number).seconds / 3600

    if hours(passes) > campaign.budget.hours:
        fit = bisect_right(range(1, passes + 1), campaign.budget.hours, key=hours)
        less = f"--passes {fit} would fit" if fit else "not even one pass would fit"
        text = f"the plan of {passes} passes needs {hours(passes):.1f} h; {less}; or fewer --levers, or --over-budget"
        raise campaign.document.error(("budget", "hours"), text)


class _Runner:
    def __init__(self, campaign: Campaign, run: Run, resumed: bool, over_budget: bool) -> None:
        self.campaign, self.run, self.resumed, self.over_budget = campaign, run, resumed, over_budget
        self.levers = load_levers(run.plan)
        self.started = time.monotonic()
        self.notebooks = Notebooks(self._limit_seconds())

    def complete(self, publish: bool) -> Run:
        try:
            expected = self.run.plan["estimate"]
            say(f"run {self.run.run_id}: {expected['launches']} launches, about {expected['seconds'] / 60:.0f} minutes")
            problem = self._measure()
            self.run.set_status("measured")
            self._show()
            if problem is not None:
                raise LabError(problem)
            failures = self.run.notebook_failures()
            self.run.set_status("failed" if failures else "done", "; ".join(failures.values()))
        except KeyboardInterrupt:
            self.run.set_status("interrupted", "stopped by the user")
            raise
        except (LabError, OSError) as error:
            self.run.set_status("failed", str(error))
            raise
        if publish:
            self._publish()
        return self.run

    def _measure(self) -> str | None:
        """Pass by pass, as long as a lever is open; why it had to end early, where the control failed after something
        was measured."""
        for pass_number in range(1, self.run.plan["passes"] + 1):
            levers = self._open_levers()
            if pass_number > 1 and not levers:
                return None
            steps = plan.next_pass(levers, pass_number, self.run.launches(), self.resumed)
            self.resumed = self.resumed and not steps
            if steps and not self._fits(levers, pass_number):
                return None
            for step in steps:
                if step.role == TREATMENT and not self._open(step.lever):
                    continue
                self._step(step)
                if step.lever == BASELINE:
                    failure = self._control_failure()
                    if failure and step.role == OPENING:
                        raise LabError(failure)
                    if failure or self._control_lost():
                        return failure
            self._tell_settled(levers)
        return None

    def _fits(self, levers: Sequence[LeverPlan], pass_number: int) -> bool:
        """Tell what the next pass is; whether the budget admits it, once each lever had the passes it gets anyway."""
        found, names = judgement.judge(self.run), {lever.name for lever in levers}
        arms = {arm["name"] for lever in levers for arm in lever.arms}
        spreads = [spread for arm, spread in found.launch_cv_pct.items() if arm in arms]
        predicted = {row["lever"]: row["predicted_effect_pct"] for row in found.rows if row["lever"] in names}
        seen = outlook(
            self.campaign,
            levers,
            pass_number,
            self.run.plan["passes"],
            self.run.launches(),
            statistics.median(spreads) if spreads else None,
            predicted,
            self.over_budget,
        )
        say(describe(seen))
        if seen.passes_left or pass_number <= self.campaign.rule.passes.min:
            return True
        say("budget.hours is spent; levers that are still open stay inconclusive, give them more hours in a new run")
        return False

    def _open_levers(self) -> list[LeverPlan]:
        return [lever for lever in self.levers if lever.arms and self._open(lever.name)]

    def _open(self, lever: str) -> bool:
        """Whether launching this lever again could change its outcome: not when each of its arms is settled, or left a
        pass that could not be completed."""
        found = judgement.judge(self.run)
        lost = {arm for (arm, _, _), made in found.attempts.items() if retry.lost(made)}
        arms = {arm["name"] for entry in self.levers if entry.name == lever for arm in entry.arms}
        return not arms <= found.settled | lost and lever not in self.run.notebook_failures()

    def _tell_settled(self, levers: Sequence[LeverPlan]) -> None:
        """One line for each of these levers that leaves."""
        rows = judgement.judge(self.run).rows
        for lever in levers:
            if not self._open(lever.name):
                said = ", ".join(f"{row['verdict']}: {row['reason']}" for row in rows if row["lever"] == lever.name)
                say(f"  {lever.name} leaves: {said}")

    def _last_control(self) -> Launch:
        return [launch for launch in self.run.launches() if launch.arm == CONTROL][-1]

    def _control_failure(self) -> str | None:
        """Why the last control launch did not live through its trials, or None."""
        failure = self._last_control().record["failure"]
        return f"the control failed ({failure['kind']}): {failure['reason']}" if failure else None

    def _control_lost(self) -> bool:
        """Whether the control itself cannot run what is asked: then no lever can be judged at that load."""
        last = self._last_control()
        slot = (last.arm, last.pass_number, last.role)
        return retry.lost(judgement.judge(self.run).attempts.get(slot, []))

    def _step(self, step: Step) -> None:
        """One notebook of one pass, tried twice; a lever that fails twice leaves, a control that does ends the run."""
        name = step_name(step.pass_number, step.role)
        folder = self.run.lever_folder(step.lever) / "passes"
        before = {launch.id for launch in self.run.launches()}
        parameters = {"pass_number": step.pass_number, "role": step.role, "measure": True}
        problem = self._execute(step.lever, step.notebook, folder / f"{name}.ipynb", f"{name}.done", parameters)
        for launch in self.run.launches():
            if launch.id not in before:
                self._tell(launch)
        if problem is None:
            return
        if step.lever == BASELINE:
            raise LabError(f"{folder / name}.ipynb: {problem}")
        say(f"  {step.lever}: notebook failed: {problem}")
        self.run.note_notebook_failure(step.lever, problem)

    def _show(self) -> None:
        """Judge, then execute each notebook once more from records, and those of the whole run."""
        judgement.write(self.run, judgement.judge(self.run))
        shown = [(BASELINE, plan.BASELINE_NOTEBOOK)] + [(lever.name, lever.notebook) for lever in self.levers]
        say(f"showing {len(shown)} notebooks, the summary and the roofline")
        pool = ThreadPoolExecutor(os.cpu_count())  # side by side: nothing is measured any more
        try:
            problems = list(pool.map(lambda pair: self._show_one(*pair), [*shown, *OF_THE_RUN.items()]))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            self.notebooks.stop()
        if failed := [problem for problem in problems if problem]:
            raise LabError(failed[0])

    def _show_one(self, lever: str, notebook: str) -> str | None:
        target = self.run.lever_folder(lever) / "executed.ipynb"
        parameters = {} if notebook in OF_THE_RUN.values() else {"measure": False}
        problem = self._execute(lever, notebook, target, "DONE", parameters)
        if problem is None:
            write_html(target)
        return None if problem is None else f"{target}: {problem}"

    def _execute(
        self, lever: str, notebook: str, target: Path, sentinel: str, parameters: dict[str, Any]
    ) -> str | None:
        common = {"campaign": str(self.campaign.document.path.resolve()), "run": str(self.run.path)}
        named = {"lever": lever} if notebook == "09_custom" else {}
        return self.notebooks.execute(
            NOTEBOOKS / f"{notebook}.ipynb",
            target,
            target.with_name(sentinel),
            {**common, **named, **parameters},
            marker=f"{self.run.run_id}/{lever}/{digest(str(self.run.path.resolve()))}",
        )

    def _limit_seconds(self) -> float:
        """The most one notebook may take: every launch at its deadline, with all trials it could owe."""
        window, limits = self.campaign.window, self.campaign.limits
        levels = sum(len(workload.concurrency) for workload in self.campaign.workloads.values())
        trial = window.warmup_seconds + window.seconds + limits.drain_seconds + limits.stall_seconds
        attempts = 1 + retry.RETRIES
        launches = 1 + max((lever.searches + attempts * len(lever.arms) for lever in self.levers), default=attempts)
        return NOTEBOOK_LIMIT_SECONDS + launches * (limits.start_seconds + (levels + len(self.levers)) * trial)

    def _tell(self, launch: Launch) -> None:
        rule = self.campaign.rule
        trial = next(
            (t for t in launch.trials if (t.workload, t.concurrency) == (rule.workload, rule.concurrency)), None
        )
        if trial is None:
            outcome = f"{launch.record['state']}: {launch.record['failure']['reason']}"
        else:
            value, running = trial.metrics["output_tok_s"], trial.server["running"]
            figures = ("–" if value is None else f"{value:.1f}", "–" if running is None else f"{running:.1f}")
            outcome = f"{figures[0]} tok/s, ran {figures[1]} of {trial.concurrency}"
        minutes = (time.monotonic() - self.started) / 60
        label = launch.record["arm"]["treatment"] or launch.role
        say(f"{minutes:5.1f} min  pass {launch.pass_number}  {launch.id:<28} {label}: {outcome}")

    def _publish(self) -> None:
        """A copy for MLflow, in a process of its own; its failure is a warning, the records are safe."""
        log = self.run.path / "publish.log"
        log.unlink(missing_ok=True)
        argv = [sys.executable, "-m", "lab", "publish", self.run.name, "--run", self.run.run_id]
        process = LocalHost().start(argv, dict(os.environ), log, f"{self.run.run_id}/publish", cwd=PROJECT)
        try:
            code = process.wait(timeout=PUBLISH_LIMIT_SECONDS)
        finally:
            process.stop()
        if code == 0:
            log.unlink(missing_ok=True)
        else:
            why = "took too long" if code is None else last_line(log)
            say(f"warning: not published to MLflow ({why}); later: python -m lab publish {self.run.name}")
