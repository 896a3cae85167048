"""From the table of requests and the timeline to the figures of one trial: pure arithmetic.

Without one place for it, every reader of the tables would choose another window, another share of the
straddling requests and another treatment of what is missing, and no two figures could be set against each
other.

A token counts where its chunk arrived: inside [opened, closed) or not. Requests are never cut: those that
straddle an end of the window give it the tokens that fall inside. Missing is None.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

BINS_AT_LEAST = 8
BIN_SECONDS = 5
REQUESTS_PER_CLIENT = 5
REQUESTS_FOR_P99 = 100


def summarise(
    requests: pd.DataFrame,
    timeline: pd.DataFrame,
    *,
    opened_s: float,
    closed_s: float,
    concurrency: int,
    output_tokens: int,
    delta: dict[str, float],
) -> dict[str, dict[str, Any]]:
    """The sections `client`, `server` and `metrics` of a trial record, as far as they follow from the tables.

    `requests` and `timeline` as in requests.parquet and timeline.parquet; `output_tokens` is the cap that a
    full request asks for; `delta` the server's counters, just after the last response minus just before the
    first send.
    """
    seconds = closed_s - opened_s
    tokens = emitted(requests)
    inside = tokens[(tokens.t_s >= opened_s) & (tokens.t_s < closed_s)]
    window_tokens = int(inside.tokens.sum())
    cpu_seconds = _cpu_seconds(timeline, opened_s, closed_s)
    span = timeline[(timeline.t_s >= opened_s) & (timeline.t_s < closed_s)]
    return {
        "client": {
            "offered": concurrency,
            "littles_law": littles_law(requests, opened_s, closed_s),
            **_counts(requests),
            "window_tokens": window_tokens,
            "bins_tok_s": bins_tok_s(inside, opened_s, closed_s),
        },
        "server": {
            "running": time_mean(timeline.t_s, timeline.running, opened_s, closed_s),
            "waiting": time_mean(timeline.t_s, timeline.waiting, opened_s, closed_s),
            "running_max": _max(span.running),
            "waiting_max": _max(span.waiting),
            "samples": int(span.running.notna().sum()),
            "kv_usage_max": _max(span.kv_usage),
            "delta": delta,
            "cpu_seconds": cpu_seconds,
            "cores": None if cpu_seconds is None else cpu_seconds / seconds,
            "cpu_ms_per_token": 1000 * cpu_seconds / window_tokens if cpu_seconds and window_tokens else None,
            "load_1m": time_mean(timeline.t_s, timeline.load_1m, opened_s, closed_s),
            "machine_cpu_pct": time_mean(timeline.t_s, timeline.machine_cpu_pct, opened_s, closed_s),
        },
        "metrics": {
            "output_tok_s": window_tokens / seconds,
            "tok_s_per_user": window_tokens / seconds / concurrency,
            **_latencies(requests, opened_s, closed_s, concurrency, output_tokens),
            "acceptance": _acceptance(requests, delta),
            "mean_context_tokens": _mean_context(inside),
        },
    }


def emitted(requests: pd.DataFrame) -> pd.DataFrame:
    """Every arrival of tokens, in order of request: t_s, tokens, and context (the prompt and answer up to and
    including it)."""
    arrivals = requests[["chunk_s", "chunk_tokens", "prompt_tokens"]].explode(["chunk_s", "chunk_tokens"])
    arrivals = arrivals.dropna(subset=["chunk_s"])
    counts = arrivals.chunk_tokens.astype("int64")
    context = counts.groupby(level=0).cumsum() + arrivals.prompt_tokens.astype("float64")
    return pd.DataFrame({"t_s": arrivals.chunk_s.astype("float64"), "tokens": counts, "context": context})


def littles_law(requests: pd.DataFrame, opened_s: float, closed_s: float) -> float:
    """Mean number of requests in flight in the window, by the client's account, failed ones included."""
    starts, ends = requests.sent_s.clip(lower=opened_s), requests.end_s.clip(upper=closed_s)
    return float((ends - starts).clip(lower=0).sum() / (closed_s - opened_s))


def bins_tok_s(inside: pd.DataFrame, opened_s: float, closed_s: float) -> list[float]:
    """Tokens per second in equal time bins of the window: at least eight, about one for each five seconds."""
    seconds = closed_s - opened_s
    count = max(BINS_AT_LEAST, round(seconds / BIN_SECONDS))
    index = ((inside.t_s - opened_s) / seconds * count).astype("int64").clip(0, count - 1)
    sums = np.bincount(index, weights=inside.tokens, minlength=count)
    return [float(total) for total in sums * count / seconds]


