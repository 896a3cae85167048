"""Window arithmetic: what counts, where, and what stays missing."""

from __future__ import annotations

import math

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.load.summary import counter_delta, summarise, time_mean

OPENED, CLOSED, CAP = 100.0, 108.0, 4
MACHINE = {"server_cpu_s": None, "machine_cpu_pct": None, "load_1m": None, "memory_bytes": None}


def request(sent: float, first: float | None, chunks: list[tuple[float, int]], end: float, **fields: object) -> dict:
    """A row of requests.parquet."""
    row = {
        "request": 0,
        "client": 0,
        "prompt": 0,
        "max_tokens": CAP,
        "sent_s": sent,
        "first_token_s": first,
        "end_s": end,
        "prompt_tokens": 10,
        "cached_tokens": 0,
        "output_tokens": sum(count for _, count in chunks),
        "tokens_source": "usage",
        "draft_tokens": None,
        "draft_accepted": None,
        "error": None,
        "error_text": None,
        "chunk_s": [t for t, _ in chunks],
        "chunk_tokens": [count for _, count in chunks],
    }
    return row | fields


def timeline(*rows: tuple[float, float | None, float | None], **fields: object) -> pd.DataFrame:
    """A timeline of (t_s, running, waiting)."""
    samples = [{"t_s": t, "running": r, "waiting": w, "kv_usage": None} | MACHINE | fields for t, r, w in rows]
    columns = ["t_s", "running", "waiting", "kv_usage", *MACHINE]
    return pd.DataFrame(samples, columns=columns, dtype="float64")


def summary(rows: list[dict], samples: pd.DataFrame | None = None, concurrency: int = 2, **delta: float) -> dict:
    """The sections for a window of eight seconds."""
    return summarise(
        pd.DataFrame(rows),
        timeline() if samples is None else samples,
        opened_s=OPENED,
        closed_s=CLOSED,
        concurrency=concurrency,
        output_tokens=CAP,
        delta=delta,
    )


def test_tokens_count_where_they_arrived():
    rows = [request(90, 99, [(99.0, 1), (100.0, 2), (107.999, 3), (108.0, 4)], 109)]
    measured = summary(rows)
    assert measured["client"]["window_tokens"] == 5
    assert measured["client"]["output_tokens"] == 10
    assert measured["metrics"]["output_tok_s"] == 5 / 8
    assert measured["metrics"]["tok_s_per_user"] == 5 / 16
    assert measured["client"]["bins_tok_s"] == [2, 0, 0, 0, 0, 0, 0, 3]


def test_littles_law_cuts_requests_to_the_window():
    rows = [
        request(96, 97, [(97.0, 4)], 104),
        request(104, 105, [(105.0, 4)], 200),
        request(10, 11, [(11.0, 4)], 12),
    ]
    assert summary(rows)["client"]["littles_law"] == 1.0


def test_failed_and_aborted_requests_stay_in_the_record():
    rows = [
        request(100, 101, [(101.0, 4)], 102),
        request(100, 101, [(101.0, 1)], 104, error="disconnected", error_text="cut", tokens_source="chunks"),
        request(101, None, [], 102, error="http-5xx", error_text="no", prompt_tokens=None, tokens_source="chunks"),
        request(104, 105, [(106.0, 2)], 120, error="aborted", error_text="late", tokens_source="chunks"),
    ]
    client = summary(rows)["client"]
    counts = {name: client[name] for name in ("sent", "completed", "failed", "aborted", "errors", "tokens_source")}
    assert counts == {
        "sent": 4, "completed": 1, "failed": 2, "aborted": 1, "errors": {"disconnected": 1, "http-5xx": 1},
        "tokens_source": "usage",
    }  # fmt: skip
    assert (client["window_tokens"], client["output_tokens"], client["prompt_tokens"]) == (7, 7, 30)
    assert client["error_text"] == "cut"


