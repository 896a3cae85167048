"""Chunks of answers that were cut before anybody counted their tokens."""

from __future__ import annotations

from typing import Any

import pytest

from tests.load.tables import request, summary


def whole(each: int, source: str = "usage") -> dict:
    """A complete answer of four chunks, done before the window."""
    return request(90, 91, [(91.0 + n, each) for n in range(4)], 95, tokens_source=source)


def cut(**fields: Any) -> dict:
    """An answer that brought five chunks in the window, and none of its counts."""
    times = [(100.5 + n, 1) for n in range(5)]
    return request(100, 100.5, times, 120, **{"error": "aborted", "tokens_source": "chunks", **fields})


@pytest.mark.parametrize(("each", "tokens", "share"), [(2, 10, 1.0), (1, 5, 0.0)])
def test_a_chunk_of_a_cut_answer_carries_what_those_of_complete_ones_do(each: int, tokens: int, share: float):
    measured = summary([whole(each), cut()])
    assert measured["client"]["window_tokens"] == tokens
    assert measured["metrics"]["output_tok_s"] == tokens / 8
    assert measured["client"]["scaled_tokens_share"] == share
    assert measured["client"]["uncounted_tokens_share"] == 1 - share
    assert measured["client"]["tokens_source"] == ("usage + scaled" if share else "usage")
    assert measured["client"]["output_tokens"] == 4 * each + tokens


def test_a_fraction_of_a_token_is_carried_over_to_the_next_chunk():
    mixed = request(90, 91, [(91.0, 2), (92.0, 1)], 95)
    client = summary([mixed, cut()])["client"]
    assert client["window_tokens"] == 8  # five chunks of one and a half


@pytest.mark.parametrize("rows", [[cut()], [whole(2, "chunks"), cut()]])
def test_where_nobody_counted_a_chunk_stays_a_token_and_the_share_is_told(rows: list[dict]):
    client = summary(rows)["client"]
    assert (client["window_tokens"], client["uncounted_tokens_share"], client["scaled_tokens_share"]) == (5, 1, 0)


def test_what_was_counted_as_it_came_is_left_alone():
    client = summary([whole(2), cut(tokens_source="usage.completion_tokens")])["client"]
    assert (client["window_tokens"], client["scaled_tokens_share"], client["uncounted_tokens_share"]) == (5, 0, 0)


def test_a_request_without_a_chunk_has_none_to_scale():
    silent = request(100, None, [], 120, error="aborted", tokens_source="chunks", chunk_s=None, chunk_tokens=None)
    client = summary([whole(2), silent, request(100, 101, [(101.0, 3)], 102)])["client"]
    assert (client["window_tokens"], client["tokens_source"]) == (3, "usage")
