"""Cached prompts, and answers that come in bursts."""

from __future__ import annotations

import pytest

from tests.load.tables import request, summary


def test_prefix_hits_are_a_share_of_what_was_looked_up():
    rows = [request(100, 101, [(101.0, 4)], 102)]
    assert summary(rows, delta={"prefix_hits": 5.0, "prefix_queries": 20.0})["metrics"]["prefix_hit_share"] == 0.25
    assert summary(rows, delta={"cached_tokens": 5.0, "prompt_tokens": 15.0})["metrics"]["prefix_hit_share"] == 0.25
    assert summary(rows)["metrics"]["prefix_hit_share"] == 0.0  # by its answers
    untold = [row | {"cached_tokens": None} for row in rows]
    assert summary(untold)["metrics"]["prefix_hit_share"] is None


def test_answers_tell_what_was_cached_where_the_counters_do_not():
    rows = [request(100, 101, [(101.0, 4)], 102, cached_tokens=cached) for cached in (9, 12, None)]
    measured = summary(rows)
    assert (measured["client"]["cached_share"], measured["metrics"]["prefix_hit_share"]) == (0.7, 0.7)
    counted = summary(rows, delta={"prefix_hits": 1.0, "prefix_queries": 10.0})
    assert (counted["client"]["cached_share"], counted["metrics"]["prefix_hit_share"]) == (0.7, 0.1)


@pytest.mark.parametrize(("bursts", "outcome"), [(4, "too-short"), (7, "too-short"), (8, "found"), (80, "found")])
def test_a_window_of_few_bursts_is_no_measurement(bursts: int, outcome: str):
    """Eight answers of so many bursts each, all of them in the same instants, a few milliseconds apart."""
    times = [100 + 8 * (n + 0.5) / bursts for n in range(bursts)]
    rows = [request(99, times[0], [(t + client / 1000, 5) for t in times], 108) for client in range(8)]
    steady = summary(rows)["steady"]
    assert steady["outcome"] == outcome
    assert steady["burst_pct"] == pytest.approx(100 / bursts)
    assert ("bursts" in steady["reason"]) == (outcome == "too-short")


def test_a_single_pause_after_which_much_arrives_at_once_makes_no_bursts():
    times = [100 + n / 10 for n in range(80)]
    paused = [(106.0 if 104 < t < 106 else t, 1) for t in times]
    steady = summary([request(99, 100, paused, 108)])["steady"]
    assert steady["burst_pct"] == pytest.approx(100 / 80)
