"""Goodput: what counts as answered in time."""

from __future__ import annotations

import pytest

from tests.load.tables import request, summary

IN_TIME = request(100.0, 100.2, [(100.2, 1), (100.5, 3)], 100.5)
LATE_FIRST = request(101.0, 102.0, [(102.0, 1), (102.3, 3)], 102.3)
SLOW = request(101.0, 101.2, [(101.2, 1), (104.2, 3)], 104.2)
AT_ONCE = request(102.0, 102.1, [(102.1, 4)], 102.1)
FAILED = request(100.0, 100.2, [(100.2, 1)], 100.5, error="http-500")
AFTER = request(107.0, 107.2, [(107.2, 1), (108.5, 3)], 108.5)
ROWS = [IN_TIME, LATE_FIRST, SLOW, AT_ONCE, FAILED, AFTER]


@pytest.mark.parametrize(
    ("slo", "good"),
    [
        ({"ttft_ms": 300}, 3),
        ({"tpot_ms": 200}, 3),
        ({"e2e_ms": 1000}, 2),
        ({"ttft_ms": 300, "tpot_ms": 200}, 2),
        ({"ttft_ms": 1}, 0),
        ({"e2e_ms": 1e6}, 4),
    ],
)
def test_a_good_request_ended_in_the_window_and_kept_every_limit(slo: dict[str, float], good: int) -> None:
    assert summary(ROWS, slo=slo)["metrics"]["goodput_rps"] == pytest.approx(good / 8)


def test_without_limits_there_is_no_goodput() -> None:
    assert summary(ROWS)["metrics"]["goodput_rps"] is None


def test_limits_are_in_the_servers_time() -> None:
    fast = summary(ROWS, slo={"ttft_ms": 300}, time_factor=2.0)["metrics"]["goodput_rps"]
    assert fast == pytest.approx(1 / 16)  # 0.1 s are 0.2 s of the server


def test_in_an_open_loop_waiting_for_a_slot_counts() -> None:
    waited = request(101.0, 101.1, [(101.1, 1), (101.4, 3)], 101.4, due_s=100.0)
    open_loop = {"arrivals": "constant", "rate_rps": 1.0, "slo": {"ttft_ms": 300}}
    assert summary([waited], **open_loop)["metrics"]["goodput_rps"] == 0
    assert summary([waited], slo={"ttft_ms": 300})["metrics"]["goodput_rps"] == pytest.approx(1 / 8)
