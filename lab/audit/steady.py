"""Was the window one state of the server: warm, and steady?

Without these checks a compile in the window, a warm-up that still ran or a server that slowed down all through it is
averaged into a figure that describes nothing.
"""

from __future__ import annotations

from lab.audit.account import account
from lab.audit.base import INVALID, WARNING, Code, Context, check
from lab.audit.latency import NAMES, REQUEST_LEVEL
from lab.audit.machine import other_cores
from lab.audit.thresholds import BACKLOG_SHARE, EARLY_P, EARLY_RATIO, EARLY_RATIO_SHARED, OTHER_CORES, OVERLAP_REQUESTS
from lab.records import SEARCH, Trial

FOUND, TOO_SHORT = "found", "too-short"


@check("no-steady-window")
def no_steady_window(trial: Trial, context: Context) -> Code | None:
    """Throughput drifted over the window, or the window was too short to tell.

    Judged on time bins of emitted tokens (contract, section 7). The short windows of a search rank its candidates and
    are never judged. In an open loop whose
    requests in flight rise, latencies have no steady value although throughput has.
    """
    steady, client = trial.steady, trial.client
    figures = {name: steady[name] for name in ("seconds", "bins", "trend_pct", "p_value", "cv_pct")}
    searched = trial.launch.role == SEARCH and steady["outcome"] == TOO_SHORT
    if steady["outcome"] != FOUND and client["window_tokens"] and not searched:
        text = f"no steady window ({steady['outcome']}): {steady['reason']}"
        return Code("no-steady-window", INVALID, text, figures)
    if client["arrivals"] == "closed" or client["in_flight_trend_pct"] <= 0:
        return None
    text = (
        f"requests in flight rose by {client['in_flight_trend_pct']:.0f} % over the window: the server finished fewer "
        "than were sent, and latencies have no steady value"
    )
    figures = {"in_flight_trend_pct": client["in_flight_trend_pct"], "littles_law": client["littles_law"]}
    return Code("no-steady-window", WARNING, text, figures, withdraws=REQUEST_LEVEL)


@check("cold-start-in-window")
def cold_start_in_window(trial: Trial, context: Context) -> Code | None:
    """The server compiled, captured or tuned inside the window, or its first requests were slow beyond chance.

    A slow start of the first tokens alone withdraws their metrics. Where other programs used the machine, they may be
    why the start was a little slow, and it takes more to prove a cold server.
    """
    client, events = trial.client, trial.server["log_events"] or []
    if events:
        text = f"{len(events)} log lines in the window tell of {events[0]['kind']}: {events[0]['text'][:120]}"
        return Code("cold-start-in-window", INVALID, text, {"events": len(events), "kind": events[0]["kind"]})
    load, started = account(trial), client["clients_started"]
    if load.closed and started is not None and started < min(load.offered, load.possible):
        text = (
            f"only {started} of {load.possible:g} clients had a token when the window opened: the warm-up was smaller"
        )
        return Code("cold-start-in-window", INVALID, text, {"clients_started": started, "offered": load.offered})
    shared = (other_cores(trial) or 0.0) >= OTHER_CORES
    least = EARLY_RATIO_SHARED if shared else EARLY_RATIO
    for name, severity, withdraws in (("tpot", INVALID, ()), ("ttft", WARNING, REQUEST_LEVEL)):
        ratio, chance = client[f"early_ratio_{name}"], client[f"early_p_{name}"]
        if ratio is not None and chance is not None and ratio > least and chance <= EARLY_P:
            text = (
                f"the first tenth of the requests has {ratio:.1f} times the {NAMES[name]} of the others: the server "
                f"was still cold (chance alone does that with a probability of {chance:.2g})"
            )
            figures = {f"early_ratio_{name}": ratio, f"early_p_{name}": chance}
            return Code("cold-start-in-window", severity, text, figures, withdraws=withdraws)
    return None


@check("warmup-overlap")
def warmup_overlap(trial: Trial, context: Context) -> Code | None:
    """Work from before the window that the load does not explain.

    Requests of a closed loop that straddle its opening are the load itself (contract, section 2); requests beyond them
    are not. An open loop starts clean when nothing that fell due before is still to be sent.
    """
    excess, backlog = trial.server["excess_at_open"], trial.client["backlog_at_open"]
    if excess is not None and excess > OVERLAP_REQUESTS:
        text = f"the server held {excess:.1f} requests more than ours when the window opened"
        return Code("warmup-overlap", WARNING, text, {"excess_at_open": excess})
    little = trial.client["littles_law"] or 0.0
    if backlog is None or backlog <= max(OVERLAP_REQUESTS, BACKLOG_SHARE * little):
        return None
    text = f"{backlog} requests that fell due in the warm-up were still to be sent when the window opened"
    return Code("warmup-overlap", WARNING, text, {"backlog_at_open": backlog, "littles_law": little})
