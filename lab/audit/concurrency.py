"""The concurrency account: how many requests the server really ran, and what held the others back.

Without it "C=16" is believed although the server ran 8 and let 8 wait.
"""

from __future__ import annotations

import math

from lab.audit.account import Account, account, whole
from lab.audit.base import FINDING, INVALID, WARNING, Code, Context, check
from lab.audit.thresholds import (
    BELOW_ERRORS,
    CAP_FILLED_SHARE,
    CLIENT_FULL,
    HUNG_SHARE,
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
    WAVES_SHARE,
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
    """Some requests of every load wait for their prompt to be read; the label is false where most of them wait, where
    the server fills whole batches, or where it always ran the same number: then it hides its cap, or claims one that
    does not hold."""
    if not admission_bound(load):
        return None
    cap, flat = "its cap is unknown" if load.cap is None else f"it says it can run {load.cap:g}", flat_at(trial, load)
    waves = flat is None and in_waves(trial)
    why = "the scheduler admits no more" if flat is None else f"it behaves like a cap of {flat:g}"
    if waves:
        why = "it fills whole batches, and admits no more until they have ended"
    usage = load.kv_usage_max
    room = "" if usage is None else f" although the KV cache was at most {usage:.0%} full"
    said = f"asked {load.offered}, ran {load.running:.1f}, {load.waiting:.1f} waited{room} ({cap}): {why}"
    reason = "waves" if waves else "scheduler"
    figures = {**load.figures(), "kv_usage_max": usage, "flat_at": flat, "reason": reason}
    if _control_ran_all(context):
        text = f"{said}; the control's does, so the lever made this limit"
        return Code("capacity-limited", FINDING, text, figures)
    fix = "raise the tokens it may work on in one step, or lower C" if flat is None else f"measure at C={flat:g}"
    if waves:
        fix = f"batch continuously, or state the batch as {load.running:.1f}"
    text = f"{said}; {fix}"
    false = waves or flat is not None or load.running < SCHEDULER_SHARE_INVALID * load.possible
    return Code("batch-cap", INVALID if false else WARNING, text, figures)


@check("kv-bound")
def kv_bound(trial: Trial, context: Context) -> Code | None:
    """Fewer requests run than could, a queue exists, and the KV cache is full or requests were preempted.

    Where the control ran all that it could, the lever took the room: finding `capacity-limited`.
    """
    load = account(trial)
    if not load.closed or not cache_bound(load):
        return None
    usage = "an unknown share" if load.kv_usage_max is None else f"{load.kv_usage_max:.0%}"
    said = (
        f"asked {load.offered}, ran {load.running:.1f} of {load.possible:g} that could run, {load.waiting:.1f} waited: "
        f"KV cache at most {usage} full, {whole(load.preemptions or 0.0)} preemptions"
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
    if load.few or not lost(trial, load) or hung(trial, context):
        return None
    text = (
        f"the client held {load.little:.1f} in flight, the server saw {load.on_server.mean:.1f} "
        f"({load.running:.1f} running): something in between holds requests back (pool, proxy, tokenizer front end)"
    )
    figures = {**load.figures(), "held": load.on_server.mean, "error": load.on_server.error}
    return Code("client-inflight-illusion", INVALID, text, figures)


@check("hang")
def hang(trial: Trial, context: Context) -> Code | None:
    """Streams got tokens and then none until they were given up or cut; those of preempted requests only wait.

    Where they are a share of the load that matters, the label C is false.
    """
    client, load = trial.client, account(trial)
    streams, mean, since_s = client["hung_streams"], client["hung_mean"], client["hung_since_s"]
    if not streams or mean is None or since_s is None or load.preemptions or cache_bound(load):
        return None
    since = f"since {since_s:.1f} s into the window" if since_s > 0 else "since before the window"
    text = (
        f"{streams} streams got tokens and then fell silent without an end, the first one {since}: on average "
        f"{mean:.1f} of the {load.little or 0:.1f} requests in flight had hung"
    )
    figures = {"hung_streams": streams, "hung_mean": mean, "hung_since_s": since_s, "littles_law": load.little}
    return Code("hang", INVALID if mean >= HUNG_SHARE * (load.little or 0.0) else WARNING, text, figures)


def hung(trial: Trial, context: Context) -> Code | None:
    """`hang`, where it explains the trial."""
    code = hang(trial, context)
    return code if code is not None and code.severity == INVALID else None


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
    """The server ran what it can at once and requests waited, or it left places empty for moments only while a queue
    stood before it."""
    if load.cap is None or load.running is None or load.offered <= load.cap:
        return False
    queued = load.queue >= max(WAITING_MIN, WAITING_SHARE * load.offered)
    if load.running >= CAP_FILLED_SHARE * load.cap:
        return queued
    stands = load.waiting_p10 is not None and load.waiting_p10 >= SCHEDULER_WAITING_MIN
    return queued and stands and load.running >= SCHEDULER_SHARE * load.cap and not cache_bound(load)


def cache_bound(load: Account) -> bool:
    """The server ran less than it could, it counts a queue, and the KV cache is full or requests were preempted."""
    if load.running is None or load.waiting is None or load.waiting < KV_WAITING_MIN:
        return False
    if load.running >= CAP_FILLED_SHARE * load.possible:
        return False
    return bool(load.preemptions) or cache_full(load)


def cache_full(load: Account) -> bool:
    """No room for one more prompt of the usual length, at the fullest."""
    if load.kv_usage_max is None or load.kv_usage_max >= KV_FULL:
        return load.kv_usage_max is not None
    if load.kv_room_tokens is None or load.prompt_tokens is None:
        return False
    return (1 - load.kv_usage_max) * load.kv_room_tokens < load.prompt_tokens + 1


def admission_bound(load: Account) -> bool:
    """The server itself counts a queue, runs clearly less than it could, and nothing says that its cache is full.

    A queue that comes and goes may be of requests that wait for the step under way to end: then the batch that ran must
    be short beyond the error of its samples.
    """
    if load.running is None or load.waiting is None or cache_bound(load) or cache_full(load):
        return False
    if load.waiting < max(SCHEDULER_WAITING_MIN, WAITING_SHARE * load.offered):
        return False
    stands = load.waiting_p10 is None or load.waiting_p10 >= SCHEDULER_WAITING_MIN
    ran = load.running if stands else load.ran.at_most(BELOW_ERRORS)
    return ran < SCHEDULER_SHARE * load.possible


def in_waves(trial: Trial) -> bool:
    """The batch empties and fills again: for a quarter of the time it is a fraction of the largest."""
    most, least = trial.server["running_max"], trial.server["running_p25"]
    return most is not None and least is not None and least < WAVES_SHARE * most


def flat_at(trial: Trial, load: Account) -> float | None:
    """The number of requests that the server ran all through the window; None where it varied."""
    most = trial.server["running_max"]
    if most is None or load.running is None or not CAP_FILLED_SHARE * most <= load.running <= most:
        return None
    return most


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
    held, error = load.on_server.mean, load.on_server.error
    if not load.closed:  # arrivals come by chance: samples of an idle moment have no spread of their own
        error = max(error, math.sqrt(load.little / max(1, trial.server["samples"])))
    return held + SEEN_ERRORS * error < SEEN_SHARE * load.little


def _control_ran_all(context: Context) -> bool:
    if context.control is None:
        return False
    control = account(context.control)
    return control.running is not None and control.running >= CAP_FILLED_SHARE * control.possible
