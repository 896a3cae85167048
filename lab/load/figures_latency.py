"""Latencies of the window's requests.

Without one rule for membership the slow requests drop out at the end of the window, and a server that lets some of
them wait for ever looks quick.

The set: requests issued in the window, with their whole life. Those that ended in an error are left out (their share
is told by failed-requests). One that was aborted at the end of the drain stays: its first token and its pace were
seen, or are known to be later than everything seen; its end is later than every end. So a quantile is exact where it
falls on a request that ended, and missing where it does not.
"""

from __future__ import annotations

import math

import numpy as np

from lab.load.figures_chunks import Chunks
from lab.load.figures_requests import Requests
from lab.load.steady import trend

REQUESTS_PER_CLIENT = 5
REQUESTS_FOR_P99 = 100
TPOT_BINS_AT_LEAST, TPOT_BINS_AT_MOST = 8, 30


def latencies(requests: Requests, chunks: Chunks, level: int) -> dict[str, float | int | None]:
    """Quantiles in milliseconds; missing below five requests for each of `level` in flight (contract, section 2), and
    p99 below a hundred."""
    observed = requests.issued & (requests.complete | requests.aborted)
    aborted = requests.aborted[observed]
    enough = REQUESTS_PER_CLIENT * level
    ttft_s = (requests.first_token_s - requests.sent_s)[observed]
    ttft_s[aborted & np.isnan(ttft_s)] = np.inf
    tpot_s = requests.decode_s()[observed]
    tpot_s[aborted & np.isnan(tpot_s)] = np.inf
    ended_s = np.where(requests.aborted, np.inf, requests.end_s)
    columns = {
        "ttft": ttft_s,
        "tpot": tpot_s,
        "e2e": (ended_s - requests.sent_s)[observed],
        "queue_e2e": _from_due_s(requests, ended_s),
    }
    found: dict[str, float | int | None] = {}
    for name, values_s in columns.items():
        found[f"{name}_p50_ms"] = quantile_ms(values_s, 0.5, enough)
        found[f"{name}_p99_ms"] = quantile_ms(values_s, 0.99, max(enough, REQUESTS_FOR_P99))
    del found["queue_e2e_p99_ms"]
    gaps_s = chunks.gaps_s()
    return {
        **found,
        "chunk_gap_p50_ms": quantile_ms(gaps_s, 0.5, 1),
        "chunk_gap_p99_ms": quantile_ms(gaps_s, 0.99, REQUESTS_FOR_P99),
        "requests_in_window": int(observed.sum()),
    }


def _from_due_s(requests: Requests, ended_s: np.ndarray) -> np.ndarray:
    """From when a request was due to its end, over those due in the window; one that was never sent has no end."""
    counted = requests.complete | requests.aborted
    due = counted & (requests.due_s >= 0) & (requests.due_s < requests.seconds)
    never = requests.never_sent_due_s
    unsent = ((never >= 0) & (never < requests.seconds)).sum()
    return np.concatenate([(ended_s - requests.due_s)[due], np.full(unsent, np.inf)])


def tpot_trend(requests: Requests, level: int) -> dict[str, float | int | bool | None]:
    """Does the time per token move over the window's requests? Bins in order of sending, each of at least one request
    for each of `level` in flight (one turnover), eight bins at least; None with fewer requests."""
    chosen = requests.issued & requests.complete
    decode_s = requests.decode_s()[chosen][np.argsort(requests.sent_s[chosen], kind="stable")]
    decode_s = decode_s[decode_s > 0]
    bins = min(TPOT_BINS_AT_MOST, len(decode_s) // max(1, level))
    if bins < TPOT_BINS_AT_LEAST:
        return {
            "tpot_bins": bins,
            "tpot_drifts": None,
            "tpot_trend_pct": None,
            "tpot_p_value": None,
            "tpot_cv_pct": None,
        }
    medians = np.array([np.median(part) for part in np.array_split(decode_s, bins)])
    moved = trend(medians)
    return {
        "tpot_bins": bins,
        "tpot_drifts": moved.moves,
        "tpot_trend_pct": moved.change_pct,
        "tpot_p_value": moved.p_value,
        "tpot_cv_pct": 100 * float(medians.std(ddof=1) / medians.mean()),
    }


def quantile_ms(values_s: np.ndarray, share: float, at_least: int) -> float | None:
    """A quantile of the known values in milliseconds, interpolated between neighbours.

    None with fewer than `at_least`, and where it touches a value that is only known to be larger (infinite). Zero is
    never a time, so it is missing too.
    """
    known = values_s[values_s > 0]
    if len(known) < at_least or not len(known):
        return None
    position = share * (len(known) - 1)
    below, above = math.floor(position), math.ceil(position)
    low, high = np.partition(known, (below, above))[[below, above]]
    return None if np.isinf(high) else float(1000 * (low + (high - low) * (position - below)))
