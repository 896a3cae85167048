"""The table of requests: what is written is what is read, however many processes wrote it."""

from __future__ import annotations

import math
from array import array
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sse_server import DONE, ROLE, delta, usage

from lab.errors import InputError
from lab.load import record
from lab.load.answer import Answer
from lab.load.events import Fault
from lab.load.record import Request

NAMES = """request client process prompt phase max_tokens due_s sent_s first_event_s first_token_s end_s prompt_tokens
    cached_tokens output_tokens reasoning_tokens reasoning_seen first_chunk_tokens tokens_source draft_tokens
    draft_accepted finish_reason status error error_text retry_after_s reused repeats server_queue_s server_prefill_s
    server_decode_s server_e2e_s server_started_s server_finished_s chunk_s chunk_tokens"""


def answered(number: int, sent_s: float, texts: int = 2, fault: Fault | None = None, process: int = 0) -> Request:
    """A request whose answer brought that many chunks, one second apart."""
    answer = Answer()
    for index, piece in enumerate([ROLE, *[delta(content="a")] * texts, delta("stop"), usage(texts), DONE]):
        answer.feed(piece, sent_s + 1 + index)
    answer.settle()
    request = Request(number, number % 4, process, number, 8, sent_s, answer, sent_s=sent_s, end_s=sent_s + 9)
    request.status, request.fault, request.reused = 200, fault, bool(number)
    return request


def unsent(number: int, due_s: float) -> Request:
    """A request that found no slot."""
    return Request(number, 0, 0, 0, 8, due_s, Answer(), fault=Fault("not-sent", "no slot"))


def test_columns_are_those_that_others_read():
    assert record.schema().names == NAMES.split()


def test_a_row_holds_the_request_and_its_answer(tmp_path: Path):
    path = tmp_path / "requests.parquet"
    record.write([answered(3, 100.0)], 50.0, 150.0, path)
    row = record.read(path).iloc[0]
    assert (row.request, row.client, row.prompt, row.max_tokens, row.status) == (3, 3, 3, 8, 200)
    assert (row.phase, row.due_s, row.sent_s, row.end_s) == ("window", 100.0, 100.0, 109.0)
    assert (row.first_event_s, row.first_token_s, row.first_chunk_tokens) == (101.0, 102.0, 1)
    assert (row.prompt_tokens, row.output_tokens, row.tokens_source, row.finish_reason) == (7, 2, "usage", "stop")
    assert (bool(row.reused), bool(row.repeats), bool(row.reasoning_seen)) == (True, False, False)
    assert pd.isna([row.error, row.error_text, row.retry_after_s, row.cached_tokens, row.server_queue_s]).all()
    assert row.chunk_s.tolist() == [102.0, 103.0]
    assert row.chunk_tokens.tolist() == [1, 1]


def test_fault_and_missing_stay_apart(tmp_path: Path):
    path = tmp_path / "requests.parquet"
    record.write([unsent(0, 160.0), answered(1, 10.0, fault=Fault("stalled", "no byte"))], 50.0, 150.0, path)
    frame = record.read(path)
    assert frame.error.tolist() == ["not-sent", "stalled"]
    assert frame.error_text.tolist() == ["no slot", "no byte"]
    assert frame.phase.tolist() == ["drain", "warmup"]
    lost = frame.iloc[0]
    unknown = [
        lost.sent_s,
        lost.output_tokens,
        lost.tokens_source,
        lost.reused,
        lost.reasoning_seen,
        lost.first_token_s,
    ]
    assert pd.isna(unknown).all()
    assert len(lost.chunk_s) == len(lost.chunk_tokens) == 0


@pytest.mark.parametrize(
    ("at_s", "opened_s", "expected"),
    [(1, None, "warmup"), (1, 2, "warmup"), (2, 2, "window"), (4.9, 2, "window"), (5, 2, "drain")],
)
def test_phase_follows_from_the_time(at_s: float, opened_s: float | None, expected: str):
    assert record.phase(at_s, opened_s, None if opened_s is None else 5) == expected


def test_nothing_sent_is_an_empty_table(tmp_path: Path):
    path = tmp_path / "requests.parquet"
    record.write([], None, None, path)
    frame = record.read(path)
    assert (len(frame), list(frame)) == (0, NAMES.split())


@given(st.lists(st.lists(st.floats(0, 1e9), max_size=9), max_size=12), st.integers(1, 5))
@settings(deadline=None, max_examples=40)
def test_what_is_written_is_what_is_read(tmp_path_factory, arrivals: list[list[float]], rows: int):
    requests = []
    for number, times in enumerate(arrivals):
        answer = Answer()
        answer.chunk_s, answer.chunk_tokens = array("d", times), array("i", range(len(times)))
        requests.append(Request(number, 0, 0, 0, 8, 1.0, answer, sent_s=2.0))
    path = tmp_path_factory.mktemp("record") / "requests.parquet"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record, "ROWS", rows)
        record.write(requests, None, None, path)
    frame = record.read(path)
    assert [list(times) for times in frame.chunk_s] == arrivals
    assert [list(tokens) for tokens in frame.chunk_tokens] == [list(range(len(times))) for times in arrivals]
    plain = pq.read_table(path).to_pandas()
    for name in frame:
        if not name.startswith("chunk_"):
            pd.testing.assert_series_equal(frame[name], plain[name])


@pytest.mark.parametrize("rows", [1, 2, 3, 100])
def test_tables_of_several_processes_become_one_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int):
    monkeypatch.setattr(record, "ROWS", rows)
    paths = [tmp_path / f"{process}.parquet" for process in range(3)]
    for process, path in enumerate(paths):
        requests = [answered(number, 100.0 + number, texts=number, process=process) for number in range(process, 12, 3)]
        record.write(requests, 50.0, 150.0, path)
    record.merge(paths, tmp_path / "all.parquet")
    frame = record.read(tmp_path / "all.parquet")
    assert frame.request.tolist() == list(range(12))
    assert frame.process.tolist() == [0, 1, 2] * 4
    assert [len(times) for times in frame.chunk_s] == list(range(12))


def test_lists_are_slices_not_copies(tmp_path: Path):
    path = tmp_path / "requests.parquet"
    record.write([answered(0, 1.0), answered(1, 2.0)], None, None, path)
    frame = record.read(path)
    assert frame.chunk_s[0].base is not None
    assert np.shares_memory(frame.chunk_s[0].base, frame.chunk_s[1].base)
    assert math.isclose(frame.chunk_s[1][0], 4.0)


@pytest.mark.parametrize("content", [None, b"", b"PAR1 and no more"])
def test_table_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None):
    path = tmp_path / "requests.parquet"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"requests\.parquet"):
        record.read(path)
