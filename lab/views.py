"""Tables and pictures of a study, for notebooks and for the files that are kept beside them.

Without it the notebooks would hold pandas and matplotlib code, each a little different.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.campaign import CONTROL, Rule, Window
from lab.health import bound_at, hardware_of, trial_bound
from lab.judgement import judge
from lab.metrics import HIGHER_IS_BETTER
from lab.records import NEVER_JUDGED
from lab.runs import Run

USUAL_WINDOW_SECONDS = Window.model_fields["min_steady_seconds"].default

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from lab.lever_study import Study


def trials(run: Run, arms: set[str] | None = None) -> pandas.DataFrame:
    """One row per trial of a run: what was asked, what ran, what came of it, and whether it may be believed."""
    import pandas

    hardware = hardware_of(run.campaign["hardware"])
    rows = []
    for entry in judge(run).audited:
        trial = entry.trial
        if arms is not None and trial.launch.arm not in arms:
            continue
        limit = trial_bound(trial, hardware)
        value = trial.metrics["output_tok_s"]
        rows.append(
            {
                "launch": trial.launch.record["launch"],
                "pass": trial.launch.pass_number,
                "arm": trial.launch.arm,
                "role": trial.launch.role,
                "workload": trial.workload,
                "concurrency": trial.concurrency,
                "running": trial.server["running"],
                "output_tok_s": value,
                "bound_fraction": value / limit.bound_tok_s if limit and value is not None else None,
                "valid": entry.valid,
                "codes": ", ".join(code.code for code in entry.codes),
                "waiting": trial.server["waiting"],
                **{name: figure for name, figure in trial.metrics.items() if name != "output_tok_s"},
                "treatment": trial.launch.record["arm"]["treatment"],
            }
        )
    return pandas.DataFrame(rows).round(3)


def launch_values(run: Run) -> pandas.DataFrame:
    """One row per judged and valid launch: pass, order, arm, value of the rule's metric."""
    import pandas

    metric = judge(run).rule.metric
    entries = [entry for entry in judge(run).audited if entry.judged]
    rows = [
        {
            "pass": entry.trial.launch.pass_number,
            "order": entry.trial.launch.record["order"],
            "arm": entry.trial.launch.arm,
            "value": entry.value(metric),
        }
        for entry in entries
        if entry.valid and entry.value(metric) is not None
    ]
    return pandas.DataFrame(rows, columns=["pass", "order", "arm", "value"])


def effect_picture(run: Run, lever: str | None = None) -> Figure:
    """Forest plot of one lever, or of all."""
    from lab.report import plots

    judgement = judge(run)
    rows = [row for row in judgement.rows if lever is None or row["lever"] == lever]
    return noted(plots.effect_forest(rows, judgement.rule.min_effect_pct), run)


def running_picture(run: Run, arms: list[str]) -> Figure:
    """Requested against running requests over time, in the last judged trial of each arm."""
    import pandas

    from lab.report import plots

    last = {e.trial.launch.arm: e.trial for e in judge(run).audited if e.judged and e.trial.launch.arm in arms}
    chosen = {arm: last[arm] for arm in arms if arm in last}
    drawn = plots.running_over_time(
        {arm: pandas.read_parquet(trial.folder / "timeline.parquet") for arm, trial in chosen.items()},
        judge(run).rule.concurrency,
        {arm: trial.launch.effective.get("cap") for arm, trial in chosen.items()},
        {arm: (t.record["window"]["opened_s"], t.record["window"]["closed_s"]) for arm, t in chosen.items()},
    )
    return noted(drawn, run)


