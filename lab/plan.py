"""Who launches next, in which order, and how long it will take.

Without a counterbalanced order shared by all levers, a machine that warms up favours whatever runs last; without an
estimate, hours are lost unnoticed.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lab.campaign import BASELINE, CONTROL, Campaign, Window
from lab.records import CLOSING, JUDGED, MATCHED, OPENING, REPEAT, RESUMED, SWEEP, TREATMENT, Launch

# What a notebook costs beside its measurements: kernel, papermill, imports, pictures (seconds, measured).
NOTEBOOK_SECONDS = 4.0
# Drain and record writing of a trial, and start and stop of a small server, where no past record says otherwise.
TRIAL_OVERHEAD_SECONDS = 2.5
LAUNCH_OVERHEAD_SECONDS = 2.0
DISK_BYTES_PER_TRIAL = 120_000
DISK_BYTES_PER_NOTEBOOK = 900_000


@dataclass(frozen=True)
class Owed:
    """One trial that a launch owes."""

    workload: str
    concurrency: int
    purpose: str

    @property
    def name(self) -> str:
        """The trial's folder."""
        extra = {MATCHED: "-matched", REPEAT: "-repeat"}.get(self.purpose, "")
        return f"{self.workload}-c{self.concurrency}{extra}"


@dataclass(frozen=True)
class LeverPlan:
    """What a campaign does about one lever."""

    name: str
    notebook: str
    title: str
    arms: tuple[dict[str, Any], ...]
    not_applicable: str | None = None
    searches: int = 0


@dataclass(frozen=True)
class Step:
    """One execution of a notebook that measures."""

    lever: str
    notebook: str
    pass_number: int
    role: str


@dataclass(frozen=True)
class Estimate:
    """Time and disk that a plan needs."""

    launches: int
    seconds: float
    disk_bytes: int


def lever_order(names: Sequence[str], pass_number: int) -> list[str]:
    """The levers of one pass, counterbalanced: reversed in even passes, rotated by one every second pass."""
    turn = (pass_number - 1) // 2 % len(names) if names else 0
    rotated = [*names[turn:], *names[:turn]]
    return rotated[::-1] if pass_number % 2 == 0 else rotated


def next_pass(
    levers: Sequence[LeverPlan], pass_number: int, launches: Sequence[Launch], resumed: bool = False
) -> list[Step]:
    """The steps that pass `pass_number` still needs, given what was already measured.

    The first pass opens with a control; every pass closes with one, which opens the next. A pass that was interrupted,
    or whose opening control is of an earlier sitting (`resumed`), goes on after a fresh control launch, so that its
    treatments stand between controls of the same hour. A control that failed neither opens nor closes anything.
    """
    mine = [launch for launch in launches if launch.pass_number == pass_number]
    if any(launch.role == CLOSING and launch.ok for launch in mine):
        return []
    opened = any(launch.role in (OPENING, CLOSING) and launch.ok for launch in launches)
    done = {launch.arm for launch in mine if launch.role == TREATMENT}
    by_name = {lever.name: lever for lever in levers}
    todo = [
        name
        for name in lever_order([lever.name for lever in levers], pass_number)
        if not {arm["name"] for arm in by_name[name].arms} <= done
    ]
    steps: list[Step] = []
    if not opened:
        steps.append(Step(BASELINE, BASELINE_NOTEBOOK, pass_number - 1, OPENING))
    elif todo and (done or resumed):
        steps.append(Step(BASELINE, BASELINE_NOTEBOOK, pass_number, RESUMED))
    steps += [Step(name, by_name[name].notebook, pass_number, TREATMENT) for name in todo]
    return [*steps, Step(BASELINE, BASELINE_NOTEBOOK, pass_number, CLOSING)]


BASELINE_NOTEBOOK = "00_baseline"


