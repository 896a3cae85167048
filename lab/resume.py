"""Which run a campaign goes on with, and whether it may.

Without it an interrupted night is measured twice, or two engine builds end up in one table.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from lab.campaign import Campaign
from lab.errors import InputError, say
from lab.plan import load_levers
from lab.prepare import campaign_digest
from lab.runs import Run, pick_run, results_folder, runs


def resumable(campaign: Campaign, asked: bool, run_id: str | None) -> Run | None:
    """The run to go on with: the one named, else the newest unfinished one; None for a new run, or nothing to do.

    asked: --resume was given; without it a person at a terminal is asked, and no other file is refused. Raises
    InputError for a run that cannot be gone on with.
    """
    if run_id:
        run = pick_run(results_folder(), campaign.name, run_id)
        if run.plan["mode"] != "campaign":
            raise InputError(f"run {run_id} was measured by hand, in one block; it cannot be resumed")
        if run.status["state"] == "done":
            say(f"{run.path}: is finished; nothing to resume")
            return None
        candidates = [run]
    else:
        candidates = [
            run
            for run in runs(results_folder(), campaign.name)
            if run.status["state"] != "done" and run.plan["mode"] == "campaign"
        ]
    if not candidates:
        if asked:
            say(f"campaign {campaign.name}: no unfinished run; nothing to resume")
        return None
    run = candidates[-1]
    if run.campaign["digest"] != campaign_digest(campaign):
        if asked:
            raise InputError(
                f"{campaign.document.path}: changed since run {run.run_id} began; start afresh with --fresh"
            )
        return None
    if not asked and not _wants_resume(run):
        return None
    say(f"resuming run {run.run_id}")
    return run


def same_plan(run: Run, only: Sequence[str] | None, passes: int | None) -> bool:
    """Whether what was asked on the command line is what the run began with."""
    levers = {lever.name for lever in load_levers(run.plan)}
    return (only is None or set(only) == levers) and passes in (None, run.plan["passes"])


def check_build(run: Run, build: str) -> None:
    """Launches of two engine builds are not one campaign."""
    began = run.campaign["engine"]
    if build != began:
        text = f"run {run.run_id} began with {began}, now {build} would serve; start afresh with --fresh"
        raise InputError(text)


def _wants_resume(run: Run) -> bool:
    if not sys.stdin.isatty():
        return True
    print(f"run {run.run_id} is unfinished; resume it? [Y/n] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    return answer.strip().lower() in ("", "y", "yes")
