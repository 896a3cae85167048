"""What to do about a diagnosis, in the words of the engine that was looked at.

Without it the reader is told to raise the cap or to fix the scrape, and has to find out by which flag.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lab.audit.account import account
from lab.audit.concurrency import cap_bound

if TYPE_CHECKING:
    from lab.audit.diagnosis import Diagnosis
    from lab.records import Trial

NO_GAUGES = "metric-absent"


def advised(diagnosis: Diagnosis, trial: Trial, missing: Sequence[str]) -> Diagnosis:
    """The diagnosis with the engine's own flag in its advice; `missing`: what the server does not show, each with the
    switch for it after a colon."""
    load = account(trial)
    if _full(diagnosis, trial):
        text = (
            f"the server runs at most {load.cap:g} requests at once, so {load.queue:.1f} of the {load.offered:g} asked"
        )
        return replace(diagnosis, text=f"{text} waited", fix=_raise_the_cap(trial))
    gauges_hidden = trial.server["running"] is None or trial.server["waiting"] is None
    if diagnosis.code == NO_GAUGES and gauges_hidden:
        switches = (text.partition(": ")[2] for text in missing if "counters" in text.partition(": ")[0])
        return replace(diagnosis, text=_hidden(trial), fix=next(switches, diagnosis.fix))
    return diagnosis


def waited(diagnosis: Diagnosis, trial: Trial) -> float | None:
    """What waited on average. Before a server that is full it is all that was in flight and did not run: a gauge that
    lags shows less."""
    return account(trial).queue if _full(diagnosis, trial) else trial.server["waiting"]


def _full(diagnosis: Diagnosis, trial: Trial) -> bool:
    return diagnosis.name == "cap-bound" and cap_bound(account(trial))


def _raise_the_cap(trial: Trial) -> str:
    facts, offered = trial.launch.effective, trial.concurrency
    cap, flag, ranks, asked = (facts.get(key) for key in ("cap", "cap_flag", "ranks", "cap_asked"))
    if flag is None:
        how = "raise the server's limit"
    elif asked is not None and asked > cap:
        how = (
            f"find out what lowered {flag} {asked:g}: the server's log says it at the start, often the KV cache's room"
        )
    elif ranks and ranks > 1:
        how = f"start the server with a higher {flag}, so that its {ranks:g} ranks run {offered} together"
    else:
        how = f"start the server with {flag} {offered}"
    return f"{how}; or call this result C={cap:g}, which is what ran"


def _hidden(trial: Trial) -> str:
    """Which gauges the server does not show, and what follows from its cap all the same."""
    cap, offered, running = account(trial).cap, trial.concurrency, trial.server["running"]
    if running is not None:
        said = f"{running:.1f} requests ran; the server does not show how many waited"
    elif trial.server["waiting"] is not None:
        said = "the server does not show how many requests ran"
    else:
        said = "the server shows neither how many requests ran nor how many waited"
    return f"{said}; at most {cap:g} of your {offered} can have run at once" if cap and cap < offered else said
