"""The vectorised figures against a slow and obvious implementation, and what must hold for every table."""

from __future__ import annotations

import math
import statistics
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.load.figures_flight import Flight
from lab.load.figures_server import Samples
from tests.load.tables import CLOSED, OPENED, request, summary, timeline

SECONDS = CLOSED - OPENED


@st.composite
def closed_loop(draw: st.DrawFn) -> tuple[int, list[dict]]:
    """Clients that each send one request after the other, some of which fail."""
    concurrency = draw(st.integers(1, 4))
    rows = []
    for client in range(concurrency):
        now = draw(st.floats(90, 101))
        for _ in range(draw(st.integers(1, 6))):
            due = now
            now += draw(st.sampled_from([0.0, 0.125, 1.0]))
            sent, chunks = now, []
            for _ in range(draw(st.integers(0, 5))):
                now += draw(st.floats(0, 2))
                chunks.append((now, draw(st.integers(1, 4))))
            now += draw(st.floats(0.001, 2))
            error = draw(st.sampled_from([None, None, "aborted", "disconnected"])) if chunks else "empty"
            first = chunks[0][0] if chunks else None
            known = draw(st.booleans())
            rows.append(
                request(
                    sent, first, chunks, now, client=client, error=error, due_s=due, prompt_tokens=7 if known else None
                )
            )
    return concurrency, rows


def slow(rows: list[dict], concurrency: int) -> dict[str, Any]:
    """The figures as one would compute them by hand."""
    arrivals = [
        (t, n, row, i) for row in rows for i, (t, n) in enumerate(zip(row["chunk_s"], row["chunk_tokens"], strict=True))
    ]
    inside = [entry for entry in arrivals if OPENED <= entry[0] < CLOSED]
    tokens = sum(n for _, n, _, _ in inside)
    known = [(n, row["prompt_tokens"] + sum(row["chunk_tokens"][: i + 1])) for _, n, row, i in inside
             if row["prompt_tokens"] is not None]  # fmt: skip
    issued = [row for row in rows if OPENED <= row["sent_s"] < CLOSED and row["error"] in (None, "aborted")]
    ends = [math.inf if row["error"] else row["end_s"] - row["sent_s"] for row in issued]
    tpot = [
        (row["end_s"] - row["first_token_s"]) / later
        for row in issued
        if (later := sum(row["chunk_tokens"]) - row["first_chunk_tokens"]) > 0
    ]
    gaps = [t - row["chunk_s"][i - 1] for t, _, row, i in inside if i > 0 and t > row["chunk_s"][i - 1]]
    return {
        "window_tokens": tokens,
        "output_tok_s": tokens / SECONDS if tokens else None,
        "littles_law": sum(max(0.0, min(row["end_s"], CLOSED) - max(row["sent_s"], OPENED)) for row in rows) / SECONDS,
        "mean_context_tokens": sum(n * c for n, c in known) / sum(n for n, _ in known) if known else None,
        "e2e_p50_ms": median_ms(ends, 5 * concurrency),
        "ttft_p50_ms": median_ms([row["first_token_s"] - row["sent_s"] for row in issued], 5 * concurrency),
        "tpot_p50_ms": median_ms(tpot, 5 * concurrency),
        "chunk_gap_p50_ms": median_ms(gaps, 1),
        "completed_in_window": sum(row["error"] is None and OPENED <= row["end_s"] < CLOSED for row in rows),
        "requests_in_window": len(issued),
        "peak_in_flight": max(
            sum(other["sent_s"] <= row["sent_s"] < other["end_s"] for other in rows) for row in rows
        ),
        "late": sum(max(0, row["chunk_tokens"][-1] - max(row["chunk_tokens"][:-1])) for row in rows
                    if len(row["chunk_tokens"]) > 1),
    }  # fmt: skip


def median_ms(values: list[float], at_least: int) -> float | None:
    values = [value for value in values if value > 0]
    middle = statistics.median(values) if len(values) >= max(1, at_least) else math.inf
    return None if math.isinf(middle) else 1000 * middle


@given(closed_loop())
@settings(deadline=None)
def test_the_fast_figures_are_the_obvious_ones(load: tuple[int, list[dict]]):
    concurrency, rows = load
    measured, expected = summary(rows, concurrency=concurrency), slow(rows, concurrency)
    late = expected.pop("late")
    figures = {**measured["client"], **measured["metrics"]}
    for name, value in expected.items():
        # Subtracting the opening first moves a time by a rounding error, which is all of a gap of that size.
        assert figures[name] == (None if value is None else pytest.approx(value, rel=1e-6, abs=1e-6)), name
    share = figures["late_tokens_share"]
    assert share == (pytest.approx(late / figures["output_tokens"]) if figures["output_tokens"] else None)


