"""A run against the roofline, from records only: shares of the bound, where steps go, what to look at, and pictures.

Without it the notebook would hold the code that joins trials to bounds, and every copy would join them differently.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab import views
from lab.campaign import CONTROL, Campaign
from lab.errors import InputError
from lab.files import write_text
from lab.gap import UNEXPLAINED, Gap, account, structural_gap
from lab.health import bound_at, cache_words, hardware_of, plain_bound, trial_bound, verified_bound
from lab.judgement import judge
from lab.records import JUDGED, NEVER_JUDGED, Trial, utc_now
from lab.roofline.step import Bound
from lab.runs import Run, pick_run, results_folder
from lab.server_model import analytic
from lab.suspects import Case, Suspect, ranked

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

WIDTH = 120
"""Columns of a ranking in a terminal."""
LOADS = tuple(2**power for power in range(11))
"""Requests that run at once, along the bound's curve: 1 to 1,024."""
NOTHING_VALID = "The control has no valid judged trial, so there is no step to take apart"


def shares(run: Run) -> pandas.DataFrame:
    """One row per believed trial: asked, ran, throughput, the cache type that its bound takes and how it is known, the
    bound and the share of it, and whether that is a structural gap."""
    import pandas

    hardware, rows = hardware_of(run.campaign["hardware"]), []
    for trial in _believed(run):
        limit, value = trial_bound(trial, hardware), trial.metrics["output_tok_s"]
        rows.append(
            {
                "trial": trial.id,
                "arm": trial.launch.arm,
                "asked": trial.concurrency,
                "running": trial.server["running"],
                "output_tok_s": value,
                "cache": cache_words(trial),
                "bound_tok_s": limit and limit.bound_tok_s,
                "bound_fraction": value / limit.bound_tok_s if limit and value else None,
                "structural_gap": structural_gap(trial, limit) is not None if limit else None,
            }
        )
    return pandas.DataFrame(rows)


def gaps(run: Run) -> pandas.DataFrame:
    """One row per believed trial whose bound is known: the parts of its step in ms, and what is unexplained of each
    layer."""
    import pandas

    found = [gap for trial in _believed(run) if (gap := gap_of(run, trial)) is not None]
    rows = [
        {
            "trial": gap.trial,
            "arm": gap.arm,
            "asked": gap.asked,
            "running": gap.running,
            "step_ms": gap.step_ms,
            **{f"{name}_ms": part_ms for name, part_ms in gap.parts_ms.items()},
            "unexplained_ms_per_layer": gap.per_layer_ms(UNEXPLAINED),
            "note": gap.note,
        }
        for gap in found
    ]
    return pandas.DataFrame(rows)


def gap_of(run: Run, trial: Trial) -> Gap | None:
    """The gap account of one trial of the run; None where its bound is not known."""
    hardware = hardware_of(run.campaign["hardware"])
    limit = plain_bound(trial, hardware)
    return account(trial, limit, verified_bound(trial, hardware)) if limit else None


class Ranking:
    """Suspects, the likeliest first, that show themselves as a list in a notebook and as text in a terminal; `heading`:
    which trial they are about, and what is to be known of its gap."""

    def __init__(self, suspects: list[Suspect], heading: str) -> None:
        self.suspects, self.heading = suspects, heading

    def __repr__(self) -> str:
        lines = [self.heading, *(f"{place}. {one.name}: {one.sentence}" for place, one in self._placed())]
        return "\n".join(line for text in lines for line in textwrap.wrap(text, WIDTH, subsequent_indent="   "))

    def _repr_markdown_(self) -> str:
        from lab.report.table import escaped

        lines = [f"{place}. **{one.name}**: {escaped(one.sentence)}" for place, one in self._placed()]
        return "\n".join([escaped(self.heading), "", *lines])

    def _placed(self) -> Iterable[tuple[int, Suspect]]:
        return enumerate(self.suspects, start=1)


def suspects(run: Run, arm: str = CONTROL) -> Ranking:
    """What may fill the gap of an arm's last judged trial, with the evidence for and against it.

    Empty where the bound of that trial is not known, or nothing of the control may be believed; raises InputError for
    another arm without a valid judged trial.
    """
    trial = last_judged(run, arm)
    if trial is None:
        return Ranking([], NOTHING_VALID)
    gap, limit = gap_of(run, trial), trial_bound(trial, hardware_of(run.campaign["hardware"]))
    if gap is None or limit is None:
        return Ranking([], _unbound(trial))
    about = structural_gap(trial, limit) or f"{100 * gap.bound_fraction:.0f} % of the bound: no structural gap"
    return Ranking(
        ranked(_case(run, trial, gap)), ". ".join(part for part in (f"{trial.id}: {about}", gap.note) if part)
    )


def roof_picture(run: Run) -> Figure:
    """FLOP/s over FLOPs per byte: the trials under the roof of one device, and where their servers' own cost models
    place them."""
    from lab.report import roofline_plots

    hardware = hardware_of(run.campaign["hardware"])
    if hardware is None:
        return roofline_plots.unknown("The hardware of this run is not known, so it has no roof")
    points, theirs = [], []
    for trial in _believed(run):
        limit, gap = trial_bound(trial, hardware), gap_of(run, trial)
        if limit is not None and limit.flops_per_step is not None and gap is not None:
            points.append(
                {
                    **_named(trial),
                    "flop_per_byte": limit.flops_per_step / limit.bytes_per_step,
                    "flop_s": 1e3 * limit.flops_per_step / gap.step_ms,
                }
            )
        if (own := analytic(trial)) is not None:
            theirs.append({**_named(trial), "flop_per_byte": own.flop_per_byte, "flop_s": own.flop_s})
    figure = roofline_plots.roof(
        points, hardware.memory_bandwidth_bytes_s, hardware.peak_flops_s, hardware.name, theirs
    )
    return views.noted(figure, run)


