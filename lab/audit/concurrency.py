"""The concurrency account: how many requests the server really ran, and what held the others back.

Without it "C=16" is believed although the server ran 8 and let 8 wait.
"""

from __future__ import annotations

import math

from lab.audit.account import Account, account
from lab.audit.base import FINDING, INVALID, WARNING, Code, Context, check
from lab.audit.thresholds import (
    CAP_FILLED_SHARE,
    CLIENT_FULL,
    KV_FULL,
    KV_WAITING_MIN,
    NO_QUEUE,
    NO_QUEUE_SHARE,
    RANK_SKEW,
    SCHEDULER_SHARE,
    SCHEDULER_SHARE_INVALID,
    SCHEDULER_WAITING_MIN,
    SEEN_ERRORS,
    SEEN_SHARE,
    WAITING_MIN,
    WAITING_SHARE,
)
from lab.records import Trial


@check("batch-cap")
def batch_cap(trial: Trial, context: Context) -> Code | None:
    """A closed loop's queue stands before a server that is full, or that admits no more.

    Where the control could run more than this arm, the lever made the cap: finding `capacity-limited`. Where the
    control has the same cap, the label C is false for everybody: invalid. In an open loop a queue is part of the load.
    """
    load = account(trial)
    if not load.closed:
        return None
    return _full(trial, load, context) or _not_admitted(trial, load, context)


def _full(trial: Trial, load: Account, context: Context) -> Code | None:
    if not cap_bound(load):
        return None
    cap, source = load.cap, trial.launch.effective.get("cap_source")
    said = (
        f"asked {load.offered}, ran {load.running:.1f}, {load.queue:.1f} waited: "
        f"the server runs at most {cap:g} ({source})"
    )
    if context.control_cap is not None and context.control_cap > cap:
        text = f"{said}; the control runs up to {context.control_cap:g}, so the lever made this cap"
        return Code("capacity-limited", FINDING, text, {**load.figures(), "control_cap": context.control_cap})
    return Code("batch-cap", INVALID, f"{said}; raise the cap or measure at C={cap:g}", load.figures())


def _not_admitted(trial: Trial, load: Account, context: Context) -> Code | None:
    """Some requests of every load wait for their prompt to be read; the label is false where most of them wait, or
    where a server that hides its cap always ran the same number."""
    if not admission_bound(load):
        return None
    cap = "its cap is unknown" if load.cap is None else f"it can run {load.cap:g}"
    said = (
        f"asked {load.offered}, ran {load.running:.1f}, {load.waiting:.1f} waited with the cache at "
        f"{load.kv_usage_max:.0%} ({cap}): the scheduler admits no more"
    )
    figures = {**load.figures(), "kv_usage_max": load.kv_usage_max, "reason": "scheduler"}
    if _control_ran_all(context):
        text = f"{said}; the control's does, so the lever made this limit"
        return Code("capacity-limited", FINDING, text, figures)
    text = f"{said} (reason: scheduler); raise its token budget or lower C"
    most = trial.server["running_max"]
    hidden_cap = load.cap is None and most is not None and load.running >= CAP_FILLED_SHARE * most
    false = hidden_cap or load.running < SCHEDULER_SHARE_INVALID * load.possible
    return Code("batch-cap", INVALID if false else WARNING, text, figures)


@check("kv-bound")
def kv_bound(trial: Trial, context: Context) -> Code | None:
    """Fewer requests run than could, a queue exists, and the KV cache is full or requests were preempted.

    Where the control ran all that it could, the lever took the room: finding `capacity-limited`.
    """
    load = account(trial)
    if not load.closed or not cache_bound(load):
        return None
    usage = "unknown" if load.kv_usage_max is None else f"{load.kv_usage_max:.0%}"
    said = (
        f"asked {load.offered}, ran {load.running:.1f} of {load.possible:g} that could run, {load.waiting:.1f} waited: "
        f"cache usage {usage}, {load.preemptions or 0:g} preemptions"
    )
    figures = {**load.figures(), "kv_usage_max": load.kv_usage_max, "preemptions": load.preemptions}
    if _control_ran_all(context):
        text = f"{said}; the control ran all, so the lever took the cache's room"
        return Code("capacity-limited", FINDING, text, {**figures, "reason": "kv"})
    text = f"{said}; give the cache more room, shorten contexts or lower C"
    return Code("kv-bound", INVALID, text, figures)


