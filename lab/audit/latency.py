"""May the latencies of this trial be used?

Without these checks a median of nine requests, a p99 of a hundred and a first token of zero milliseconds stand in the
table beside figures that mean something. None of them touches the throughput, which rests on tokens, not on requests.
"""

from __future__ import annotations

import math

from lab.audit.account import account
from lab.audit.base import WARNING, Code, Context, check
from lab.audit.thresholds import (
    CUT_SHARE,
    EARLY_EVENTS_SHARE,
    REQUESTS_FEW,
    REQUESTS_MISSING,
    TAIL_REQUESTS,
    ZERO_SHARE,
)
from lab.metrics import GOODPUT
from lab.records import Trial

TTFT = ("ttft_p50_ms", "ttft_p99_ms")
TPOT = ("tpot_p50_ms", "tpot_p99_ms")
E2E = ("e2e_p50_ms", "e2e_p99_ms", "queue_e2e_p50_ms")
NAMES = {"ttft": "time to the first token", "tpot": "time per token"}
LATENCIES = (*TTFT, *TPOT, *E2E)
REQUEST_LEVEL = (*LATENCIES, GOODPUT)
"""All that rests on the times of whole requests."""
TAILS = ("ttft_p99_ms", "tpot_p99_ms", "e2e_p99_ms")


@check("too-few-requests")
def too_few_requests(trial: Trial, context: Context) -> Code | None:
    """Latencies need requests: five issued in the window for each in flight, ten to be sure of them.

    Silent under a rule that judges by none of them.
    """
    if context.metrics and not set(context.metrics) & set(LATENCIES):
        return None
    issued, load = trial.metrics["requests_in_window"], account(trial)
    level = load.offered if load.closed else max(1, math.ceil(load.little or 0.0))
    if issued >= REQUESTS_FEW * level:
        return None
    figures = {"requests": issued, "in_flight": level}
    said = f"{issued} requests were issued in the window with {level:g} in flight"
    if issued < REQUESTS_MISSING * level:
        text = (
            f"{said}: no latency without {REQUESTS_MISSING * level:g}, {REQUESTS_FEW} for each in flight are better "
            "(the throughput rests on tokens and stands)"
        )
        return Code("too-few-requests", WARNING, text, figures, withdraws=LATENCIES)
    text = f"{said}: the latencies are rough, {REQUESTS_FEW * level:g} requests would make them sure"
    return Code("too-few-requests", WARNING, text, figures)


@check("tail-undersampled")
def tail_undersampled(trial: Trial, context: Context) -> Code | None:
    """A rule's p99 of a few hundred requests is hardly more than their maximum; and requests that were cut have no end.

    At n = 1000 the 95 % interval of a p99 spans ranks 983 to 997; below 299 no sample is sure to lie above it.
    """
    metrics, client = trial.metrics, trial.client
    issued, cut = metrics["requests_in_window"], client["aborted_of_window"]
    tails = tuple(name for name in TAILS if name in context.metrics and metrics[name] is not None)
    said, withdraws = [], ()
    if tails and issued < TAIL_REQUESTS:
        said.append(f"p99 of {issued} requests decides nothing; {TAIL_REQUESTS} are needed")
        withdraws = tails
    if metrics["e2e_p50_ms"] is not None and cut > CUT_SHARE * issued:
        said.append(f"{cut} of {issued} requests of the window were cut after the drain and count as longer than all")
    if not said:
        return None
    figures = {"requests": issued, "aborted_of_window": cut}
    return Code("tail-undersampled", WARNING, "; ".join(said), figures, withdraws=withdraws)


@check("zero-is-missing")
def zero_is_missing(trial: Trial, context: Context) -> Code | None:
    """Requests without a time to the first token, or without time per token although they have several."""
    client = trial.client
    found = {"ttft": (client["zero_ttft_share"], TTFT), "tpot": (client["zero_tpot_share"], TPOT)}
    bad = {name: pair for name, pair in found.items() if pair[0] is not None and pair[0] > ZERO_SHARE}
    if not bad:
        return None
    said = " and ".join(f"{share:.1%} have no {NAMES[name]}" for name, (share, _) in bad.items())
    text = f"of the window's requests {said} (whole answer in one chunk, or a clock that stood still)"
    withdraws = tuple(metric for _, metrics in bad.values() for metric in metrics)
    if any(f"{name}_ms" in (trial.prompts.get("slo") or {}) for name in bad):
        withdraws += (GOODPUT,)
    figures = {f"zero_{name}_share": share for name, (share, _) in bad.items()}
    return Code("zero-is-missing", WARNING, text, figures, withdraws=withdraws)


@check("first-chunk-empty")
def first_chunk_empty(trial: Trial, context: Context) -> Code | None:
    """Streams open before their first token, or hide their reasoning: other tools time another first token."""
    client = trial.client
    early, reasoning = client["first_event_early_share"], client["reasoning_tokens"]
    figures = {"first_event_early_share": early, "reasoning_tokens": reasoning}
    if reasoning and not client["reasoning_seen"]:
        text = f"the server counts {reasoning} reasoning tokens and streamed none: ttft holds the time of its reasoning"
        return Code("first-chunk-empty", WARNING, text, figures)
    if early is None or early <= EARLY_EVENTS_SHARE:
        return None
    text = f"{early:.0%} of the streams open with an event without text; ttft is timed at the first text"
    return Code("first-chunk-empty", WARNING, text, figures)


@check("false-plateau")
def false_plateau(trial: Trial, context: Context) -> Code | None:
    """The time per token moves over the window's requests, so its median describes no state of the server."""
    steady = trial.steady
    if not steady["tpot_drifts"]:
        return None
    moved, chance = steady["tpot_trend_pct"], steady["tpot_p_value"]
    text = (
        f"the time per token moved by {moved:+.1f} % from the first to the last requests of the window (chance alone "
        f"does that with a probability of {chance:.2g}): its median describes no state of the server"
    )
    figures = {"tpot_trend_pct": moved, "tpot_p_value": chance, "tpot_cv_pct": steady["tpot_cv_pct"]}
    return Code("false-plateau", WARNING, text, figures, withdraws=(*TPOT, *E2E, GOODPUT))
