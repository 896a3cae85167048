"""What held this trial back, in one word, one sentence and one thing to do.

Without it a reader of four numbers and ten codes has to know which of them explains the others.
"""

from __future__ import annotations

from dataclasses import dataclass

from lab.audit.account import Account, account
from lab.audit.base import CHECKS, INVALID, Code, Context
from lab.audit.below import below_load
from lab.audit.client import client_bound, client_conn_cap, failed_requests
from lab.audit.completed import complete
from lab.audit.concurrency import admission_bound, batch_cap, cache_bound, cap_bound, flat_at, hung, kv_bound, lost
from lab.audit.gate import gate_misaligned, metric_absent
from lab.audit.silence import standstill
from lab.audit.thresholds import (
    CLIENT_FULL,
    CLIENT_SHORT,
    HEALTHY_ERRORS,
    HEALTHY_HELD_SHARE,
    HEALTHY_RUNNING_MORE,
    HEALTHY_RUNNING_MOST,
    HEALTHY_RUNNING_SHARE,
    RATE_SHORT,
    REQUESTS_MISSING,
    SLOT_WAIT_SHARE,
)
from lab.audit.tokens import foreign_traffic
from lab.records import Trial

# What to do about the codes that make a load which was held not to be believed, the worst first.
FIXES = {
    "nothing-completed": "look into the server's errors and its log",
    "failed-requests": "look into the server's errors and its log",
    "counter-reset": "see in its log why the server began anew, and measure again when it stays up",
    "faked-output": "start the server without that switch",
    "count-mismatch": "compare one answer's count with the server's tokenizer; believe no tok/s before they agree",
    "over-roofline": "look for tokens that are counted twice, or for wrong hardware figures",
    "client-bound": "offer the load from another machine, or with fewer clients",
    "prefix-contamination": "switch the prefix cache off, or send prompts that were never sent before",
    "spec-random-tokens": "measure speculation on real text, with the model's chat template",
    "cold-start-in-window": "warm up longer, with as many clients as are measured",
    "no-steady-window": "measure longer, once the server has settled",
    "input-length-drift": "send prompts that are cut with the server's own tokenizer",
    "output-length-drift": "make the server honour ignore_eos, or compare answers of equal length",
}
FIX = "remove the cause and measure again"


@dataclass(frozen=True)
class Diagnosis:
    """name: blind, not ours, not enough work, ramp-bound, cap-bound, hidden cap (it ran a flat number below its claim),
    KV-bound, admission-bound, hung, lost on the way, failing, client-bound, backlog, not to be believed (the load was
    held, and an invalidating code withdraws the figures), stood still, healthy or unclear. code: the audit's code for
    it, None where there is none."""

    name: str
    text: str
    code: str | None = None
    fix: str | None = None


def diagnose(trial: Trial, context: Context | None = None) -> Diagnosis:
    """The first that matches (pitfalls, section 2).

    `not enough work` needs a load that was not reached: in a window that was fully occupied the four numbers hold
    however few requests it saw (contract, section 2).
    """
    trial, context = complete(trial, context or Context())
    load = account(trial)
    found = _unbelievable(trial, context)
    if found is None:
        found = _closed(trial, load, context) if load.closed else _open(trial, load, context)
    return found if found.code else _in_doubt(trial, context) or found


def _in_doubt(trial: Trial, context: Context) -> Diagnosis | None:
    """What is wrong with a trial whose four numbers show nothing: its worst invalidating code, or a standstill."""
    codes = [code for check in CHECKS.values() if (code := check(trial, context)) and code.severity == INVALID]
    if codes:
        order = list(FIXES)
        worst = min(codes, key=lambda code: order.index(code.code) if code.code in FIXES else len(order))
        text = f"the load was held, but the figures are no result: {worst.text}"
        return Diagnosis("not to be believed", text, worst.code, FIXES.get(worst.code, FIX))
    paused = standstill(trial, context)
    if paused is None:
        return None
    fix = "look at the server's log and the machine at that time, and measure again"
    return Diagnosis("stood still", paused.text, paused.code, fix)


def _unbelievable(trial: Trial, context: Context) -> Diagnosis | None:
    code = metric_absent(trial, context) or gate_misaligned(trial, context)
    if code is not None:
        return Diagnosis("blind", code.text, code.code, "fix the scrape of the server's metrics; judge nothing before")
    code = foreign_traffic(trial, context)
    if code is not None:
        return Diagnosis("not ours", code.text, code.code, "measure when nobody else sends requests to this server")
    return None


