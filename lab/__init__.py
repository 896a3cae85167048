"""The lever lab: did this change to my serving stack really help?

What a notebook may call. Without one short door, notebooks import from rooms and break when a room is rebuilt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas

    from lab.campaign import Campaign
    from lab.lever_study import Study
    from lab.roofline_views import RooflineView
    from lab.run_summary import Summary
    from lab.views import Table

__version__ = "0.1.0"


def study(
    lever: str = "baseline",
    *,
    campaign: str = "",
    run: str = "",
    pass_number: int = 0,
    role: str = "",
    measure: bool = True,
) -> Study:
    """The study of one lever of a campaign file (default: experiments/local.yaml).

    By hand give nothing more: `.run()` then measures a block of its own. The runner names a `run` folder and which
    part of a pass is owed; `measure=False` only reads records. Raises InputError for an unknown lever or file.
    """
    from lab.lever_study import Study

    return Study(lever, campaign, run, pass_number, role, measure)


def summary(campaign: str = "", *, run: str = "") -> Summary:
    """All levers of one run, from records only: table and pictures. Default: the run touched last."""
    from lab.run_summary import Summary

    return Summary(campaign, run)


def roofline_view(campaign: str = "", *, run: str = "", arm: str = "control") -> RooflineView:
    """One run against the limits of its hardware, from records only: tables and pictures. Default: the run touched
    last; `arm`: whose last judged trial the gap account is of."""
    from lab.roofline_views import RooflineView

    return RooflineView(campaign, run, arm)


def load_campaign(path: str) -> Campaign:
    """Read and check a campaign file; raises InputError naming file, line and field."""
    from lab.campaign import Campaign

    return Campaign.load(path)


def verdicts(campaign: str = "", *, run: str = "") -> Table:
    """The verdict table of a campaign's last run (or of a run folder)."""
    return summary(campaign, run=run).verdicts()


def trials(campaign: str = "", *, run: str = "") -> pandas.DataFrame:
    """Every trial of a run as a DataFrame, units in the names."""
    return summary(campaign, run=run).trials()


def __getattr__(name: str) -> Any:
    if name == "plots":
        from lab.report import plots

        return plots
    raise AttributeError(f"module 'lab' has no attribute '{name}'")