def waterfall_picture(run: Run, arm: str = CONTROL) -> Figure:
    """Where a step of an arm's last judged trial goes; see `suspects`."""
    from lab.report import roofline_plots

    trial = last_judged(run, arm)
    if trial is None:
        return roofline_plots.unknown(NOTHING_VALID)
    gap = gap_of(run, trial)
    if gap is None:
        return roofline_plots.unknown(_unbound(trial))
    label = f"{gap.arm}, {gap.asked} asked, {gap.running:.1f} ran"
    return views.noted(roofline_plots.waterfall(gap.parts_ms, gap.step_ms, gap.layers, label), run)


def pareto_picture(run: Run) -> Figure:
    """tok/s of a device over tok/s of a request, over the loads that were measured, and the bound of the control."""
    from lab.report import roofline_plots

    trials, hardware = _believed(run), hardware_of(run.campaign["hardware"])
    points = []
    for trial in trials:
        limit, gap = trial_bound(trial, hardware), gap_of(run, trial)
        if limit is not None and gap is not None:
            points.append({**_named(trial), **_speeds(gap.output_tok_s, gap.running, limit.devices)})
    label = hardware.name if hardware else "hardware not known"
    return views.noted(roofline_plots.pareto(points, _curve(run, trials), label), run)


def last_judged(run: Run, arm: str) -> Trial | None:
    """The last valid judged trial of an arm; None where the control has none, as in a run that it could not open.
    Raises InputError for another arm without one, with those that have one."""
    found = {trial.launch.arm: trial for trial in _believed(run) if trial.purpose == JUDGED and trial.launch.ok}
    if arm not in found and arm != CONTROL:
        raise InputError(f"{run.path}: '{arm}' has no valid judged trial; these have: {', '.join(found) or 'none'}")
    return found.get(arm)


class RooflineView:
    """The tables and pictures of one run against its roofline."""

    def __init__(self, campaign: str, run: str, arm: str) -> None:
        name = Campaign.load(campaign).name if campaign.endswith((".yaml", ".yml")) else campaign or None
        self.run = Run(Path(run)) if run else pick_run(results_folder(), name)
        self.arm = arm

    def shares(self) -> pandas.DataFrame:
        """How much of its bound every trial reached."""
        return shares(self.run)

    def gaps(self) -> pandas.DataFrame:
        """Where the step of every trial goes."""
        return gaps(self.run)

    def suspects(self) -> Ranking:
        """What to look at first, for the arm's last judged trial."""
        return suspects(self.run, self.arm)

    def plot_roof(self) -> Figure:
        """The trials under the roof of a device."""
        return roof_picture(self.run)

    def plot_throughput(self) -> Figure:
        """tok/s over the batch that ran, with the bound."""
        return views.roofline_picture(self.run)

    def plot_gap(self) -> Figure:
        """The step of the arm's last judged trial, part by part."""
        return waterfall_picture(self.run, self.arm)

    def plot_users(self) -> Figure:
        """Speed of each request against throughput of a device."""
        return pareto_picture(self.run)

    def finish(self) -> None:
        """Keep the pictures and write the sentinel that says: this notebook ran to its end."""
        from lab.report import plots

        folder = self.run.lever_folder("roofline")
        pictures = {
            "roof": self.plot_roof,
            "throughput": self.plot_throughput,
            "gap": self.plot_gap,
            "users": self.plot_users,
        }
        for name, draw in pictures.items():
            plots.save(draw(), folder / "plots" / f"{name}.png")
        write_text(folder / "DONE", utc_now() + "\n")


def _believed(run: Run) -> list[Trial]:
    """Every valid trial whose throughput stands, but those of searches and burn-ins."""
    entries = [entry for entry in judge(run).audited if entry.trial.launch.role not in NEVER_JUDGED]
    return [entry.trial for entry in entries if entry.valid and entry.value("output_tok_s") is not None]


def _case(run: Run, trial: Trial, gap: Gap) -> Case:
    """With the last judged control where the trial is of another arm, the other windows of its arm, and the log."""
    believed = _believed(run)
    controls = [one for one in believed if one.launch.arm == CONTROL and one.purpose == JUDGED and one.launch.ok]
    others = [one for one in believed if one.launch.arm == trial.launch.arm and one.id != trial.id]
    return Case(
        trial=trial,
        gap=gap,
        control=controls[-1] if controls and trial.launch.arm != CONTROL else None,
        others=tuple(others),
        log=trial.launch.log_text(),
    )


def _unbound(trial: Trial) -> str:
    return f"The bound of {trial.id} is not known: batch, context, cache types, model or hardware are not on record"


def _curve(run: Run, trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """The bound of the first control's model and cache at its context, over LOADS; empty where it is not known."""
    hardware = hardware_of(run.campaign["hardware"])
    control = next((trial for trial in trials if trial.launch.arm == CONTROL), None)
    context = control.metrics["mean_context_tokens"] if control else None
    if control is None or not context or hardware is None:
        return []
    limits = [(load, bound_at(control, hardware, load, context)) for load in LOADS]
    return [{"batch": load, **_of_bound(limit)} for load, limit in limits if limit is not None]


def _of_bound(limit: Bound) -> dict[str, float]:
    return _speeds(limit.bound_tok_s, limit.batch, limit.devices)


def _speeds(tok_s: float, running: float, devices: int) -> dict[str, float]:
    return {"tok_s_per_user": tok_s / running, "tok_s_per_gpu": tok_s / devices}


def _named(trial: Trial) -> dict[str, Any]:
    return {"arm": trial.launch.arm, "asked": trial.concurrency, "running": trial.server["running"]}