@check("client-inflight-illusion")
def client_inflight_illusion(trial: Trial, context: Context) -> Code | None:
    """The client holds its load in flight, the server never saw a part of it, and nothing explains that."""
    load = account(trial)
    if load.few or not lost(trial, load):
        return None
    text = (
        f"the client held {load.little:.1f} in flight, the server saw {load.held:.1f} ({load.running:.1f} running): "
        "something in between holds requests back (pool, proxy, tokenizer front end)"
    )
    return Code("client-inflight-illusion", INVALID, text, {**load.figures(), "error": trial.server["held_error"]})


@check("dp-underfilled")
def dp_underfilled(trial: Trial, context: Context) -> Code | None:
    """A data-parallel server with idle ranks: fewer requests than ranks, or one rank does most of the work."""
    ranks, skew = trial.launch.effective.get("ranks"), trial.server["rank_skew"]
    if not ranks or ranks < 2:
        return None
    figures = {"offered": trial.concurrency, "ranks": ranks, "rank_skew": skew}
    if account(trial).closed and trial.concurrency < ranks:
        text = f"{trial.concurrency} requests at once on {ranks:g} data-parallel ranks: some of them are always idle"
        return Code("dp-underfilled", WARNING, text, figures)
    if skew is None or skew <= RANK_SKEW:
        return None
    text = f"the fullest of {ranks:g} data-parallel ranks ran {skew:.1f} times the mean: the others wait for it"
    return Code("dp-underfilled", WARNING, text, figures)


def cap_bound(load: Account) -> bool:
    """The server ran what it can at once, and requests waited."""
    if load.cap is None or load.running is None or load.offered <= load.cap:
        return False
    return load.running >= CAP_FILLED_SHARE * load.cap and load.queue >= max(WAITING_MIN, WAITING_SHARE * load.offered)


def cache_bound(load: Account) -> bool:
    """The server ran less than it could, it counts a queue, and the KV cache is full or requests were preempted."""
    if load.running is None or load.waiting is None or load.waiting < KV_WAITING_MIN:
        return False
    if load.running >= CAP_FILLED_SHARE * load.possible:
        return False
    return bool(load.preemptions) or _cache_full(load)


def _cache_full(load: Account) -> bool:
    """No room for one more prompt of the usual length, at the fullest."""
    if load.kv_usage_max is None or load.kv_usage_max >= KV_FULL:
        return load.kv_usage_max is not None
    if load.kv_room_tokens is None or load.prompt_tokens is None:
        return False
    return (1 - load.kv_usage_max) * load.kv_room_tokens < load.prompt_tokens + 1


def admission_bound(load: Account) -> bool:
    """The server itself counts a queue that never empties, runs less than it could, and the cache has room.

    A queue that comes and goes is of requests that wait for the step under way to end.
    """
    if load.running is None or load.waiting is None or load.kv_usage_max is None or cache_bound(load):
        return False
    stands = load.waiting_p10 is None or load.waiting_p10 >= SCHEDULER_WAITING_MIN
    waits = stands and load.waiting >= max(SCHEDULER_WAITING_MIN, WAITING_SHARE * load.offered)
    return waits and load.running < SCHEDULER_SHARE * load.possible and not _cache_full(load)


def lost(trial: Trial, load: Account) -> bool:
    """The server saw clearly less than was in flight, beyond the error of its samples, and was not full."""
    if load.little is None or load.held is None:
        return False
    if load.waiting >= max(NO_QUEUE, NO_QUEUE_SHARE * load.little):
        return False
    if load.closed and load.little < CLIENT_FULL * load.offered:
        return False
    if load.cap is not None and load.running >= CAP_FILLED_SHARE * load.cap:
        return False
    error = trial.server["held_error"] or 0.0
    if not load.closed:  # arrivals come by chance: samples of an idle moment have no spread of their own
        error = max(error, math.sqrt(load.little / max(1, trial.server["samples"])))
    return load.held + SEEN_ERRORS * error < SEEN_SHARE * load.little


def _control_ran_all(context: Context) -> bool:
    if context.control is None:
        return False
    control = account(context.control)
    return control.running is not None and control.running >= CAP_FILLED_SHARE * control.possible
