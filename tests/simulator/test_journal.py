"""The journal's own arithmetic: time-weighted means, spans, and a file that holds it all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lab.simulator.journal import Journal
from lab.simulator.request import Request
from lab.simulator.scheduler import Step


def step(rank: int, start_s: float, end_s: float, running: int, waiting: int = 0) -> Step:
    return Step(rank, 1, start_s, end_s, running, waiting, running, 0, 0, 0, 0, 0, False)


def request(number: int = 0, foreign: bool = False) -> Request:
    return Request(number, 0.0, 0.0, 10, 4, 4, foreign=foreign, generated=4, admitted_s=0.0, first_token_s=1.0)


def test_running_is_weighted_by_time_and_summed_over_ranks() -> None:
    journal = Journal(100.0, 2.0)  # two server seconds in a real one
    journal.stepped(step(0, 0.0, 4.0, 2), 0.0)
    journal.stepped(step(0, 4.0, 8.0, 6, waiting=3), 0.0)
    journal.stepped(step(1, 0.0, 10.0, 1), 0.0)
    assert journal.summary(100.0, 104.0)["running_mean"] == pytest.approx((2 * 4 + 6 * 4 + 1 * 8) / 8)
    assert journal.summary(101.0, 103.0)["running_mean"] == pytest.approx(2 / 2 + 6 / 2 + 1)
    assert journal.summary(100.0, 104.0)["waiting_mean"] == pytest.approx(1.5)
    assert journal.summary(106.0, 108.0)["running_mean"] == 0.0
    with pytest.raises(ValueError, match="is empty"):
        journal.summary(104.0, 104.0)


def test_a_step_under_way_counts_as_far_as_it_lies_in_the_span() -> None:
    journal = Journal(0.0, 1.0)
    journal.stepped(step(0, 0.0, 2.0, 4), 0.0)
    under_way = [step(0, 2.0, 6.0, 8, waiting=2)]
    assert journal.summary(0.0, 4.0, under_way)["running_mean"] == pytest.approx(6.0)
    assert journal.summary(0.0, 4.0, under_way)["waiting_mean"] == pytest.approx(1.0)


def test_tokens_belong_to_the_span_they_were_sent_in() -> None:
    journal = Journal(0.0, 1.0)
    for at_s, tokens, foreign in ((1.0, 1, False), (2.0, 3, False), (2.5, 7, True), (3.0, 5, False)):
        journal.sent(request(foreign=foreign), tokens, at_s)
    summary = journal.summary(1.5, 3.0)
    assert (summary["tokens_sent"], summary["foreign_tokens_sent"], summary["chunks_sent"]) == (10, 7, 2)
    assert summary["tok_s"] == pytest.approx(10 / 1.5)


def test_only_finished_requests_of_the_span_count_as_finished() -> None:
    journal = Journal(0.0, 1.0)
    journal.ended(request(0), 1.0, "length")
    journal.ended(request(1), 2.0, "abort")
    journal.ended(request(2), 3.0, "stop")
    journal.ended(request(-5, foreign=True), 2.0, "length")
    summary = journal.summary(0.0, 2.5)
    assert (summary["requests_finished"], summary["requests_ended"], summary["output_tokens"]) == (1, 2, 4)


def test_the_file_holds_everything(tmp_path: Path) -> None:
    journal = Journal(5.0, 10.0)
    journal.stepped(step(0, 0.0, 1.0, 2), 0.001)
    journal.sent(request(), 4, 5.2)
    journal.ended(request(), 5.3, "length")
    journal.save(tmp_path / "deep" / "truth.npz")
    saved = np.load(tmp_path / "deep" / "truth.npz")
    assert saved["step_end_s"].tolist() == [5.1]
    assert (saved["chunk_s"].tolist(), saved["chunk_tokens"].tolist()) == ([5.2], [4])
    assert (saved["request_output_tokens"].tolist(), saved["request_reason"].tolist()) == ([4.0], ["length"])
    assert (float(saved["zero_s"]), float(saved["time_factor"])) == (5.0, 10.0)


def test_a_server_that_was_never_asked_can_be_saved(tmp_path: Path) -> None:
    Journal(0.0, 1.0).save(tmp_path / "truth.npz")
    assert np.load(tmp_path / "truth.npz")["request_number"].tolist() == []
