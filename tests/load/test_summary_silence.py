"""The longest silence of all streams together, and streams that fell silent for good."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.load.figures_silence import SILENCE_GAPS, SILENCE_REAL_SECONDS, SILENCE_SECONDS
from tests.load.tables import CLOSED, OPENED, request, summary, timeline


def stream(*times: float, end: float | None = None, **fields: Any) -> dict:
    """A request whose tokens come at these times."""
    return request(times[0] - 0.5, times[0], [(t, 1) for t in times], end or times[-1], **fields)


def steps(start: float, stop: float, each: float = 0.25) -> list[float]:
    return [start + each * n for n in range(round((stop - start) / each) + 1)]


def silence(*rows: dict, **values: Any) -> dict[str, Any]:
    return summary(list(rows), **values)["client"]


def test_a_pause_of_all_streams_is_the_longest_silence():
    paused = [*steps(99, 102), *steps(105, 109)]
    found = silence(stream(*paused), stream(*[t + 0.125 for t in paused]))
    assert (found["silence_max_s"], found["silence_at_s"]) == (pytest.approx(2.875), pytest.approx(2.125))
    assert (found["silence_streams"], found["silences_alike"]) == (2, 1)
    assert found["silences_alike_s"] == pytest.approx(2.875)


def test_one_stream_that_goes_on_breaks_the_silence():
    paused = [*steps(99, 102), *steps(105, 109)]
    assert silence(stream(*paused), stream(*steps(99, 109)))["silence_max_s"] == pytest.approx(0.25)


def test_a_server_without_work_or_before_its_first_token_is_not_silent():
    """Two answers with nothing in between; and one whose prompt is read for four seconds."""
    gap = [stream(*steps(99, 102)), stream(*steps(106, 109))]
    assert silence(*gap)["silence_max_s"] == pytest.approx(0.25)
    late = request(102.0, 106.0, [(t, 1) for t in steps(106, 109)], 109.0)
    assert silence(gap[0], late)["silence_max_s"] == pytest.approx(0.25)


def test_only_the_part_of_a_silence_that_lies_in_the_window_counts():
    before, after = [98.0, *steps(103, 109)], [*steps(99, 106), 120.0]
    found = silence(stream(*before))
    assert (found["silence_max_s"], found["silence_at_s"]) == (pytest.approx(3), 0)
    found = silence(stream(*after))
    assert (found["silence_max_s"], found["silence_at_s"]) == (pytest.approx(2), pytest.approx(6))


def test_pauses_that_come_again_are_counted():
    often = [99.0, 99.5, *[t for n in range(4) for t in steps(100.5 + 2 * n, 101.5 + 2 * n)], 109.0]
    found = silence(stream(*often))
    assert found["silences_alike"] > 3 and found["silences_alike_s"] >= 4 * found["silence_max_s"] / 2


@pytest.mark.parametrize(
    ("gap_s", "factor", "limit_s"),
    [
        (0.01, 1.0, SILENCE_SECONDS),
        (0.25, 1.0, SILENCE_GAPS * 0.25),
        (0.01, 20.0, 20 * SILENCE_REAL_SECONDS),
    ],
)
def test_what_counts_as_silence_follows_the_pace_of_the_server_and_the_clock(
    gap_s: float, factor: float, limit_s: float
):
    found = silence(stream(*steps(99, 109, gap_s / factor)), time_factor=factor)
    assert found["silence_limit_s"] == pytest.approx(limit_s)


def test_streams_without_an_end_hang_from_their_last_token_on():
    whole = stream(*steps(99, 109, 0.05))
    hung = stream(*steps(99, 104, 0.05), end=130.0, error="aborted")
    given_up = stream(*steps(95, 98, 0.05), end=102.0, error="stalled")
    found = silence(whole, hung, given_up)
    assert (found["hung_streams"], found["hung_since_s"]) == (2, pytest.approx(-2))
    assert found["hung_mean"] == pytest.approx((4 + 2) / (CLOSED - OPENED))


@pytest.mark.parametrize(
    "row",
    [
        stream(*steps(99, 109, 0.05), end=109.5, error="aborted"),
        stream(*steps(99, 104, 0.05), end=104.9, error="stalled"),
        stream(*steps(99, 104, 0.05), end=130.0, error="disconnected"),
        stream(*steps(99, 104, 0.05), end=130.0),
        request(99.0, None, [], 130.0, error="aborted"),
        stream(*steps(109, 112, 0.05), end=130.0, error="aborted"),
    ],
)
def test_other_streams_have_not_hung(row: dict):
    found = silence(stream(*steps(99, 109, 0.05)), row)
    assert (found["hung_streams"], found["hung_mean"], found["hung_since_s"]) == (0, 0, None)


@pytest.mark.parametrize(("prompt_tokens", "reading_s"), [(10, 0.5), (80, 4.0)])
def test_prompts_that_wait_in_a_silence_are_so_much_work(prompt_tokens: int, reading_s: float):
    """Others of ten tokens have their first token after half a second."""
    paused = [*steps(99, 102), *steps(105, 109)]
    others = [stream(*paused) for _ in range(3)]
    read = request(102.5, 105.0, [(t, 1) for t in steps(105, 109)], 109.0, prompt_tokens=prompt_tokens)
    found = silence(*others, read, stream(*steps(109, 112)))
    assert found["silence_reading_s"] == pytest.approx(reading_s)
    assert silence(*others)["silence_reading_s"] == 0


@pytest.mark.parametrize(
    ("counted", "tokens"),
    [({102: 50, 102.2: 60, 103: 60, 104: 60, 106: 90}, 0.0), ({102: 50, 103: 60, 104: 85}, 25.0), ({103: 60}, None)],
)
def test_what_the_server_read_in_a_silence_is_told_by_its_counter(counted: dict[float, float], tokens: float | None):
    """Not what it had read just before, nor after the silence."""
    samples = pd.concat([timeline((t, 1, 0), prompt_tokens=n) for t, n in counted.items()])
    assert silence(stream(*steps(99, 102), *steps(105, 109)), samples=samples)["silence_prompt_tokens"] == tokens


def test_without_a_token_there_is_no_silence():
    found = silence(request(101.0, None, [], 107.0, error="http-5xx"))
    assert (found["silence_max_s"], found["silence_streams"], found["silences_alike"]) == (None, None, None)


STREAMS = st.lists(
    st.lists(st.floats(95, 112), min_size=1, max_size=6, unique=True).map(sorted), min_size=1, max_size=4
)


@given(STREAMS)
@settings(deadline=None)
def test_the_longest_silence_is_the_obvious_one(streams: list[list[float]]):
    found = silence(*[stream(*times) for times in streams])
    every = sorted(t for times in streams for t in times)
    lasts_s = [
        min(b, CLOSED) - max(a, OPENED)
        for a, b in pairwise(every)
        if b > OPENED and a < CLOSED and any(times[0] <= a and times[-1] >= min(b, CLOSED) for times in streams)
    ]
    expected = max(lasts_s, default=0.0)
    assert (found["silence_max_s"] or 0.0) == pytest.approx(expected, abs=1e-6)
