"""What `lab check` says to a person: asked, ran, waited, why, and what to do about it.

Without one careful page the figure that matters, the batch that really ran, drowns in those that every benchmark
prints.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from lab.report.words import MISSING, percent

if TYPE_CHECKING:
    from lab.check import Checked

WIDTH = 100
LABEL = 11


def render(checked: Checked) -> str:
    """The whole page, for a terminal of a hundred columns or more; ends with a line break."""
    trial, server, metrics = checked.trial, checked.trial.server, checked.trial.metrics
    facts, client = trial.launch.effective, trial.client
    build = f" {facts['version']}" if facts.get("version") else ""
    lines = [
        f"{checked.engine}{build} · {checked.model} · {checked.server_url}",
        "",
        *_wrapped(
            "",
            f"asked {trial.concurrency}   ran {number(server['running'])}   waited {number(server['waiting'])}   "
            f"in flight at the client {number(client['littles_law'])}   cap {_cap(facts)}",
        ),
        *_entry("diagnosis", f"{checked.diagnosis.name}: {checked.diagnosis.text}"),
        *(_entry("to do", checked.diagnosis.fix) if checked.diagnosis.fix else []),
        "",
        *_entry("output", _output(trial)),
        *_entry("TTFT", _latency(metrics, "ttft", trial)),
        *_entry("TPOT", _latency(metrics, "tpot", trial)),
        *_entry("cache", _cache(server, metrics, facts)),
        *_entry("drafts", _drafts(metrics, facts)),
    ]
    if checked.codes:
        lines += ["", "findings"]
        for code in checked.codes:
            lines += _wrapped(f"  {code.severity:<8} ", f"{code.code}: {code.text}")
    for text in checked.missing:
        lines += _wrapped("  unseen   ", text)
    window = trial.window
    lines += ["", f"{window['seconds']:g} s window, {checked.seconds:.0f} s in all; nothing was written or restarted"]
    return "\n".join(lines) + "\n"


def number(value: float | None, decimals: int = 1) -> str:
    """`1,234.5`; a dash when missing."""
    return MISSING if value is None else f"{value:,.{decimals}f}"


def _entry(label: str, text: str) -> list[str]:
    return _wrapped(f"{label:<{LABEL}}", text)


def _wrapped(head: str, text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=head, subsequent_indent=" " * len(head)) or [head.rstrip()]


def _cap(facts: dict[str, Any]) -> str:
    cap, source = facts.get("cap"), facts.get("cap_source")
    return f"{MISSING if cap is None else f'{cap:g}'}{f' ({source})' if source else ''}"


def _output(trial: Any) -> str:
    metrics, running = trial.metrics, trial.server["running"]
    text = f"{number(metrics['output_tok_s'])} tok/s"
    if running and metrics["output_tok_s"] is not None:
        text += f", {number(metrics['output_tok_s'] / running)} for each running request"
    return f"{text} (counted by {trial.client['tokens_source'] or 'nobody'})"


def _latency(metrics: dict[str, Any], name: str, trial: Any) -> str:
    """Median and 99th percentile in milliseconds; why they are missing, where they are."""
    median, tail = metrics[f"{name}_p50_ms"], metrics[f"{name}_p99_ms"]
    if median is None:
        found, needed = metrics["requests_in_window"], 5 * trial.concurrency
        return f"{MISSING} ({found} requests in the window, {needed} are needed: give it more --seconds)"
    return f"p50 {number(median)} ms" + (f"   p99 {number(tail)} ms" if tail is not None else "")


def _cache(server: dict[str, Any], metrics: dict[str, Any], facts: dict[str, Any]) -> str:
    hits, use = metrics["prefix_hit_share"], server["kv_usage_max"]
    room = facts.get("kv_tokens")
    parts = [
        f"prefix hits {MISSING if hits is None else f'{percent(100 * hits)} %'}",
        f"KV use at most {MISSING if use is None else f'{percent(100 * use)} %'}"
        + (f" of {room:,.0f} tokens" if room else ""),
    ]
    return "   ".join(parts)


def _drafts(metrics: dict[str, Any], facts: dict[str, Any]) -> str:
    if facts.get("speculative") is False:
        return "none: no speculative decoding"
    share, length = metrics["acceptance"], metrics["acceptance_length"]
    if share is None and length is None:
        return MISSING
    accepted = "" if share is None else f"{percent(100 * share)} % accepted   "
    return f"{accepted}{'' if length is None else f'{length:.2f} tokens a step'}".rstrip()
