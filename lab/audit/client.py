"""Was the client the bottleneck, and did the requests themselves go well?

Without these checks a pool of 100 connections reads as a server that is full at 100, a busy client as a slow server,
and failing requests, which shorten the work, as speed.
"""

from __future__ import annotations

from lab.audit.account import Account, account
from lab.audit.base import INVALID, WARNING, Code, Context, check
from lab.audit.thresholds import (
    CLIENT_CPU_SHARE,
    CLIENT_FULL,
    CLIENT_SHORT,
    FAILED_SHARE_INVALID,
    FLAT_PCT,
    LOOP_LAG_SHARE,
    NO_QUEUE,
    PEAK_SHARE,
    RAMP_SHARE,
    RATE_SHORT,
    SAME_HELD_SHARE,
    SEND_DELAY_SHARE,
    SLOT_WAIT_SHARE,
)
from lab.records import Trial


@check("client-conn-cap")
def client_conn_cap(trial: Trial, context: Context) -> Code | None:
    """The client holds a constant number of requests below what was asked, and the server sees all of them."""
    load, flat_pct = account(trial), trial.client["in_flight_flat_pct"]
    if not _short(load) or load.held is None or flat_pct is None or flat_pct > FLAT_PCT:
        return None
    if load.waiting >= NO_QUEUE or abs(load.held - load.little) > SAME_HELD_SHARE * load.little:
        return None
    text = (
        f"asked {load.offered:g}, the client never held more than {load.little:.1f} in flight (constant within "
        f"{flat_pct:.1f} %), and the server queued nothing: raise the client's connection limit"
    )
    return Code("client-conn-cap", INVALID, text, {**load.figures(), "in_flight_flat_pct": flat_pct})


@check("client-bound")
def client_bound(trial: Trial, context: Context) -> Code | None:
    """The client fell short of the load or the rate, and it was busy or late itself."""
    load, client = account(trial), trial.client
    due, issued = client["due_in_window"], client["issued_in_window"]
    if load.closed:
        short = _short(load)
        said = f"asked {load.offered:g}, {load.little or 0:.1f} were in flight"
    else:
        short = bool(due) and issued is not None and issued < RATE_SHORT * due
        said = f"{due} requests fell due in the window, {issued} were sent"
    if not short:
        return None
    reasons = slow_client(trial)
    if not reasons:
        return None
    figures = {
        **load.figures(),
        **{name: client[name] for name in ("loop_lag_p99_ms", "due_delay_p99_ms", "e2e_mean_ms", "cpu_share")},
    }
    return Code("client-bound", INVALID, f"{said}: the client is the bottleneck ({'; '.join(reasons)})", figures)


def slow_client(trial: Trial) -> list[str]:
    """What shows that the client was slow, in words; empty when nothing does."""
    client, metrics = trial.client, trial.metrics
    lag_ms, token_ms = client["loop_lag_p99_ms"], metrics["tpot_p50_ms"] or metrics["chunk_gap_p50_ms"]
    delay_ms, life_ms, cpu = client["due_delay_p99_ms"], client["e2e_mean_ms"], client["cpu_share"]
    reasons = []
    if lag_ms is not None and token_ms and lag_ms > LOOP_LAG_SHARE * token_ms:
        reasons.append(f"its event loop lags {lag_ms:.1f} ms at p99, a token takes {token_ms:.1f} ms")
    # In an open loop a send is late because all slots are taken, which is the server's doing.
    if account(trial).closed and delay_ms is not None and life_ms and delay_ms > SEND_DELAY_SHARE * life_ms:
        reasons.append(f"it sends {delay_ms:.0f} ms late at p99, a request lives {life_ms:.0f} ms")
    if cpu is not None and cpu > CLIENT_CPU_SHARE:
        reasons.append(f"a client process used {cpu:.0%} of a core")
    return reasons