def owed_trials(
    campaign: Campaign, arm: str, launches: Sequence[Launch], matched_batches: Sequence[int] = ()
) -> list[Owed]:
    """The trials of the next launch of `arm`: the judged level always, other levels once per arm.

    `matched_batches`: batches that capped treatments ran; a control launch measures each of them once more, so that
    arms can be compared at equal batch.
    """
    rule = campaign.rule
    owed = [Owed(rule.workload, rule.concurrency, JUDGED)]
    seen = {
        (trial.workload, trial.concurrency)
        for launch in launches
        if launch.arm == arm and launch.ok
        for trial in launch.trials
    }
    for name, workload in campaign.workloads.items():
        for level in workload.concurrency:
            judged = (name, level) == (rule.workload, rule.concurrency)
            if not judged and (name, level) not in seen:
                owed.append(Owed(name, level, SWEEP))
    if arm == CONTROL:
        owed += [Owed(rule.workload, batch, MATCHED) for batch in sorted(set(matched_batches))]
    return owed


def launch_seconds(window: Window, trials: int, time_factor: float = 1.0) -> float:
    """Real seconds that one launch of so many trials should take, before any was measured."""
    measured = (window.warmup_seconds + window.seconds) / time_factor
    return LAUNCH_OVERHEAD_SECONDS + trials * (measured + TRIAL_OVERHEAD_SECONDS)


def overhead_seconds(launch: Launch) -> float:
    """What a launch took beyond warm-up and windows, per trial: start, drain, stop, records."""
    windows = [trial.record["window"] for trial in launch.trials]
    measured = sum(window["warmup_seconds"] + window["seconds"] for window in windows)
    return (launch.record["timings"]["seconds"] - measured) / len(windows)


def launch_parts(campaign: Campaign, past: Sequence[Launch] = (), longest: bool = False) -> tuple[float, float]:
    """Seconds that the start of a server and each of its trials take; see `estimate`."""
    window, limits = campaign.window, campaign.limits
    overheads = [overhead_seconds(launch) for launch in past if launch.ok and launch.trials]
    overhead = statistics.median(overheads) if overheads else TRIAL_OVERHEAD_SECONDS
    trial = window.warmup_seconds + window.seconds + (limits.drain_seconds if longest else overhead)
    start = limits.start_seconds if longest else 0.0 if overheads else LAUNCH_OVERHEAD_SECONDS
    return start, trial


def estimate(
    campaign: Campaign, levers: Sequence[LeverPlan], passes: int, past: Sequence[Launch] = (), longest: bool = False
) -> Estimate:
    """Launches, seconds and bytes of a whole run of `passes` passes, summary and roofline included.

    `past`: launches of this campaign on record; their median overhead replaces the assumed one. `longest`: every start
    and drain takes all that the limits allow.
    """
    start, trial = launch_parts(campaign, past, longest)
    measured = [lever for lever in levers if lever.arms]
    treatments = sum(len(lever.arms) for lever in measured)
    judged_launches = passes * (treatments + 1) + 1
    searches = sum(lever.searches for lever in measured)
    levels = sum(len(workload.concurrency) for workload in campaign.workloads.values())
    sweeps = (treatments + 1) * (levels - 1)
    notebooks = passes * (len(measured) + 1) + 1 + len(levers) + 3
    seconds = (
        judged_launches * (start + trial)
        + searches * (start + trial / 2)
        + sweeps * trial
        + notebooks * NOTEBOOK_SECONDS
    )
    disk = (judged_launches + searches + sweeps) * DISK_BYTES_PER_TRIAL + notebooks * DISK_BYTES_PER_NOTEBOOK
    return Estimate(judged_launches + searches, seconds, disk)


def dump(levers: Sequence[LeverPlan], passes: int, mode: str, expected: Estimate) -> dict[str, Any]:
    """plan.json."""
    return {
        "mode": mode,
        "passes": passes,
        "levers": [asdict(lever) for lever in levers],
        "order": {str(n): lever_order([x.name for x in levers if x.arms], n) for n in range(1, passes + 1)},
        "estimate": asdict(expected),
    }


def load_levers(plan: dict[str, Any]) -> list[LeverPlan]:
    """The levers of a plan.json."""
    return [LeverPlan(**{**entry, "arms": tuple(entry["arms"])}) for entry in plan["levers"]]