def test_nothing_completed_is_nothing_measured_but_the_load():
    measured = summary([request(100, None, [], 101, error="http-5xx", error_text="x", prompt_tokens=None)])
    assert measured["metrics"]["output_tok_s"] == 0
    assert measured["client"]["tokens_source"] is None
    assert measured["client"]["prompt_tokens"] is None
    assert measured["metrics"]["mean_context_tokens"] is None
    assert measured["metrics"]["e2e_p50_ms"] is None


def test_latencies_are_missing_below_five_requests_per_client():
    row = request(100, 100.5, [(100.5, 1), (102.0, 3)], 102)
    assert summary([row] * 9)["metrics"]["ttft_p50_ms"] is None
    metrics = summary([row] * 10)["metrics"]
    assert metrics["ttft_p50_ms"] == pytest.approx(500)
    assert metrics["tpot_p50_ms"] == pytest.approx(500)
    assert metrics["e2e_p50_ms"] == pytest.approx(2000)
    assert metrics["ttft_p99_ms"] is None
    assert summary([row] * 100)["metrics"]["ttft_p99_ms"] == pytest.approx(500)


def test_shortened_first_requests_stay_out_of_latencies():
    whole, short = request(100, 101, [(101.0, 4)], 103), request(100, 101, [(101.0, 1)], 101, max_tokens=1)
    metrics = summary([whole] * 10 + [short] * 10)["metrics"]
    assert metrics["e2e_p50_ms"] == 3000
    assert metrics["requests_in_window"] == 20


def test_whole_answer_in_one_chunk_has_no_time_per_token():
    metrics = summary([request(100, 101, [(101.0, 4)], 101)] * 10)["metrics"]
    assert metrics["tpot_p50_ms"] is None
    assert metrics["ttft_p50_ms"] == 1000


def test_mean_context_is_weighted_by_tokens():
    rows = [request(99, 101, [(101.0, 1), (102.0, 3)], 103)]
    assert summary(rows)["metrics"]["mean_context_tokens"] == (11 * 1 + 14 * 3) / 4


def test_acceptance_prefers_the_servers_counters():
    rows = [request(100, 101, [(101.0, 4)], 102, draft_tokens=10, draft_accepted=5)]
    assert summary(rows, draft_tokens=8, draft_accepted=2)["metrics"]["acceptance"] == 0.25
    assert summary(rows)["metrics"]["acceptance"] == 0.5
    assert summary(rows, draft_tokens=0, draft_accepted=0)["metrics"]["acceptance"] is None


def test_server_figures_are_cut_to_the_window():
    samples = timeline((90, 9, 9), (99, 9, 9), (101, 2, 0), (105, 4, 1), (109, 9, 9))
    server = summary([request(100, 101, [(101.0, 4)], 102)], samples)["server"]
    assert server["running"] == pytest.approx((2 * 3 + 4 * 4 + 9 * 1) / 8)
    assert (server["running_max"], server["waiting_max"], server["samples"]) == (4, 1, 2)


def test_absent_server_figures_are_missing():
    server = summary([request(100, 101, [(101.0, 4)], 102)], timeline((101, None, None), (105, None, None)))["server"]
    missing = (
        "running",
        "waiting",
        "running_max",
        "kv_usage_max",
        "cpu_seconds",
        "cores",
        "cpu_ms_per_token",
    )
    assert [server[name] for name in missing] == [None] * len(missing)
    assert server["samples"] == 0


def test_cpu_seconds_are_those_of_the_window():
    samples = pd.concat([timeline((t, 1, 0), server_cpu_s=t / 2) for t in range(98, 112)])
    server = summary([request(100, 101, [(101.0, 4)], 102)], samples)["server"]
    assert server["cpu_seconds"] == pytest.approx(4)
    assert server["cores"] == pytest.approx(0.5)
    assert server["cpu_ms_per_token"] == pytest.approx(1000)