def time_mean(t_s: pd.Series, values: pd.Series, opened_s: float, closed_s: float) -> float | None:
    """Mean over the window, each sample standing for the time that is nearest to it; None when no sample
    stands for any.

    A missing value stands for its time too: that time is left out, not given to its neighbours.
    """
    if len(t_s) == 0:
        return None
    times = t_s.to_numpy()
    edges = np.concatenate([[-np.inf], (times[1:] + times[:-1]) / 2, [np.inf]]).clip(opened_s, closed_s)
    weights = np.where(values.notna(), np.diff(edges), 0.0)
    total = weights.sum()
    return float((weights * values.fillna(0)).sum() / total) if total > 0 else None


def counter_delta(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """Growth of the counters known at both ends; one that fell was reset in between and is left out."""
    return {name: after[name] - value for name, value in before.items() if after.get(name, -np.inf) >= value}


def _counts(requests: pd.DataFrame) -> dict[str, Any]:
    complete = requests.error.isna()
    aborted = requests.error == "aborted"
    failed = requests[~complete & ~aborted]
    sources = sorted(set(requests.tokens_source[complete]))
    return {
        "sent": len(requests),
        "completed": int(complete.sum()),
        "failed": len(failed),
        "aborted": int(aborted.sum()),
        "errors": {kind: int(count) for kind, count in failed.error.value_counts().sort_index().items()},
        "error_text": failed.error_text.iloc[0] if len(failed) else None,
        "prompt_tokens": _sum(requests.prompt_tokens),
        "cached_tokens": _sum(requests.cached_tokens),
        "output_tokens": int(requests.output_tokens.sum()),
        "tokens_source": " + ".join(sources) or None,
        "prompts_reused": int(requests.prompt.duplicated().sum()),
    }


def _latencies(
    requests: pd.DataFrame, opened_s: float, closed_s: float, concurrency: int, output_tokens: int
) -> dict[str, Any]:
    """Quantiles over the complete, full-length requests that ended inside the window; missing when these are
    too few."""
    ended = requests[(requests.end_s >= opened_s) & (requests.end_s < closed_s) & requests.error.isna()]
    full = ended[ended.max_tokens == output_tokens]
    early = pd.Series(
        [
            sum(count for t, count in zip(row.chunk_s, row.chunk_tokens, strict=True) if t <= row.first_token_s)
            for row in full.itertuples()
        ],
        index=full.index,
        dtype="float64",
    )
    gaps = full.output_tokens - early
    ttft_ms = 1000 * (full.first_token_s - full.sent_s)
    tpot_ms = 1000 * ((full.end_s - full.first_token_s) / gaps).where(gaps > 0)
    enough = REQUESTS_PER_CLIENT * concurrency
    return {
        "ttft_p50_ms": _quantile(ttft_ms, 0.5, enough),
        "ttft_p99_ms": _quantile(ttft_ms, 0.99, max(enough, REQUESTS_FOR_P99)),
        "tpot_p50_ms": _quantile(tpot_ms, 0.5, enough),
        "e2e_p50_ms": _quantile(1000 * (full.end_s - full.sent_s), 0.5, enough),
        "requests_in_window": len(ended),
    }


def _acceptance(requests: pd.DataFrame, delta: dict[str, float]) -> float | None:
    """Accepted share of the drafted tokens: the server's counters, else the requests' own; None when nothing
    was drafted."""
    drafted, accepted = delta.get("draft_tokens"), delta.get("draft_accepted")
    if drafted is None or accepted is None:
        drafted, accepted = _sum(requests.draft_tokens), _sum(requests.draft_accepted)
    return accepted / drafted if drafted and accepted is not None else None


def _mean_context(inside: pd.DataFrame) -> float | None:
    """Mean context length in tokens at which the window's tokens were emitted; None when prompt lengths are unknown."""
    known = inside.dropna(subset=["context"])
    total = known.tokens.sum()
    return float((known.context * known.tokens).sum() / total) if total else None


def _cpu_seconds(timeline: pd.DataFrame, opened_s: float, closed_s: float) -> float | None:
    """The server's CPU seconds in the window, interpolated; None unless the readings reach around it."""
    known = timeline.dropna(subset=["server_cpu_s"])
    if known.empty or known.t_s.iloc[0] > opened_s or known.t_s.iloc[-1] < closed_s:
        return None
    at_open, at_close = np.interp([opened_s, closed_s], known.t_s, known.server_cpu_s)
    return float(at_close - at_open)


def _max(values: pd.Series) -> float | None:
    return float(values.max()) if values.notna().any() else None


def _sum(values: pd.Series) -> int | None:
    return int(values.sum()) if values.notna().any() else None


def _quantile(values: pd.Series, share: float, at_least: int) -> float | None:
    known = values.dropna()
    return float(known.quantile(share)) if len(known) >= at_least else None
