"""The client's account of itself."""

from __future__ import annotations

import asyncio
import gc
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.load.self_watch import SelfWatch, percentile_ms


def test_a_blocked_loop_and_a_busy_client_show():
    async def run() -> SelfWatch:
        watch = SelfWatch()
        task = asyncio.create_task(watch.until(time.monotonic() + 0.2))
        await asyncio.sleep(0.05)
        assert not gc.isenabled()
        end_s = time.process_time() + 0.06
        while time.process_time() < end_s:
            pass
        await task
        return watch

    watch = asyncio.run(run())
    assert watch.loop_lag_p99_ms > 30
    assert watch.cpu_share > 0
    assert gc.isenabled()


def test_a_window_that_is_over_leaves_no_lag():
    watch = SelfWatch()
    asyncio.run(watch.until(time.monotonic() - 1))
    assert watch.loop_lag_p99_ms is None


@given(st.lists(st.floats(0, 100), min_size=1), st.floats(0.01, 1))
def test_at_least_the_share_lies_at_or_below_a_percentile(values: list[float], share: float):
    found = percentile_ms(values, share) / 1000
    assert sum(value <= found + 1e-9 for value in values) >= share * len(values) - 1e-6


@pytest.mark.parametrize(("share", "expected"), [(0.5, 2000), (0.99, 4000), (0.01, 1000)])
def test_percentiles_are_values_that_occurred(share: float, expected: float):
    assert percentile_ms([3, 1, 4, 2], share) == expected
