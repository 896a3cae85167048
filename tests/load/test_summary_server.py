"""The server's samples, cut to the window and weighed by time."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from lab.load.figures_server import Samples
from tests.load.tables import request, summary, timeline

ROWS = [request(100, 101, [(101.0, 4)], 102)]


def test_figures_are_cut_to_the_window():
    samples = timeline((90, 9, 9), (99, 9, 9), (101, 2, 0), (105, 4, 1), (109, 9, 9))
    server = summary(ROWS, samples)["server"]
    assert server["running"] == pytest.approx((2 * 3 + 4 * 4 + 9 * 1) / 8)
    assert (server["running_max"], server["waiting_max"], server["samples"]) == (4, 1, 2)
    assert (server["sampled_from_s"], server["sampled_to_s"]) == (-10, 9)
    assert server["held_error"] == pytest.approx(1.5)
    assert (server["running_at_open"], server["waiting_at_open"]) == (9, 9)


def test_the_95th_percentile_is_weighed_by_time():
    samples = timeline(*((100 + t / 10, 2 if t < 77 else 8, 0) for t in range(80)))
    assert summary(ROWS, samples)["server"]["running_p95"] == 2
    assert summary(ROWS, samples)["server"]["running_p25"] == 2
    samples = timeline(*((100 + t / 10, 2 if t < 70 else 8, 0) for t in range(80)))
    assert summary(ROWS, samples)["server"]["running_p95"] == 8


def test_absent_figures_are_missing():
    measured = summary(ROWS, timeline((101, None, None), (105, None, None)), live_counters={"output_tokens"})
    server = measured["server"]
    missing = (
        "running", "waiting", "running_max", "running_p95", "running_at_open", "excess_at_open", "kv_usage_max",
        "sampled_from_s", "held_error", "rank_skew", "cpu_seconds", "cores", "cpu_ms_per_token",
    )  # fmt: skip
    assert [server[name] for name in missing] == [None] * len(missing)
    assert (server["samples"], server["zero_gauges"], server["window_delta"]) == (0, [], {})
    assert set(measured["machine"].values()) == {None}


def test_no_sample_at_all_is_missing_too():
    assert summary(ROWS)["server"]["running"] is None
    assert summary(ROWS)["server"]["running_p95"] is None


def test_cpu_seconds_are_those_of_the_window():
    samples = pd.concat([timeline((t, 1, 0), server_cpu_s=t / 2) for t in range(98, 112)])
    server = summary(ROWS, samples)["server"]
    assert server["cpu_seconds"] == pytest.approx(4)
    assert server["cores"] == pytest.approx(0.5)
    assert server["cpu_ms_per_token"] == pytest.approx(1000)


def test_counters_are_interpolated_at_the_ends_of_the_window():
    samples = pd.concat([timeline((t, 1, 0), output_tokens=10.0 * t) for t in (97, 101.5, 106, 110)])
    server = summary(ROWS, samples, delta={"output_tokens": 130.0}, live_counters={"output_tokens", "none"})["server"]
    assert server["window_delta"] == {"output_tokens": pytest.approx(80)}
    assert server["delta"] == {"output_tokens": 130.0}
    assert not server["restarted"]


def test_a_counter_that_appears_within_the_window_began_at_zero():
    """Where the server answered before: it may have had no event yet; where it did not, nobody knows."""
    counts = {97: None, 101.5: None, 104: 6.0, 106: 6.0, 110: 8.0}
    samples = pd.concat([timeline((t, 1, 0), preemptions=n) for t, n in counts.items()])
    silent = pd.concat([timeline((t, 1 if n else None, 0), preemptions=n) for t, n in counts.items()])
    for table, expected in ((samples, {"preemptions": pytest.approx(7.0)}), (silent, {})):
        server = summary(ROWS, table, delta={"preemptions": 8.0}, live_counters={"preemptions"})["server"]
        assert server["window_delta"] == expected


def test_the_fullest_rank_has_a_95th_percentile_of_its_own():
    samples = pd.concat([timeline((t, 8, 0), rank_running_max=r) for t, r in ((99, 4.0), (104, 5.0), (110, 4.0))])
    server = summary(ROWS, samples, ranks=2)["server"]
    assert (server["running_p95"], server["rank_running_p95"]) == (8.0, 5.0)
    assert summary(ROWS, timeline((99, 8, 0), (110, 8, 0)))["server"]["rank_running_p95"] is None


def test_growth_needs_readings_on_both_sides_and_no_reset():
    short = pd.concat([timeline((t, 1, 0), output_tokens=10.0 * t) for t in (97, 106)])
    reset = pd.concat([timeline((t, 1, 0), output_tokens=n) for t, n in ((97, 50), (104, 0), (110, 70))])
    for samples, restarted in ((short, False), (reset, True)):
        server = summary(ROWS, samples, delta={"output_tokens": 20.0}, live_counters={"output_tokens"})["server"]
        assert (server["window_delta"], server["restarted"]) == ({}, restarted)
        assert (server["delta"], server["fell"]) == (
            ({}, ["output_tokens"]) if restarted else ({"output_tokens": 20}, [])
        )


def test_one_counter_that_fell_leaves_none_of_the_others_to_be_believed():
    """Another one has long grown beyond what it was."""
    counts = [(97, 50.0, 3.0, 10.0), (104, 2.0, 5.0, 10.0 - 1e-9), (110, 9.0, 9.0, 30.0)]
    samples = pd.concat([timeline((t, 1, 0), requests_finished=a, preemptions=b, steps=c) for t, a, b, c in counts])
    server = summary(ROWS, samples, delta={"preemptions": 6.0}, live_counters={"preemptions", "steps"})["server"]
    assert (server["delta"], server["window_delta"], server["fell"]) == ({}, {}, ["requests_finished"])


def test_a_counter_that_moves_now_and_then_may_be_behind_by_its_stairs():
    stairs = [(t, 40.0 * (t >= 103) + 40.0 * (t >= 107)) for t in range(98, 112)]
    even = [(t, 10.0 * t) for t in range(98, 112)]
    for counts, expected in ((stairs, 40.0), (even, 0.0)):
        samples = pd.concat([timeline((t, 1, 0), output_tokens=n) for t, n in counts])
        assert summary(ROWS, samples)["server"]["output_tokens_staircase"] == pytest.approx(expected)
    assert summary(ROWS)["server"]["output_tokens_staircase"] is None


def test_constant_zeros_are_named():
    samples = pd.concat([timeline((t, 2, 0), output_tokens=0.0, prompt_tokens=float(t)) for t in (99, 104, 110)])
    delta = {"output_tokens": 0.0, "prompt_tokens": 11.0, "decode_steps": 4.0}
    server = summary(ROWS, samples, delta=delta)["server"]
    assert (server["zero_gauges"], server["zero_counters"]) == (["waiting"], ["output_tokens"])


def test_one_rank_that_does_all_the_work_is_seen():
    samples = pd.concat([timeline((t, 4, 0), rank_running_max=3.0) for t in range(98, 112)])
    assert summary(ROWS, samples, ranks=2)["server"]["rank_skew"] == pytest.approx(1.5)
    assert summary(ROWS, samples, ranks=1)["server"]["rank_skew"] is None
    assert summary(ROWS, samples)["server"]["rank_skew"] is None


def test_requests_of_others_at_the_opening_show_in_three_readings():
    rows = [request(90 + n, 91 + n, [(91.0 + n, 4)], 93 + n) for n in range(20)]
    ours = timeline(*((t / 2, 3, 0) for t in range(194, 220)))
    assert summary(rows, ours)["server"]["excess_at_open"] == pytest.approx(0)
    theirs = timeline(*((t / 2, 6, 1) for t in range(194, 220)))
    assert summary(rows, theirs)["server"]["excess_at_open"] == pytest.approx(4)
    odd = timeline(*((t / 2, 6 if t == 200 else 3, 0) for t in range(194, 220)))
    assert summary(rows, odd)["server"]["excess_at_open"] == pytest.approx(0)


def test_a_gap_is_left_out_and_not_given_to_its_neighbours():
    samples = Samples(timeline((1.0, 2.0, 0), (3.0, math.nan, 0), (5.0, 4.0, 0)), 0.0, 6.0, 1.0)
    assert samples.mean("running") == pytest.approx((2 * 2 + 4 * 2) / 4)


def test_virtual_time_scales_durations_and_rates_and_not_cpu_shares():
    rows = [request(99 + n / 2, 99.5 + n / 2, [(99.5 + n / 2, 1), (100 + n / 2, 3)], 100 + n / 2) for n in range(20)]
    samples = pd.concat([timeline((t, 2, 0), server_cpu_s=t / 2) for t in range(98, 112)])
    real, virtual = summary(rows, samples), summary(rows, samples, time_factor=10.0)
    for name in ("ttft_p50_ms", "e2e_p50_ms", "tpot_p50_ms", "chunk_gap_p50_ms"):
        assert virtual["metrics"][name] == pytest.approx(10 * real["metrics"][name])
    assert virtual["metrics"]["output_tok_s"] == pytest.approx(real["metrics"]["output_tok_s"] / 10)
    assert virtual["client"]["littles_law"] == pytest.approx(real["client"]["littles_law"])
    assert virtual["server"]["cores"] == pytest.approx(real["server"]["cores"])
    assert virtual["server"]["cpu_seconds"] == pytest.approx(real["server"]["cpu_seconds"])
    assert virtual["server"]["sampled_to_s"] == pytest.approx(10 * real["server"]["sampled_to_s"])
    assert virtual["window"] == real["window"]
    assert virtual["steady"]["seconds"] == 80
