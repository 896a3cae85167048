"""Was the client the bottleneck, and did the requests themselves go well?

Without these checks a pool of 100 connections reads as a server that is full at 100, a busy client as a slow server,
and failing requests, which shorten the work, as speed.
"""

from __future__ import annotations

from lab.audit.account import CLOSED, Account, account
from lab.audit.base import INVALID, WARNING, Code, Context, check
from lab.audit.thresholds import (
    CLIENT_CPU_SHARE,
    CLIENT_FULL,
    CLIENT_SHORT,
    FAILED_SHARE_INVALID,
    FLAT_PCT,
    LATE_REAL_MS,
    LOOP_LAG_LIFE_SHARE,
    LOOP_LAG_SHARE,
    NO_QUEUE,
    NO_QUEUE_SHARE,
    PEAK_SHARE,
    RAMP_SHARE,
    RATE_SHORT,
    SAME_HELD_SHARE,
    SEEN_ERRORS,
    SEEN_SHARE,
    SEND_DELAY_SHARE,
    SLOT_WAIT_SHARE,
)
from lab.records import Trial


@check("client-conn-cap")
def client_conn_cap(trial: Trial, context: Context) -> Code | None:
    """The client holds a constant number of requests below what was asked, and the server sees all of them."""
    load, flat_pct = account(trial), trial.client["in_flight_flat_pct"]
    if not _short(trial, load) or load.held is None or flat_pct is None or flat_pct > FLAT_PCT:
        return None
    if not _no_queue(load) or abs(load.held - load.little) > SAME_HELD_SHARE * load.little:
        return None
    text = (
        f"asked {load.offered:g}, the client never held more than {load.little:.1f} in flight (constant within "
        f"{flat_pct:.1f} %), and the server queued nothing: raise the client's connection limit"
    )
    return Code("client-conn-cap", INVALID, text, {**load.figures(), "in_flight_flat_pct": flat_pct})


@check("client-bound")
def client_bound(trial: Trial, context: Context) -> Code | None:
    """The client fell short of the load or the rate, or kept in flight what the server had long answered, and it was
    busy or late itself."""
    load, client = account(trial), trial.client
    fell_short = _short(trial, load) or _behind_the_rate(trial, load)
    if not (fell_short or _unread(trial, load) or _reads_late(trial)):
        return None
    reasons = slow_client(trial)
    if not reasons:
        return None
    said = f"asked {load.offered:g}, {load.little or 0:.1f} were in flight"
    if not load.closed:
        said = f"{client['due_in_window']} requests fell due in the window, {client['issued_in_window']} were sent"
    names = ("loop_lag_mean_ms", "loop_lag_p99_ms", "due_delay_mean_ms", "due_delay_p99_ms", "e2e_mean_ms")
    figures = {**load.figures(), **{name: client[name] for name in (*names, "cpu_share", "backing_off")}}
    return Code("client-bound", INVALID, f"{said}: the client is the bottleneck ({'; '.join(reasons)})", figures)


def slow_client(trial: Trial) -> list[str]:
    """What shows that the client was slow, in words; empty when nothing does."""
    load, client = account(trial), trial.client
    lag_ms = client["loop_lag_p99_ms"]
    reasons = []
    if _lags(trial):
        reasons.append(f"its event loop lags {lag_ms:.1f} ms at p99, {_against(trial)}")
    if _reads_late(trial):
        said = f"{client['loop_lag_mean_ms']:.0f} ms of the {client['e2e_mean_ms']:.0f} ms that a request lives"
        reasons.append(f"what arrives lies unread for {said}")
    if _unread(trial, load):
        reasons.append(
            f"{load.little:.1f} were in flight, the server held {load.held:.1f} and queued nothing meanwhile"
        )
    if _sends_late(trial):
        said = f"{client['due_delay_p99_ms']:.0f} ms late at p99, {client['due_delay_mean_ms']:.0f} ms on average"
        reasons.append(f"it sends {said}, a request lives {client['e2e_mean_ms']:.0f} ms")
    if _busy(trial):
        reasons.append(f"a client process used {client['cpu_share']:.0%} of a core")
    return reasons


def _busy(trial: Trial) -> bool:
    cpu = trial.client["cpu_share"]
    return cpu is not None and cpu > CLIENT_CPU_SHARE


def _lags(trial: Trial) -> bool:
    """The event loop comes late by real time, and by the time per token, or the life of a request where that is
    unknown: a client that reads an answer in one piece has seen no token's time."""
    lag_ms, token_ms, life_ms = trial.client["loop_lag_p99_ms"], _token_ms(trial), trial.client["e2e_mean_ms"]
    if lag_ms is None or lag_ms <= _late_ms(trial):
        return False
    return lag_ms > (LOOP_LAG_SHARE * token_ms if token_ms else LOOP_LAG_LIFE_SHARE * (life_ms or 0.0))