def test_cpu_seconds_need_readings_on_both_sides():
    samples = pd.concat([timeline((t, 1, 0), server_cpu_s=t / 2) for t in range(98, 106)])
    assert summary([request(100, 101, [(101.0, 4)], 102)], samples)["server"]["cpu_seconds"] is None


def test_a_gap_is_left_out_and_not_given_to_its_neighbours():
    times, values = pd.Series([1.0, 3.0, 5.0]), pd.Series([2.0, math.nan, 4.0])
    assert time_mean(times, values, 0, 6) == pytest.approx((2 * 2 + 4 * 2) / 4)


def test_counters_that_fell_or_vanished_are_left_out():
    before = {"grew": 1, "stood": 2, "fell": 3, "vanished": 4}
    assert counter_delta(before, {"grew": 5, "stood": 2, "fell": 1, "new": 9}) == {"grew": 4, "stood": 0}


@st.composite
def closed_loop(draw: st.DrawFn) -> tuple[int, list[dict]]:
    """Clients that each send one request after the other, some of which fail."""
    concurrency = draw(st.integers(1, 4))
    rows = []
    for client in range(concurrency):
        now = draw(st.floats(90, 101))
        for _ in range(draw(st.integers(1, 6))):
            sent, chunks = now, []
            for _ in range(draw(st.integers(0, 5))):
                now += draw(st.floats(0, 2))
                chunks.append((now, draw(st.integers(1, 4))))
            now += draw(st.floats(0.001, 2))
            error = None if chunks else "empty"
            rows.append(request(sent, chunks[0][0] if chunks else None, chunks, now, client=client, error=error))
    return concurrency, rows


@given(closed_loop())
@settings(deadline=None)
def test_window_never_holds_more_than_there_is(load: tuple[int, list[dict]]):
    concurrency, rows = load
    measured = summary(rows, concurrency=concurrency)
    client, metrics = measured["client"], measured["metrics"]
    assert 0 <= client["window_tokens"] <= client["output_tokens"]
    assert 0 <= client["littles_law"] <= concurrency + 1e-9
    assert len(client["bins_tok_s"]) >= 8
    assert sum(client["bins_tok_s"]) * 8 / len(client["bins_tok_s"]) == pytest.approx(client["window_tokens"])
    assert metrics["output_tok_s"] * 8 == pytest.approx(client["window_tokens"])
    assert client["completed"] + client["failed"] + client["aborted"] == client["sent"]
    assert metrics["requests_in_window"] <= client["completed"]
    context = metrics["mean_context_tokens"]
    assert context is None or 10 < context <= 10 + max(row["output_tokens"] for row in rows)


SAMPLES = st.lists(st.tuples(st.floats(90, 120), st.none() | st.floats(0, 9)), min_size=1, max_size=20)


@given(SAMPLES.map(lambda rows: sorted(rows, key=lambda row: row[0])))
@settings(deadline=None)
def test_time_mean_lies_between_the_extremes(rows: list[tuple[float, float | None]]):
    values = pd.Series([value for _, value in rows], dtype="float64")
    mean = time_mean(pd.Series([t for t, _ in rows]), values, OPENED, CLOSED)
    assert mean is None or values.min() - 1e-9 <= mean <= values.max() + 1e-9
    assert mean is not None or values.isna().any()


@given(closed_loop())
@settings(deadline=None)
def test_counting_double_doubles_the_tokens_and_moves_nothing_else(load: tuple[int, list[dict]]):
    concurrency, rows = load
    doubled = [row | {"chunk_tokens": [2 * n for n in row["chunk_tokens"]]} for row in rows]
    once, twice = summary(rows, concurrency=concurrency), summary(doubled, concurrency=concurrency)
    assert twice["client"]["window_tokens"] == 2 * once["client"]["window_tokens"]
    assert twice["client"]["littles_law"] == once["client"]["littles_law"]
