"""A whole run at a glance, from records only.

Without it the table and pictures of a campaign could only be had by measuring again.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lab import views
from lab.campaign import Campaign
from lab.files import write_text
from lab.judgement import judge
from lab.plan import load_levers
from lab.prediction_table import PredictionTable, predictions
from lab.records import utc_now
from lab.runs import Run, pick_run, results_folder

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure


class Summary:
    """The verdict table, trials and pictures of one run."""

    def __init__(self, campaign: str, run: str) -> None:
        name = Campaign.load(campaign).name if campaign.endswith((".yaml", ".yml")) else campaign or None
        self.run = Run(Path(run)) if run else pick_run(results_folder(), name)

    def verdicts(self) -> views.Table:
        """One row per treatment, judged from the records as they stand."""
        return views.Table(judge(self.run).rows, views.heading(self.run))

    def predictions(self) -> PredictionTable:
        """What the roofline expected of each treatment, before and at the batches that ran, against the measurement."""
        return PredictionTable(predictions(self.run))

    def trials(self) -> pandas.DataFrame:
        """Every trial of the run."""
        return views.trials(self.run)

    def plot_effects(self) -> Figure:
        """The effect of every lever with its interval."""
        return views.effect_picture(self.run)

    def plot_roofline(self) -> Figure:
        """All trials against the bound."""
        return views.roofline_picture(self.run)

    def plot_launches(self) -> Figure:
        """The rule's metric by launch: noise and drift."""
        return views.launches_picture(self.run)

    def plot_running(self) -> Figure:
        """Requests against running requests over time, one panel per arm."""
        arms = ["control", *(arm["name"] for lever in load_levers(self.run.plan) for arm in lever.arms)]
        return views.running_picture(self.run, arms)

    def finish(self) -> None:
        """Keep the pictures and write the sentinel that says: this notebook ran to its end."""
        from lab.report import plots

        folder = self.run.lever_folder("summary")
        pictures = {
            "effects": self.plot_effects,
            "roofline": self.plot_roofline,
            "launches": self.plot_launches,
            "running": self.plot_running,
        }
        for name, draw in pictures.items():
            plots.save(draw(), folder / "plots" / f"{name}.png")
        write_text(folder / "DONE", utc_now() + "\n")