@given(closed_loop())
@settings(deadline=None)
def test_a_window_never_holds_more_than_there_is(load: tuple[int, list[dict]]):
    concurrency, rows = load
    measured = summary(rows, concurrency=concurrency)
    client = measured["client"]
    assert 0 <= client["window_tokens"] <= client["output_tokens"]
    assert 0 <= client["littles_law"] <= concurrency + 1e-9
    assert 0 <= client["full_share"] <= 1 + 1e-9
    assert client["peak_in_flight"] <= concurrency
    assert len(client["bins_tok_s"]) >= 8
    assert sum(client["bins_tok_s"]) * SECONDS / len(client["bins_tok_s"]) == pytest.approx(client["window_tokens"])
    assert client["completed"] + client["failed"] + client["aborted"] == client["sent"]


@given(closed_loop(), st.floats(-1e6, 1e6))
@settings(deadline=None, max_examples=50)
def test_shifted_times_give_the_same_figures(load: tuple[int, list[dict]], shift: float):
    concurrency, rows = load
    times = ("due_s", "sent_s", "first_event_s", "first_token_s", "end_s")
    moved = [
        row
        | {name: row[name] + shift if row[name] is not None else None for name in times}
        | {"chunk_s": [t + shift for t in row["chunk_s"]]}
        for row in rows
    ]
    before = summary(rows, concurrency=concurrency)
    after = summary(moved, concurrency=concurrency, opened_s=OPENED + shift, closed_s=CLOSED + shift)
    near_an_edge = any(abs(t - edge) < 1e-6 for row in rows for edge in (OPENED, CLOSED)
                       for t in [row["sent_s"], row["end_s"], *row["chunk_s"]])  # fmt: skip
    if not near_an_edge:
        assert after["client"]["window_tokens"] == before["client"]["window_tokens"]
        assert after["client"]["littles_law"] == pytest.approx(before["client"]["littles_law"], abs=1e-6)
        assert after["metrics"]["requests_in_window"] == before["metrics"]["requests_in_window"]


@given(closed_loop())
@settings(deadline=None)
def test_counting_double_doubles_the_tokens_and_moves_nothing_else(load: tuple[int, list[dict]]):
    concurrency, rows = load
    doubled = [row | {"chunk_tokens": [2 * n for n in row["chunk_tokens"]]} for row in rows]
    once, twice = summary(rows, concurrency=concurrency), summary(doubled, concurrency=concurrency)
    assert twice["client"]["window_tokens"] == 2 * once["client"]["window_tokens"]
    assert twice["client"]["littles_law"] == once["client"]["littles_law"]
    assert twice["steady"]["outcome"] == once["steady"]["outcome"]
    assert twice["steady"]["p_value"] == once["steady"]["p_value"]


LIVES = st.lists(st.tuples(st.floats(0, 20), st.floats(0.01, 5)), min_size=1, max_size=12)


@given(LIVES, st.floats(0, 25))
@settings(deadline=None)
def test_flight_counts_what_an_obvious_count_counts(lives: list[tuple[float, float]], at: float):
    sent = pd.Series([start for start, _ in lives])
    end = pd.Series([start + length for start, length in lives])
    flight = Flight(sent.to_numpy(), end.to_numpy())
    assert flight.at(at) == sum(a <= at < b for a, b in zip(sent, end, strict=True))
    most = max(sum(a <= t < b for a, b in zip(sent, end, strict=True)) for t in [at, *(t for t in sent if t > at)])
    assert flight.most_between(at, 100.0) == most
    grid = [(i + 0.5) / 1000 * 25 for i in range(1000)]
    level = 2
    share = sum(sum(a <= t < b for a, b in zip(sent, end, strict=True)) >= level for t in grid) / 1000
    assert flight.share_at_least(level, 0.0, 25.0) == pytest.approx(share, abs=0.03)
    assert flight.bins(0.0, 25.0, 5).mean() == pytest.approx(flight.mean(0.0, 25.0))


SAMPLES = st.lists(st.tuples(st.floats(90, 120), st.none() | st.floats(0, 9)), min_size=1, max_size=20)


@given(SAMPLES.map(lambda rows: sorted(rows, key=lambda row: row[0])))
@settings(deadline=None)
def test_a_time_weighted_mean_lies_between_the_extremes(rows: list[tuple[float, float | None]]):
    samples = Samples(timeline(*((t, value, 0) for t, value in rows)), OPENED, SECONDS, 1.0)
    values = pd.Series([value for _, value in rows], dtype="float64")
    mean = samples.mean("running")
    assert mean is None or values.min() - 1e-9 <= mean <= values.max() + 1e-9
    assert mean is not None or values.isna().any()
    high = samples.quantile("running", 0.95)
    assert (high is None) == (mean is None)
    assert high is None or high in set(values.dropna())