def _closed(trial: Trial, load: Account, context: Context) -> Diagnosis:
    four, little = _four(load), load.little or 0.0
    peak = max(trial.client["in_flight_bins"], default=0.0)
    client = client_conn_cap(trial, context) or client_bound(trial, context)
    short = little < CLIENT_SHORT * load.offered
    few = trial.metrics["requests_in_window"] < REQUESTS_MISSING * load.offered
    if load.few or (few and short and client is None and peak < CLIENT_FULL * load.offered):
        text = f"too few requests for {load.offered:g} clients to hold the load: {four}"
        return Diagnosis("not enough work", text, "too-few-requests", "send more requests")
    if short and peak >= CLIENT_FULL * load.offered:
        text = f"the load was reached for a part of the window only: {four}"
        return Diagnosis("ramp-bound", text, "ramp-heavy", "warm up longer, and measure only while the load is full")
    if cap_bound(load):
        fix = f"raise the cap, or state the batch as {load.cap:g}"
        return _by_code("cap-bound", batch_cap(trial, context), four, fix)
    if cache_bound(load):
        fix = "shorter contexts, more room for the KV cache, or a lower C"
        return _by_code("KV-bound", kv_bound(trial, context), four, fix)
    if admission_bound(load):
        return _not_admitted(trial, load, context, four)
    silent = hung(trial, context)
    if silent is not None:
        return _hung(silent)
    if lost(trial, load):
        text = f"what was in flight never reached the server: {four}"
        fix = "look at the connection pool, a proxy, the tokenizer front end"
        return Diagnosis("lost on the way", text, "client-inflight-illusion", fix)
    failing = failed_requests(trial, context)
    if client is None and failing is not None and failing.severity == INVALID:
        return Diagnosis("failing", f"{failing.text}: {four}", failing.code, "look into the server's errors")
    below = below_load(trial, context)
    if short and client is None and below is not None:
        text = f"the client did not hold its load, and nothing says why: {below.text}"
        return Diagnosis("client-bound", text, below.code, "more client processes, a larger connection pool")
    if short:
        text = client.text if client else f"the client did not hold its load, and nothing waited on the server: {four}"
        name = client.code if client else "client-bound"
        return Diagnosis("client-bound", text, name, "more client processes, a larger connection pool")
    if below is not None:
        fix = "state the batch as what ran, or compare the four numbers over time to find what holds the others"
        return Diagnosis("unclear", below.text, below.code, fix)
    return _healthy(load, four)


def _not_admitted(trial: Trial, load: Account, context: Context, four: str) -> Diagnosis:
    """A queue before a server with room: its scheduler's doing, or a cap that it does not tell the truth about."""
    code, flat = batch_cap(trial, context), flat_at(trial, load)
    if flat is None:
        fix = "look at how many tokens its scheduler may work on in one step"
        return _by_code("admission-bound", code, four, fix)
    fix = f"look for a limit of {flat:g} in its flags, its log or a proxy before it, or state the batch as {flat:g}"
    return _by_code("hidden cap", code, four, fix)


def _hung(code: Code) -> Diagnosis:
    fix = "look into the server's log for these requests, and restart it: they hold their clients and never end"
    return Diagnosis("hung", code.text, code.code, fix)


def _healthy(load: Account, four: str) -> Diagnosis:
    """The server ran what was offered and no more, within the error of its samples."""
    little, ran, held = load.little or 0.0, load.ran, load.on_server
    if ran is not None and held is not None:
        full = little >= CLIENT_FULL * load.offered
        seen = held.at_most(HEALTHY_ERRORS) >= HEALTHY_HELD_SHARE * little
        enough = ran.at_most(HEALTHY_ERRORS) >= HEALTHY_RUNNING_SHARE * load.offered
        ours = ran.at_most(-HEALTHY_ERRORS) <= max(HEALTHY_RUNNING_MOST * little, little + HEALTHY_RUNNING_MORE)
        if full and seen and enough and ours:
            return Diagnosis("healthy", f"the server ran what was offered: {four}")
    return Diagnosis("unclear", f"no single cause stands out: {four}", None, "compare the four numbers over time")


def _open(trial: Trial, load: Account, context: Context) -> Diagnosis:
    client = trial.client
    due, issued = client["due_in_window"] or 0, client["issued_in_window"] or 0
    waited_ms, life_ms = client["wait_for_slot_mean_ms"], client["e2e_mean_ms"]
    grows = (client["in_flight_trend_pct"] or 0.0) > 0
    slots = waited_ms is not None and life_ms is not None and waited_ms > SLOT_WAIT_SHARE * life_ms
    said = f"{due} requests fell due, {issued} were sent, {_four(load)}"
    silent = hung(trial, context)
    if silent is not None:
        return _hung(silent)
    if lost(trial, load):
        fix = "look at the connection pool, a proxy, the tokenizer front end"
        return Diagnosis("lost on the way", f"the server saw less: {said}", "client-inflight-illusion", fix)
    bound = client_bound(trial, context)
    if bound is not None:
        return Diagnosis("client-bound", bound.text, bound.code, "more client processes")
    if grows or slots or issued < RATE_SHORT * due:
        code = "no-steady-window" if grows else "coordinated-omission"
        text = f"the server does not keep up with the rate, and requests pile up: {said}"
        return Diagnosis("backlog", text, code, "a lower rate; latencies have no steady value at this one")
    return Diagnosis("healthy", f"the server kept up with the rate: {said}")


def _by_code(name: str, code: Code | None, four: str, fix: str) -> Diagnosis:
    return Diagnosis(name, code.text if code else four, code.code if code else None, fix)


def _four(load: Account) -> str:
    def show(value: float | None) -> str:
        return "unknown" if value is None else f"{value:.1f}"

    cap = "unknown" if load.cap is None else f"{load.cap:g}"
    return (
        f"offered {load.offered:g}, in flight {show(load.little)}, running {show(load.running)}, "
        f"waiting {show(load.waiting)}, cap {cap}"
    )
