"""What a lever notebook calls: the launches it owes, its trials, its verdict, its pictures.

Without it every notebook would hold logic of its own, and a notebook run by hand would measure something else than
the batch run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab import expectations, retry, views
from lab.campaign import BASELINE, CONTROL, Arm, Campaign
from lab.engines import get as get_engine
from lab.errors import InputError, LabError
from lab.files import write_text
from lab.judgement import capped_batches, judge
from lab.judgement import write as write_judgement
from lab.levers import get as get_lever
from lab.measure import Task, measure, slot_of
from lab.plan import LeverPlan, load_levers, owed_trials
from lab.prepare import campaign_digest, create_run, prepare
from lab.records import CLOSING, NEVER_JUDGED, OPENING, RESUMED, SEARCH, TREATMENT, Launch, utc_now
from lab.runs import Run, pick_run, results_folder
from lab.secrets import redacted

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from lab.levers import Lever
    from lab.predictions import Prediction

# A candidate of a search gets this share of the campaign's window: it is only ranked, never judged.
SEARCH_WINDOW_SHARE = 0.5


class Study:
    """One lever of one run; `lab.study(...)` makes it."""

    def __init__(self, lever: str, campaign: str, run: str, pass_number: int, role: str, measure: bool) -> None:
        self.campaign = Campaign.load(campaign or "experiments/local.yaml")
        self.lever: Lever | None = (
            None if lever == BASELINE else get_lever(self.campaign, lever or self._first_custom())
        )
        self.name = self.lever.name if self.lever else BASELINE
        self.engine = get_engine(self.campaign.server.engine)
        self.pass_number, self.role, self.measuring = pass_number, role, measure
        self.record: Run | None = Run(Path(run)) if run else None
        if self.record is not None and measure and self.record.campaign["digest"] != campaign_digest(self.campaign):
            raise self.campaign.document.error((), f"changed since run {self.record.run_id} began; start afresh")
        if self.record is None and not measure:
            self.record = pick_run(results_folder(), self.campaign.name)

    def _repr_markdown_(self) -> str:
        """What is claimed and what will decide, before anything is measured."""
        rule, server = self.campaign.rule, self.campaign.server
        lines = [f"**Control.** {server.engine}, {self.campaign.model.checkpoint}, flags `{redacted(server.flags)}`"]
        if self.lever is not None:
            lines += [
                f"**{self.lever.title}.** {self.lever.mechanism}",
                f"**Predicted.** {self.lever.predicted}.",
                *(f"**Roofline expects.** {one}." for one in self.expected()),
                f"**Backfires.** {self.lever.backfires}.",
            ]
        lines.append(
            f"**Rule.** {rule.metric} of workload `{rule.workload}` at C={rule.concurrency} "
            f"({views.better_word(rule.metric)} is better): at least {rule.min_effect_pct:g} %, alpha {rule.alpha:g}, "
            f"up to {rule.passes.max} passes."
        )
        return "\n\n".join(lines)

    def expected(self) -> list[Prediction]:
        """What the roofline expects of each treatment: as the run's plan holds it, before any launch; without a run,
        for hardware that the campaign file names."""
        if self.lever is None:
            return []
        if self.record is None:
            return expectations.expected(self.campaign, self.engine, self.lever)
        return expectations.noted(self.plan.arms) if self.plan else []

    def run(self) -> Study:
        """Measure what this lever owes: its part of a pass, or by hand a block of its own (control, treatment,
        treatment, control). Records on disk are never measured again; with `measure=False` nothing is."""
        if not self.measuring:
            return self
        with self._bar() as progress:
            if self.record is not None:
                self._owed_by_pass(progress)
            else:
                self._block(progress)
        return self

    @property
    def plan(self) -> LeverPlan | None:
        """What the run does about this lever; None for the baseline."""
        return next((lever for lever in load_levers(self.require_run().plan) if lever.name == self.name), None)

    def trials(self) -> pandas.DataFrame:
        """The trials of the control and of this lever's treatments; for the baseline, of the control alone."""
        return views.trials(self.require_run(), set(self.arms()))

    def verdict(self) -> views.Table:
        """The verdict of this lever, judged from the records as they stand."""
        run = self.require_run()
        rows = [row for row in judge(run).rows if row["lever"] == self.name]
        return views.Table(rows, views.heading(run))

    def plot_effect(self) -> Figure | None:
        """The effect with its interval; a pass's copy leaves pictures to the copy that shows the verdict."""
        return None if self._nothing_to_draw() else views.effect_picture(self.require_run(), self.name)

    def plot_running(self) -> Figure | None:
        """Requested against running requests over time."""
        return None if self._nothing_to_draw() else views.running_picture(self.require_run(), self.arms())

    def plot_roofline(self) -> Figure | None:
        """Trials against their bound."""
        return None if self._nothing_to_draw() else views.roofline_picture(self.require_run(), set(self.arms()))

    def plot_launches(self) -> Figure | None:
        """The rule's metric by launch."""
        return None if self._nothing_to_draw() else views.launches_picture(self.require_run())

    def arms(self) -> list[str]:
        """Names of the control and of this lever's treatments."""
        planned = self.plan
        return [CONTROL, *(arm["name"] for arm in planned.arms)] if planned else [CONTROL]

    def finish(self) -> None:
        """Keep the pictures and write the sentinel that says: this notebook ran to its end."""
        folder = self.require_run().lever_folder(self.name)
        if self._in_pass():
            write_text(folder / "passes" / f"{step_name(self.pass_number, self.role)}.done", utc_now() + "\n")
            return
        if not self._nothing_to_draw():
            views.save_pictures(self, folder / "plots")
        write_text(folder / "DONE", utc_now() + "\n")

    def _nothing_to_draw(self) -> bool:
        """In a pass, and for a lever that cannot exist here."""
        return self._in_pass() or (self.plan is not None and self.plan.not_applicable is not None)

    def _in_pass(self) -> bool:
        """Whether the runner executes this as one step of a pass, to be shown later."""
        return self.measuring and bool(self.role)

    def require_run(self) -> Run:
        """The run of this study; raises InputError before anything was measured."""
        if self.record is None:
            raise InputError(f"{self.name}: nothing was measured yet; call study.run() first")
        return self.record

    def _first_custom(self) -> str:
        names = [name for name, options in self.campaign.levers.items() if "custom" in options]
        if not names:
            raise self.campaign.document.error(("levers",), "holds no ad-hoc lever (a key 'custom'); name one")
        return names[0]

    @contextmanager
    def _bar(self) -> Iterator[Any]:
        from tqdm import tqdm

        with tqdm(bar_format="{desc}  {elapsed}", desc=self.name, leave=False) as bar:
            yield bar.set_description

    def _owed_by_pass(self, progress: Any) -> None:
        if self.lever is None:
            control = self.campaign.control
            made = [] if self.role == RESUMED else self._attempts(control, self.role)
            self._fill(control, self.role, made, progress)
            return
        settled = judge(self.require_run()).settled
        for arm in self._arms(progress):
            if arm.name not in settled:
                self._fill(arm, TREATMENT, self._attempts(arm, TREATMENT), progress)

    def _block(self, progress: Any) -> None:
        from lab.hosts import host_lock

        with host_lock(campaign=str(self.campaign.document.path)):
            prepared = prepare(self.campaign, [self.name] if self.lever else [], 1)
            self.record = create_run(prepared, results_folder(), "block")
            self.pass_number = 1
            for one in self.expected():
                print(f"roofline expects: {one}")
            try:
                if self.lever is None or not prepared.levers[0].not_applicable:
                    self._measure_block(progress)
            except BaseException as error:
                self.record.set_status("failed", str(error) or type(error).__name__)
                raise
            write_judgement(self.record, judge(self.record))
            self.record.set_status("done")

    def _measure_block(self, progress: Any) -> None:
        opening = self._fill(self.campaign.control, OPENING, [], progress, pass_number=0)
        if opening.failure:
            raise LabError(f"the control failed ({opening.failure[0]}): {opening.failure[1]}")
        if self.lever is None:
            return
        arms = self._arms(progress)
        for arm in [*arms, *reversed(arms)]:
            self._fill(arm, TREATMENT, [], progress)
        self._fill(self.campaign.control, CLOSING, [], progress)

    def _arms(self, progress: Any) -> list[Arm]:
        assert self.lever is not None
        control = self.campaign.control
        if not self.lever.searches:
            return self.lever.treatments(control, self.engine)
        return [self._search(progress)]

    def _search(self, progress: Any) -> Arm:
        """The best candidate on record; what was not tried yet is tried first, in short windows."""
        assert self.lever is not None
        scores: list[tuple[Arm, float]] = []
        while candidate := self.lever.propose(self.campaign.control, self.engine, scores):
            if (launch := self._searched(candidate)) is None:
                launch = self._launch(candidate, SEARCH, progress)
            scores.append((candidate, _score(launch)))
        if not scores:
            raise InputError(f"{self.name}: the control is already what the search would try; leave the lever out")
        return max(scores, key=lambda pair: pair[1])[0]

    def _fill(
        self, arm: Arm, role: str, made: list[retry.Attempt], progress: Any, pass_number: int | None = None
    ) -> retry.Attempt:
        """Launch until the slot is filled or given up, after the attempts on record; the last attempt."""
        while retry.owed(made):
            launch = self._launch(arm, role, progress, pass_number)
            every = [attempt for found in judge(self.require_run()).attempts.values() for attempt in found]
            made = [*made, next(attempt for attempt in every if attempt.launch == launch.id)]
        return made[-1]

    def _attempts(self, arm: Arm, role: str) -> list[retry.Attempt]:
        """What was tried for this arm in this pass, as it would be launched now.

        A control that failed for certain is tried again: without it nothing can be judged.
        """
        slot = slot_of(self.campaign, arm, self.engine)
        run = self.require_run()
        same = {launch.id for launch in run.launches() if launch.record["slot_digest"] == slot}
        found = judge(run).attempts.get((arm.name, self.pass_number, role), [])
        return [attempt for attempt in found if attempt.launch in same and not (attempt.failure and not arm.lever)]

    def _launch(self, arm: Arm, role: str, progress: Any, pass_number: int | None = None) -> Launch:
        run = self.require_run()
        launches = run.launches()
        batches = capped_batches(run) if arm.name == CONTROL else []
        owed = owed_trials(self.campaign, arm.name, [x for x in launches if x.role not in NEVER_JUDGED], batches)
        controls = [x for x in launches if x.arm == CONTROL and x.ok]
        task = Task(
            arm=arm,
            pass_number=self.pass_number if pass_number is None else pass_number,
            role=role,
            owed=owed[:1] if role == SEARCH else owed,
            lever=self.lever if role == TREATMENT else None,
            control=controls[-1] if controls else None,
            window_share=SEARCH_WINDOW_SHARE if role == SEARCH else 1.0,
        )
        return measure(run, self.campaign, self.engine, task, lambda text: progress(f"pass {task.pass_number}  {text}"))

    def _searched(self, arm: Arm) -> Launch | None:
        """The launch on record in which a search tried this arm, in any pass."""
        slot = slot_of(self.campaign, arm, self.engine)
        same = (arm.name, SEARCH, slot)
        return next(
            (x for x in self.require_run().launches() if (x.arm, x.role, x.record["slot_digest"]) == same), None
        )


def step_name(pass_number: int, role: str) -> str:
    """The name of one executed copy of a notebook: `3`, or `3-resumed` for an extra control."""
    return f"{pass_number}-resumed" if role == RESUMED else str(pass_number)


def _score(launch: Launch) -> float:
    values = [trial.metrics["output_tok_s"] for trial in launch.trials] if launch.ok else []
    return values[0] if values and values[0] is not None else 0.0