def roofline_picture(run: Run, arms: set[str] | None = None) -> Figure:
    """Every believed trial against the memory bound of the control's model on this hardware."""
    from lab.report import plots

    entries = [
        entry.trial
        for entry in judge(run).audited
        if entry.valid
        and entry.trial.launch.role not in NEVER_JUDGED
        and (arms is None or entry.trial.launch.arm in arms)
    ]
    points = [
        {"arm": t.launch.arm, "batch": t.server["running"], "output_tok_s": t.metrics["output_tok_s"]} for t in entries
    ]
    hardware = hardware_of(run.campaign["hardware"])
    controls = [trial for trial in entries if trial.launch.arm == CONTROL]
    if hardware is None or not controls:
        return noted(plots.roofline(points, []), run)
    context = controls[0].metrics["mean_context_tokens"] or 1
    limits = [(batch, bound_at(controls[0], hardware, batch, context)) for batch in _curve_batches(points)]
    curve = [{"batch": batch, "bound_tok_s": limit.bound_tok_s} for batch, limit in limits if limit is not None]
    label = f"{hardware.name}, {hardware.memory_bandwidth_bytes_s / 1e9:.1f} GB/s"
    return noted(plots.roofline(points, curve, label), run)


def _curve_batches(points: Sequence[dict[str, Any]]) -> list[int]:
    """Powers of two up to twice the largest batch that ran."""
    largest = max((point["batch"] or 1 for point in points), default=1)
    return [2**power for power in range(math.ceil(math.log2(largest)) + 2)]


def launches_picture(run: Run) -> Figure:
    """The rule's metric by launch: noise and drift."""
    from lab.report import plots

    metric = judge(run).rule.metric
    unit = "ms" if metric.endswith("_ms") else "tok/s"
    return noted(plots.launches(launch_values(run), metric, unit), run)


def noted(figure: Figure, run: Run) -> Figure:
    """The picture, saying so when it rests on windows shorter than usual."""
    from lab.report.picture import note

    seconds = run.campaign["file"]["window"]["seconds"]
    if seconds >= USUAL_WINDOW_SECONDS:
        return figure
    return note(figure, f"short windows: {seconds:g} s each, where {USUAL_WINDOW_SECONDS:g} s are usual")


def save_pictures(study: Study, folder: Path) -> None:
    """Keep a study's pictures as PNG files; a lever without measurements has none."""
    from lab.report import plots

    run, arms = study.require_run(), study.arms()
    if not any(entry.judged for entry in judge(run).audited if entry.trial.launch.arm in arms):
        return
    pictures = {"running": running_picture(run, arms), "roofline": roofline_picture(run, set(arms))}
    if study.lever:
        pictures["effect"] = effect_picture(run, study.name)
    else:
        pictures["launches"] = launches_picture(run)
    for name, figure in pictures.items():
        plots.save(figure, folder / f"{name}.png")


def heading(run: Run, afterwards: Rule | None = None) -> str:
    """The lines above a table: campaign, run, model and formats, rule; `afterwards`: one that is not the run's own."""
    from lab.report import words

    controls = [launch for launch in run.launches() if launch.arm == CONTROL]
    state = run.status["state"]
    how = [run.run_id, *(["one block measured by hand"] if run.plan["mode"] == "block" else [])]
    how += [] if state in ("measured", "done") else [f"{state}, so these are not the last verdicts"]
    effective = controls[0].record["effective"] if controls else None
    other = None if afterwards is None else afterwards.model_dump()
    return words.heading(run.campaign["file"], run.plan["passes"], " · ".join(how), effective, afterwards=other)


def better_word(metric: str) -> str:
    """`higher` or `lower`, whichever is better."""
    return "higher" if HIGHER_IS_BETTER[metric] else "lower"


class Table:
    """Verdict rows that show themselves as a table in a notebook and as text in a terminal."""

    def __init__(self, rows: list[dict[str, Any]], heading: str) -> None:
        self.rows, self.heading = rows, heading

    def __repr__(self) -> str:
        from lab.report.table import render

        return render(self.rows, "table", 120, self.heading)

    def _repr_markdown_(self) -> str:
        from lab.report.table import render

        proofs = [f"**Proof** ({row['lever']}): {row['proof']}." for row in self.rows if row.get("proof")]
        return "\n\n".join([render(self.rows, "md", heading=self.heading), *proofs])