def _reads_late(trial: Trial) -> bool:
    """The event loop lags, and so much on average that what the server has sent lies unread for a share of a request's
    life: the load looks full, and the server serves less of it."""
    lag_ms, life_ms = trial.client["loop_lag_mean_ms"], trial.client["e2e_mean_ms"]
    if lag_ms is None or not life_ms or not _lags(trial):
        return False
    return lag_ms > LOOP_LAG_LIFE_SHARE * life_ms


def _against(trial: Trial) -> str:
    token_ms, life_ms = _token_ms(trial), trial.client["e2e_mean_ms"]
    if token_ms:
        return f"a token takes {token_ms:.1f} ms"
    return f"a request lives {life_ms:.0f} ms" if life_ms else "no request has a time"


def _token_ms(trial: Trial) -> float | None:
    return trial.metrics["tpot_p50_ms"] or trial.metrics["chunk_gap_p50_ms"]


def _sends_late(trial: Trial) -> bool:
    """A closed loop's sends come late by a share of a request's life: on average, or at p99 and by real time.

    In an open loop a send is late because all slots are taken, which is the server's doing.
    """
    client = trial.client
    mean_ms, p99_ms, life_ms = (client[name] for name in ("due_delay_mean_ms", "due_delay_p99_ms", "e2e_mean_ms"))
    if client["arrivals"] != CLOSED or mean_ms is None or p99_ms is None or not life_ms:
        return False
    limit_ms = SEND_DELAY_SHARE * life_ms
    return mean_ms > limit_ms or p99_ms > max(limit_ms, _late_ms(trial))


def _late_ms(trial: Trial) -> float:
    """LATE_REAL_MS in server time, which is what the record holds."""
    return LATE_REAL_MS * (trial.window["time_factor"] or 1.0)


def _unread(trial: Trial, load: Account) -> bool:
    """The client was slow, and the server held clearly less than was in flight, beyond the error of its samples, and
    queued nothing: answers that were sent long ago lie unread."""
    slow = _lags(trial) or _busy(trial) or _sends_late(trial)
    if not slow or load.little is None or load.held is None or not _no_queue(load):
        return False
    return load.on_server.at_most(SEEN_ERRORS) < SEEN_SHARE * load.little


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

    The ramp before the window and the drain after it are no part of any figure, and are not counted here. A client that
    is out of breath loses its load again and again: `client-bound` says so, and it is no ramp.
    """
    bins, offered = trial.client["in_flight_bins"], trial.concurrency
    if trial.client["arrivals"] != "closed" or max(bins, default=0.0) < CLIENT_FULL * offered:
        return None
    share = sum(level < CLIENT_SHORT * offered for level in bins) / len(bins)
    if share <= RAMP_SHARE or client_bound(trial, context):
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
    """Requests that ended in an error; aborted at the end of the drain is not an error.

    Few of them make the label C false where the waits after them, which the server asks for, leave the load short.
    """
    client, load = trial.client, account(trial)
    failed, issued, away = client["failed"], client["sent"], client["backing_off"]
    if not failed:
        return None
    kinds = ", ".join(f"{count} × {kind}" for kind, count in sorted(client["errors"].items()))
    text = f"{failed} of {issued} requests failed ({kinds})"
    figures = {"failed": failed, "issued": issued}
    if away:
        text += f"; after them {away:.1f} of {load.offered:g} clients were backing off on average"
        figures["backing_off"] = away
    short = bool(away) and load.little is not None and load.little < CLIENT_SHORT * load.offered
    severity = INVALID if short or failed / issued > FAILED_SHARE_INVALID else WARNING
    return Code("failed-requests", severity, text, figures)


@check("nothing-completed")
def nothing_completed(trial: Trial, context: Context) -> Code | None:
    """No token arrived in the window: there is no throughput to speak of."""
    client = trial.client
    if client["window_tokens"]:
        return None
    text = f"no token arrived in the window ({client['completed']} requests completed before and after it)"
    return Code("nothing-completed", INVALID, text, {"completed": client["completed"], "window_tokens": 0})


def _no_queue(load: Account) -> bool:
    return load.waiting < max(NO_QUEUE, NO_QUEUE_SHARE * load.little)


def _short(trial: Trial, load: Account) -> bool:
    """A closed loop that did not keep its load in flight although it had enough to send, and no reason to back off."""
    if not load.closed or load.few or load.little is None:
        return False
    return load.little + (trial.client["backing_off"] or 0.0) < CLIENT_SHORT * load.offered


def _behind_the_rate(trial: Trial, load: Account) -> bool:
    """An open loop that sent less than fell due although it had free slots: without one, the server is behind."""
    due, issued = trial.client["due_in_window"], trial.client["issued_in_window"]
    if load.closed or not due or issued is None or (load.little or 0.0) >= CLIENT_FULL * load.offered:
        return False
    return issued < RATE_SHORT * due
