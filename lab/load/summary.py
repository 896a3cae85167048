"""From the table of requests and the timeline to the figures of one trial: pure arithmetic.

Without one place for it, every reader of the tables would choose another window, another share of the
straddling requests and another treatment of what is missing, and no two figures could be set against each
other.

A token counts where its chunk arrived: inside [opened, closed) or not. Requests are never cut: those that
straddle an end of the window give it the tokens that fall inside. Latencies are those of the requests issued in the
window, with their whole life. Missing is None.

The tables hold real seconds; every duration and rate here is in server seconds (real ones times `time_factor`),
except CPU times and shares.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from lab.load.figures_batch import fitted
from lab.load.figures_chunks import Chunks
from lab.load.figures_goodput import goodput_rps
from lab.load.figures_latency import latencies, tpot_trend
from lab.load.figures_requests import Requests, counts, flow, measured_lengths, shares_of_window
from lab.load.figures_server import Samples, server_figures
from lab.load.figures_silence import silences
from lab.load.figures_uncounted import scaled
from lab.load.record_columns import total
from lab.load.steady import steadiness
from lab.observe.machine_section import machine_section

if TYPE_CHECKING:
    import pandas as pd

CLOSED = "closed"
TOKENS_PER_STEP = "tokens-per-step"


def summarise(
    requests: pd.DataFrame,
    timeline: pd.DataFrame,
    *,
    opened_s: float,
    closed_s: float,
    concurrency: int,
    output_tokens: int | None,
    delta: dict[str, float],
    arrivals: str = CLOSED,
    rate_rps: float | None = None,
    live_counters: Collection[str] = frozenset(),
    time_factor: float = 1.0,
    min_steady_seconds: float = 0.0,
    ignore_eos: bool = False,
    ranks: int | None = None,
    slo: Mapping[str, float] | None = None,
) -> dict[str, dict[str, Any]]:
    """The sections `window`, `client`, `server`, `machine`, `metrics` and `steady` of a trial record, as far as they
    follow from the tables.

    `requests` and `timeline` as in requests.parquet and timeline.parquet; `opened_s`, `closed_s` real monotonic
    seconds; `concurrency` clients, or client slots of an open loop; `output_tokens` the cap that a full request asks
    for, None where each brings its own; `delta` the server's counters, just after the last response minus just before
    the first send; `live_counters` those that move while requests run; `rate_rps` and `min_steady_seconds` in server
    seconds; `ignore_eos` whether answers were asked to have exactly their cap; `ranks` data-parallel ranks; `slo`
    the limits that a good request keeps, see `goodput_rps`. Raises ValueError for chunks without token counts.
    """
    seconds = (closed_s - opened_s) * time_factor
    sent = Requests(scaled(requests), opened_s, seconds, time_factor)
    chunks = Chunks(sent.table, opened_s, seconds, time_factor)
    samples = Samples(timeline, opened_s, seconds, time_factor)
    bins_tok_s = chunks.bins_tok_s()
    flowing = flow(sent, concurrency, arrivals, rate_rps)
    level = concurrency if arrivals == CLOSED else max(1, math.ceil(flowing["littles_law"]))
    times = latencies(sent, chunks, level)
    client = {
        **flowing,
        **counts(sent, chunks, output_tokens, ignore_eos),
        **measured_lengths(sent, output_tokens),
        **shares_of_window(sent),
        **silences(sent, chunks, samples, times["chunk_gap_p50_ms"]),
        "window_tokens": chunks.window_tokens,
        "bins_tok_s": [float(value) for value in bins_tok_s],
    }
    server = server_figures(
        samples,
        sent.flight,
        delta=delta,
        live_counters=live_counters,
        window_tokens=chunks.window_tokens,
        ranks=ranks,
    )
    server |= fitted(samples, chunks)
    delta, window_delta = server["delta"], server["window_delta"]
    rate = chunks.window_tokens / seconds if chunks.window_tokens else None
    return {
        "window": {
            "started_s": float(sent.table.sent_s.min()) if len(sent.table) else None,
            "drained_s": float(sent.table.end_s.max()) if len(sent.table) else None,
        },
        "client": client,
        "server": server,
        "machine": machine_section(timeline, opened_s, closed_s),
        "metrics": {
            "output_tok_s": rate,
            "tok_s_per_user": rate / level if rate is not None else None,
            **times,
            "request_rps": client["completed_in_window"] / seconds,
            "goodput_rps": goodput_rps(sent, slo, arrivals == CLOSED),
            **_acceptance(sent.table, delta, window_delta),
            "mean_context_tokens": chunks.mean_context(),
            "prefix_hit_share": _prefix_hits(client, delta, window_delta),
        },
        "steady": {
            **steadiness(bins_tok_s, seconds, min_steady_seconds, chunks.burst_share()).record(),
            **tpot_trend(sent, level),
        },
    }


def counter_delta(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """Growth of the counters; one that fell was reset in between and is left out.

    Some counters have no value before their first event: one that a server with others gained in between began at 0.
    """
    grown = {name: value - before.get(name, 0.0) for name, value in after.items()} if before else {}
    return {name: value for name, value in grown.items() if value >= 0}


def _acceptance(
    requests: pd.DataFrame, delta: dict[str, float], window_delta: dict[str, float]
) -> dict[str, float | str | None]:
    """Accepted share of the drafted tokens, and tokens a verification step: 1 + accepted / steps.

    From the server's counters in the window, else over the whole trial, else from the requests' own account; None when
    nothing was drafted. A server that counts steps and no drafted tokens (SGLang) leaves the share unknown, see
    `_tokens_per_step`.
    """
    names = ("draft_tokens", "draft_accepted")
    counters = next((source for source in (window_delta, delta) if all(name in source for name in names)), None)
    if counters is not None:
        drafted, accepted, steps = (counters.get(name) for name in (*names, "drafts"))
    else:
        (drafted, accepted), steps = (total(requests, name) for name in names), None
    if not drafted or accepted is None:
        length = _tokens_per_step(delta)
        return {"acceptance": None, "acceptance_length": length, "acceptance_source": length and TOKENS_PER_STEP}
    return {
        "acceptance": accepted / drafted,
        "acceptance_length": 1 + accepted / steps if steps else None,
        "acceptance_source": "requests" if counters is None else "counters",
    }


def _tokens_per_step(delta: dict[str, float]) -> float | None:
    """Tokens a verification step over the whole trial, where the counters of finished requests tell: the first token of
    each comes from its prefill."""
    tokens, requests, steps = (delta.get(n) for n in ("output_tokens_finished", "requests_finished", "drafts"))
    return (tokens - requests) / steps if steps and tokens is not None and requests is not None else None


def _prefix_hits(client: dict[str, Any], delta: dict[str, float], window_delta: dict[str, float]) -> float | None:
    """Share of the looked-up prompt tokens that a prefix cache held, in the window or else over the whole trial; from
    cached and computed prompt tokens where the server counts no look-ups; from its answers where it counts neither."""
    for counters in (window_delta, delta):
        hits, queries = counters.get("prefix_hits"), counters.get("prefix_queries")
        if hits is not None and queries:
            return hits / queries
    cached, computed = delta.get("cached_tokens"), delta.get("prompt_tokens")
    if cached is not None and computed is not None and cached + computed:
        return cached / (cached + computed)
    return client["cached_share"]
