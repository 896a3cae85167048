"""The timeline: what the server said, when; gaps stay gaps."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lab.engines.server import Sample
from lab.errors import LabError
from lab.observe import timeline


class Server:
    """Answers from a list of readings, the last one for ever; sets `asked` once every reading has become a row."""

    def __init__(self, *readings: object) -> None:
        self.readings = list(readings)
        self.asked = threading.Event()
        self.count = 0

    def sample(self) -> object:
        """The next reading, raised when it is an error."""
        reading = self.readings[min(self.count, len(self.readings) - 1)]
        self.count += 1
        if self.count > len(self.readings) or isinstance(reading, KeyError):
            self.asked.set()
        if isinstance(reading, Exception):
            raise reading
        return reading


def sample(running: float | None, waiting: float | None = 0.0, **counters: float) -> Sample:
    """A reading without a cache gauge."""
    return Sample(running, waiting, None, counters)


def watched(server: Server):
    """The timeline of a server whose readings were all asked for."""
    with timeline.watch(server.sample, os.getpid(), 0.005) as watching:
        assert server.asked.wait(10)
    return watching.frame()


def test_rows_in_order_with_gauges_counters_and_machine():
    frame = watched(Server(sample(1, output_tokens=5), sample(2, output_tokens=9), sample(3, output_tokens=9)))
    assert list(frame.running[:3]) == [1, 2, 3]
    assert list(frame.output_tokens[:3]) == [5, 9, 9]
    assert frame.t_s.is_monotonic_increasing
    assert frame.server_cpu_s.notna().all()


def test_both_clocks_of_the_same_instant():
    frame = watched(Server(sample(1), sample(2), sample(3)))
    apart_s = (frame.wall_s - frame.t_s) - (time.time() - time.monotonic())
    assert apart_s.abs().max() < 60  # the machine's clock may be stepped meanwhile, not by an epoch
    assert (frame.took_s >= 0).all()


def test_the_fullest_rank_where_there_are_several():
    ranks = Sample(7, 0, None, {}, running_by_rank=(4.0, 3.0))
    frame = watched(Server(ranks, sample(7)))
    assert frame.rank_running_max[0] == 4
    assert frame.rank_running_max[1:].isna().all()


def test_slow_samples_follow_each_other_and_never_overlap():
    inside = threading.Semaphore(1)
    asked, slow = threading.Event(), iter(range(3))

    def answer() -> Sample:
        assert inside.acquire(blocking=False), "two samples at once"
        time.sleep(0.01)
        if next(slow, None) is None:
            asked.set()
        inside.release()
        return sample(1)

    with timeline.watch(answer, None, 0.001) as watching:
        assert asked.wait(10)
    frame = watching.frame()
    assert (frame.t_s.diff()[1:] >= frame.took_s[1:]).all()


def test_the_log_is_part_of_every_row(tmp_path: Path):
    (tmp_path / "server.log").write_bytes(b"12345")
    server = Server(sample(1))
    with timeline.watch(server.sample, None, 0.005, log_path=tmp_path / "server.log") as watching:
        assert server.asked.wait(10)
    assert set(watching.frame().log_bytes) == {5}


def test_absent_stays_absent():
    frame = watched(Server(sample(1, None), sample(1, None, draft_tokens=3), sample(1, None)))
    assert frame.waiting.isna().all()
    assert frame.kv_usage.isna().all()
    assert frame.draft_tokens.isna().tolist()[:2] == [True, False]
    assert "output_tokens" not in frame


def test_unanswered_samples_are_gaps_with_the_machines_figures():
    frame = watched(Server(sample(1, output_tokens=5), ConnectionRefusedError(), sample(2, output_tokens=6)))
    assert frame.running.isna().tolist()[:3] == [False, True, False]
    assert frame.output_tokens.isna().tolist()[:3] == [False, True, False]
    assert frame.server_cpu_s.notna().all()


def test_a_broken_reader_is_not_a_gap():
    server = Server(KeyError("renamed metric"))
    with pytest.raises(KeyError, match="renamed metric"), timeline.watch(server.sample, None, 0.005):
        assert server.asked.wait(10)


def test_an_error_of_the_block_is_not_hidden_by_one_of_the_reader():
    server = Server(KeyError("renamed metric"))
    with pytest.raises(ZeroDivisionError), timeline.watch(server.sample, None, 0.005):
        assert server.asked.wait(10)
        raise ZeroDivisionError


def test_no_sample_is_an_empty_table_with_its_columns(tmp_path: Path):
    frame = timeline.watch(Server(sample(1)).sample, None, 1).frame()
    timeline.write(frame, tmp_path / "timeline.parquet")
    assert pq.read_table(tmp_path / "timeline.parquet").column_names[:4] == [
        "t_s",
        "wall_s",
        "took_s",
        "running",
    ]


def test_missing_is_null_in_the_file(tmp_path: Path):
    frame = watched(Server(sample(None), sample(4)))
    timeline.write(frame, tmp_path / "timeline.parquet")
    table = pq.read_table(tmp_path / "timeline.parquet")
    assert table["running"].to_pylist()[:2] == [None, 4.0]
    assert table["kv_usage"].null_count == len(table)


@pytest.mark.parametrize(("window", "interval"), [(60, 0.5), (8, 0.5), (4, 0.25)])
def test_twice_a_second_or_sixteen_a_window(window: float, interval: float):
    assert timeline.interval_s(window) == interval


def test_idle_look_sees_somebody_elses_work():
    look = timeline.idle_look(Server(sample(0), sample(1, 2), sample(0)).sample, 0.3)
    assert look == timeline.IdleLook(3, {})


def test_idle_look_sees_requests_that_came_and_went():
    server = Server(sample(0, output_tokens=5, decode_steps=1), sample(0, output_tokens=12, decode_steps=9))
    assert timeline.idle_look(server.sample, 0.15) == timeline.IdleLook(0, {"output_tokens": 7})


def test_idle_look_at_an_idle_server_and_at_one_that_does_not_tell():
    assert timeline.idle_look(Server(sample(0, output_tokens=5)).sample, 0) == timeline.IdleLook(0, {})
    assert timeline.idle_look(Server(sample(None)).sample, 0) == timeline.IdleLook(None, {})


def test_idle_look_bears_a_server_that_fails_at_times():
    errors = ConnectionRefusedError(), LabError("500")
    server = Server(errors[0], sample(0, output_tokens=5), errors[1], errors[0], sample(2, output_tokens=6))
    assert timeline.idle_look(server.sample, 0.3) == timeline.IdleLook(2, {"output_tokens": 1})


def test_a_question_is_asked_again_for_some_seconds_only(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(timeline, "PATIENCE_S", 0.25)
    server = Server(*[ConnectionRefusedError()] * 100)
    with pytest.raises(ConnectionRefusedError):
        timeline.patiently(server.sample)
    assert 2 <= server.count <= 4
    with pytest.raises(KeyError):
        timeline.patiently(Server(KeyError("a mistake of ours"), sample(1)).sample)


def test_idle_look_at_a_dead_server_raises(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(timeline, "PATIENCE_S", 0.2)
    with pytest.raises(ConnectionRefusedError):
        timeline.idle_look(Server(ConnectionRefusedError()).sample, 0)
