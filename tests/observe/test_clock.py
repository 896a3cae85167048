"""The true offset of another clock lies within the error that is told with it."""

from __future__ import annotations

import math
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.observe.clock import Offset, date_edge, http_date_offset, offset

ROUNDING_S = 1e-5  # of unix seconds in a float, several operations long
START_S = 1_800_000_000.0
delays = st.floats(0, 0.5)


class Network:
    """Our clock, and a remote one `ahead_s` further, reached over ways of given lengths (there, back), in turn."""

    def __init__(self, ahead_s: float, ways: list[tuple[float, float]], refreshed_s: float | None = None) -> None:
        self.ahead_s = ahead_s
        self.ways = ways
        self.refreshed_s = refreshed_s
        self.now_s = START_S
        self.count = 0

    def now(self) -> float:
        """Our time."""
        return self.now_s

    def pause(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds

    def ask(self) -> float:
        """The remote time, read between the two ways."""
        there_s, back_s = self.ways[self.count % len(self.ways)]
        self.count += 1
        self.now_s += there_s
        remote_s = self.now_s + self.ahead_s
        self.now_s += back_s
        return remote_s

    def ask_date(self) -> float:
        """Its whole second: of this moment, or of the last refresh, once a second at `refreshed_s` past it."""
        remote_s = self.ask()
        if self.refreshed_s is None:
            return math.floor(remote_s)
        return math.floor(math.floor(remote_s - self.refreshed_s) + self.refreshed_s)


@given(st.floats(-1e4, 1e4), st.lists(st.tuples(delays, delays), min_size=1, max_size=10))
def test_the_true_offset_is_within_the_error_of_the_shortest_round(ahead_s, ways):
    network = Network(ahead_s, ways)
    found = offset(network.ask, rounds=len(ways), now=network.now)
    assert abs(found.offset_s - ahead_s) <= found.error_s + ROUNDING_S
    assert found.error_s <= min(there_s + back_s for there_s, back_s in ways) / 2 + ROUNDING_S


@given(
    st.floats(-1e4, 1e4),
    st.lists(st.tuples(delays, delays), min_size=1, max_size=10),
    st.none() | st.floats(0, 0.999),
)
def test_the_true_offset_is_within_the_error_of_a_date_fresh_or_kept_for_a_second(ahead_s, ways, refreshed_s):
    network = Network(ahead_s, ways, refreshed_s)
    found = date_edge(network.ask_date, now=network.now, pause=network.pause)
    assert abs(found.offset_s - ahead_s) <= found.error_s + ROUNDING_S
    assert found.error_s <= 0.5 + (0.05 + 2 * 1.0) / 2 + ROUNDING_S


def test_a_date_that_stands_still_or_is_missing_tells_nothing():
    network = Network(0.0, [(0.01, 0.01)])
    assert date_edge(lambda: START_S, now=network.now, pause=network.pause) is None
    assert date_edge(lambda: None, now=network.now, pause=network.pause) is None
    assert offset(network.ask, now=network.now).error_s == pytest.approx(0.01, abs=ROUNDING_S)
    assert Offset.local() == Offset(0.0, 0.0)


@pytest.mark.parametrize(("date", "known"), [(True, True), (False, False)])
def test_over_http(date: bool, known: bool):
    class Answer(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response_only(405)
            if date:
                self.send_header("Date", self.date_time_string())
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            found = http_date_offset(f"http://127.0.0.1:{server.server_port}/health")
        finally:
            server.shutdown()
            thread.join()
    assert (found is not None) == known
    assert found is None or abs(found.offset_s) <= found.error_s