@check("coordinated-omission")
def coordinated_omission(trial: Trial, context: Context) -> Code | None:
    """Open loop: latencies from the send leave out the time that requests waited for a client slot."""
    client = trial.client
    if client["arrivals"] == "closed":
        return None
    waited_ms, life_ms = client["wait_for_slot_mean_ms"], client["e2e_mean_ms"]
    figures = {"wait_for_slot_mean_ms": waited_ms, "e2e_mean_ms": life_ms}
    if waited_ms is None:
        text = "nobody knows how long requests waited for a client slot; latencies from the send may leave it out"
        return Code("coordinated-omission", WARNING, text, figures)
    if life_ms is None or waited_ms <= SLOT_WAIT_SHARE * life_ms:
        return None
    text = (
        f"requests waited {waited_ms:.0f} ms for a client slot on average and lived {life_ms:.0f} ms: "
        "read queue_e2e_p50_ms, which counts from when they were due"
    )
    return Code("coordinated-omission", WARNING, text, figures)


@check("ramp-heavy")
def ramp_heavy(trial: Trial, context: Context) -> Code | None:
    """The load was reached for a part of the window only, so its mean holds the fill or the drain.

    The ramp before the window and the drain after it are no part of any figure, and are not counted here.
    """
    bins, offered = trial.client["in_flight_bins"], trial.concurrency
    if trial.client["arrivals"] != "closed" or max(bins, default=0.0) < CLIENT_FULL * offered:
        return None
    share = sum(level < CLIENT_SHORT * offered for level in bins) / len(bins)
    if share <= RAMP_SHARE:
        return None
    text = (
        f"fewer than {CLIENT_SHORT:.0%} of the {offered} clients had a request in flight for {share:.0%} of the window"
    )
    return Code("ramp-heavy", WARNING, text, {"share": share, "littles_law": trial.client["littles_law"]})


@check("peak-bucketed")
def peak_bucketed(trial: Trial, context: Context) -> Code | None:
    """A harness counts in whole seconds, and so reports a peak that never was; the exact one is at most C."""
    exact, reported = trial.client["peak_in_flight"], trial.client.get("peak_reported")
    figures = {"peak_in_flight": exact, "peak_reported": reported, "offered": trial.concurrency}
    if reported is not None and exact is not None and reported > PEAK_SHARE * exact:
        text = f"the harness reports a peak of {reported:g} in flight, its own requests show {exact:g}: discard it"
        return Code("peak-bucketed", WARNING, text, figures)
    if exact is not None and exact > PEAK_SHARE * trial.concurrency:
        text = f"{exact:g} requests were in flight at once, only {trial.concurrency} were asked"
        return Code("peak-bucketed", WARNING, text, figures)
    return None


@check("failed-requests")
def failed_requests(trial: Trial, context: Context) -> Code | None:
    """Requests that ended in an error; aborted at the end of the drain is not an error."""
    client = trial.client
    failed, issued = client["failed"], client["sent"]
    if not failed:
        return None
    share = failed / issued
    kinds = ", ".join(f"{count} × {kind}" for kind, count in sorted(client["errors"].items()))
    severity = INVALID if share > FAILED_SHARE_INVALID else WARNING
    text = f"{failed} of {issued} requests failed ({kinds})"
    return Code("failed-requests", severity, text, {"failed": failed, "issued": issued})


@check("nothing-completed")
def nothing_completed(trial: Trial, context: Context) -> Code | None:
    """No token arrived in the window: there is no throughput to speak of."""
    client = trial.client
    if client["window_tokens"]:
        return None
    text = f"no token arrived in the window ({client['completed']} requests completed before and after it)"
    return Code("nothing-completed", INVALID, text, {"completed": client["completed"], "window_tokens": 0})


def _short(load: Account) -> bool:
    """A closed loop that did not keep its load in flight although it had enough to send."""
    return load.closed and not load.few and load.little is not None and load.little < CLIENT_SHORT * load.offered
