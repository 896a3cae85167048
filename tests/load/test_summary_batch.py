"""The batch that ran, from the samples and from the tokens that arrived."""

from __future__ import annotations

import pytest

from tests.load.tables import request, summary, timeline


def waves() -> list[dict]:
    """Two requests whose tokens come together for one of every two seconds."""
    rows = []
    for start in range(98, 110, 2):
        times = [(start + n / 8, 1) for n in range(9)]
        rows += [request(start - 1, start, times, start + 1), request(start - 1, start, times, start + 1)]
    return rows


def test_samples_that_meet_the_same_phase_of_every_wave_are_put_right():
    """Requests run for half of the time and are held back for the other half; the samples meet the first half only."""
    server = summary(waves(), timeline(*((98.5 + 2 * n, 2, 0) for n in range(6))))["server"]
    assert server["running"] == 2
    assert server["running_fitted"] == server["held_fitted"] == pytest.approx(1.0)
    assert server["running_fitted_error"] == server["held_fitted_error"] == 0
    assert server["running_error"] == 0


def test_what_the_server_counts_beyond_the_answers_is_added():
    """A prompt is read beside the two answers, in three of four samples, and one waits."""
    rows = [request(90, 91, [(91.0, 1), (120.0, 1)], 120)] * 2
    server = summary(rows, timeline(*((100.5 + 2 * n, 2 + (n > 0), 1) for n in range(4))))["server"]
    assert server["running_fitted"] == pytest.approx(server["running"])
    assert server["held_fitted"] == pytest.approx(server["running"] + 1)
    assert server["running_fitted_error"] == pytest.approx(server["running_error"])
    assert server["running_error"] == pytest.approx(0.25)


@pytest.mark.parametrize("samples", [None, timeline((101, None, None), (105, None, None))])
def test_without_samples_nothing_is_fitted(samples: object):
    server = summary(waves(), samples)["server"]
    names = ("running_fitted", "running_fitted_error", "held_fitted", "held_fitted_error", "running_error")
    assert [server[name] for name in names] == [None] * 5
