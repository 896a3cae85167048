"""The client's account of itself."""

from __future__ import annotations

import asyncio
import gc
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.load.self_watch import BEAT_SECONDS, SelfWatch, missed_beats, percentile_ms


def test_a_blocked_loop_and_a_busy_client_show():
    async def run() -> SelfWatch:
        watch = SelfWatch()
        task = asyncio.create_task(watch.until(time.monotonic() + 0.2, time.monotonic()))
        await asyncio.sleep(0.05)
        assert not gc.isenabled()
        end_s = time.process_time() + 0.06
        while time.process_time() < end_s:
            pass
        await task
        return watch

    watch = asyncio.run(run())
    assert watch.loop_lag_p99_ms > 30
    assert 0 < watch.loop_lag_mean_ms < watch.loop_lag_p99_ms <= watch.loop_lag_max_ms
    assert watch.cpu_share > 0
    assert gc.isenabled()


def watched(end_s: float, due_s: float) -> SelfWatch:
    """A watch of a window from `due_s` to `end_s`, in seconds from now."""
    watch, now_s = SelfWatch(), time.monotonic()
    asyncio.run(watch.until(now_s + end_s, now_s + due_s))
    return watch


def test_a_loop_that_wakes_after_the_window_lags_by_at_least_that():
    watch = watched(-1.0, -3.0)
    assert watch.loop_lag_p99_ms >= 2900
    assert watch.loop_lag_mean_ms >= 1450
    assert watch.cpu_share is None


def test_a_window_that_opened_late_is_a_lag():
    assert watched(0.05, -2.0).loop_lag_p99_ms >= 1900
    assert watched(0.05, 0.0).loop_lag_p99_ms < 1900


@given(st.floats(0, 10))
def test_each_beat_that_fell_due_in_a_lag_was_late(late_s: float):
    lags_s = missed_beats(late_s)
    assert lags_s[0] == late_s
    assert all(lag_s >= 0 for lag_s in lags_s)
    assert abs(len(lags_s) - max(1, late_s / BEAT_SECONDS)) <= 1
    assert all(a - b == pytest.approx(BEAT_SECONDS) for a, b in pairwise(lags_s))


@given(st.lists(st.floats(0, 100), min_size=1), st.floats(0.01, 1))
def test_at_least_the_share_lies_at_or_below_a_percentile(values: list[float], share: float):
    found = percentile_ms(values, share) / 1000
    assert sum(value <= found + 1e-9 for value in values) >= share * len(values) - 1e-6


@pytest.mark.parametrize(("share", "expected"), [(0.5, 2000), (0.99, 4000), (0.01, 1000)])
def test_percentiles_are_values_that_occurred(share: float, expected: float):
    assert percentile_ms([3, 1, 4, 2], share) == expected
