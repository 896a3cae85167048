"""What `lab check` says to a person: asked, ran, waited, why, and what to do about it.

Without one careful page the figure that matters, the batch that really ran, drowns in those that every benchmark
prints.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lab.audit import INVALID
from lab.load.figures_latency import REQUESTS_FOR_P99, REQUESTS_PER_CLIENT
from lab.report.page import WIDTH, Page, number, tok_s
from lab.report.words import MISSING, percent

if TYPE_CHECKING:
    from lab.check import Checked
    from lab.check_bound import CheckBound

SECONDS_MARGIN, SECONDS_STEP = 1.1, 10
"""A longer window that is advised: a little more than the rate asks for, in round numbers."""
SEVERAL_TOKENS = 1.05
"""Tokens a chunk from which chunks are more than single tokens."""
RATE_STANDS = ("batch-cap", "kv-bound")
"""Codes that make the concurrency untrue, and not the tokens a second of what ran."""
FOREIGN, NOT_BELIEVED = "foreign-traffic", "not to be believed"
NOT_A_RESULT = "findings (invalid: do not quote the figures above as a result at this concurrency)"


def render(checked: Checked, width: int = WIDTH) -> str:
    """The whole page, for a terminal of that many columns, at most a hundred; ends with a line break."""
    page = Page(width)
    trial, facts = checked.trial, checked.trial.launch.effective
    page.title([f"{checked.engine} {checked.version or ''}".rstrip(), checked.model, checked.server_url])
    page.blank()
    page.wrapped("", "   ".join(_account(checked)))
    if facts.get("cap_source"):
        page.entry("cap" if facts.get("cap") is None else "cap set by", facts["cap_source"])
    page.entry("diagnosis", f"{checked.diagnosis.name}: {checked.diagnosis.text}")
    if checked.diagnosis.fix:
        page.entry("to do", checked.diagnosis.fix)
    page.blank()
    page.entry("output", _output(checked))
    if checked.bound is not None:
        page.entry("bound", _bound(checked.bound, trial))
    ttft, tpot = _latency(checked, "ttft"), _latency(checked, "tpot")
    for label, text in [("TTFT, TPOT", ttft)] if ttft == tpot else [("TTFT", ttft), ("TPOT", tpot)]:
        page.entry(label, text)
    page.entry("cache", _cache(trial))
    page.entry("drafts", _drafts(trial))
    findings = [code for code in checked.codes if code.code != checked.diagnosis.code]
    if findings:
        page.blank()
        page.wrapped("", NOT_A_RESULT if any(code.severity == INVALID for code in findings) else "findings")
        for code in findings:
            page.wrapped(f"  {code.severity:<8} ", f"{code.code}: {code.text}")
    if checked.missing:
        page.blank()
        for text in checked.missing:
            page.entry("unseen", text)
    page.blank()
    client = trial.client
    page.wrapped(
        "",
        f"{client['sent']} requests sent, {client['failed']} failed; {trial.window['seconds']:g} s window, "
        f"{checked.seconds:.0f} s in all; nothing was written or restarted",
    )
    return page.text()


def _account(checked: Checked) -> list[str]:
    trial = checked.trial
    cap = trial.launch.effective.get("cap")
    return [
        f"asked {trial.concurrency}",
        f"ran {number(trial.server['running'])}",
        f"waited {number(checked.waited)}",
        f"cap {MISSING if cap is None else f'{cap:g}'}",
        f"in flight at the client {number(trial.client['littles_law'])}",
    ]


def _output(checked: Checked) -> str:
    trial = checked.trial
    rate, ran, ours = trial.metrics["output_tok_s"], trial.server["running"], trial.client["littles_law"]
    text = f"{number(rate)} tok/s"
    foreign = any(code.code == FOREIGN for code in checked.codes)
    if rate is not None and ran and ours and not foreign:
        text += f", {number(rate / min(ran, ours))} for each running request"
    explained = None if checked.diagnosis.name == NOT_BELIEVED else checked.diagnosis.code
    invalid = [code.code for code in checked.codes if code.severity == INVALID]
    doubts = [code for code in invalid if code != explained and code not in RATE_STANDS]
    return f"{text} ({_counted_by(trial.client['tokens_source'])}){_doubtful(doubts)}"


def _bound(bound: CheckBound, trial: Any) -> str:
    if bound.limit is None:
        return f"unknown: {bound.unknown}"
    output = trial.metrics["output_tok_s"]
    share = bound.fraction(output)
    measured = "at most" if share is None else f"{number(output)} tok/s is {percent(100 * share)} % of"
    of = "memory and collectives" if bound.limit.collectives else "memory"
    limit = f"{tok_s(bound.bound_tok_s)} tok/s ({of})"
    return f"{measured} {limit} for the batch of {number(bound.limit.batch)} that ran; {bound.taken}"


def _counted_by(source: str | None) -> str:
    if source is None:
        return "nobody counted them"
    if "chunks" in source.split(" + "):
        return "the server sends no count: taken as one token a chunk"
    return "counted by the server"


def _doubtful(codes: list[str]) -> str:
    return f"   doubtful: {', '.join(codes)}" if codes else ""


def _latency(checked: Checked, name: str) -> str:
    """Median and 99th percentile in milliseconds; why they are missing, where they are."""
    trial, metrics = checked.trial, checked.trial.metrics
    median, tail = metrics[f"{name}_p50_ms"], metrics[f"{name}_p99_ms"]
    needed = REQUESTS_PER_CLIENT * trial.concurrency
    if median is None:
        return f"{MISSING} ({_why_no_median(trial, name, needed)})"
    text = f"p50 {number(median)} ms   p99 "
    if tail is not None:
        text += f"{number(tail)} ms"
    else:
        why = _too_few(trial, max(needed, REQUESTS_FOR_P99)) or "the slowest had no end when the check ended"
        text += f"{MISSING} ({why})"
    return text + _doubtful([code.code for code in checked.codes if f"{name}_p50_ms" in code.withdraws])


def _why_no_median(trial: Any, name: str, needed: int) -> str:
    if (trial.client[f"zero_{name}_share"] or 0.0) > 0.5:
        return {
            "ttft": "the first token of most requests has no time",
            "tpot": "most answers came in one piece, so no time passed between their tokens",
        }[name]
    return _too_few(trial, needed) or "most requests had not come that far when the check ended"


def _too_few(trial: Any, needed: int) -> str | None:
    """How many requests are needed, and the window that would bring them; None where there were enough."""
    found, seconds = trial.metrics["requests_in_window"], trial.window["seconds"]
    if found >= needed:
        return None
    if not found:
        return f"no request began in the window, {needed} are needed: give it more --seconds"
    longer = math.ceil(SECONDS_MARGIN * seconds * needed / found / SECONDS_STEP) * SECONDS_STEP
    return f"{found} requests began in the window, {needed} are needed: --seconds {longer}"


def _cache(trial: Any) -> str:
    """Hits say little of a cache that the lab's prompts are made not to hit."""
    facts, use, hits = trial.launch.effective, trial.server["kv_usage_max"], trial.metrics["prefix_hit_share"]
    room = f"{facts['kv_tokens']:,.0f} tokens" if facts.get("kv_tokens") else ""
    filled = "KV use not shown" + (f" (room for {room})" if room else "")
    if use is not None:
        filled = f"KV use at most {percent(100 * use)} %" + (f" of {room}" if room else "")
    if facts.get("prefix_caching") is False:
        return f"{filled}   prefix cache off"
    known = "prefix cache on, " if facts.get("prefix_caching") else "prefix cache: "
    said = "hits not shown" if hits is None else f"{percent(100 * hits)} % hits"
    return f"{filled}   {known}{said} (the lab's prompts are all different on purpose)"


def _drafts(trial: Any) -> str:
    metrics, each = trial.metrics, trial.client["tokens_per_chunk"]
    share, length = metrics["acceptance"], metrics["acceptance_length"]
    if share is not None or length is not None:
        accepted = "" if share is None else f"{percent(100 * share)} % accepted   "
        return f"{accepted}{'' if length is None else f'{length:.2f} tokens a step'}".rstrip()
    if trial.launch.effective.get("speculative"):
        return f"{MISSING} (speculative decoding is on; the server's counters do not tell how many drafts it kept)"
    if trial.launch.effective.get("speculative") is None:
        return f"{MISSING} (the server does not show whether it decodes speculatively)"
    if each is not None and each > SEVERAL_TOKENS:
        return f"none, says the server; but a chunk carries {each:.2f} tokens (drafts, or chunks held back)"
    return "none: no speculative decoding"
