"""Counting with the server's tokenizer: all answers that nobody counted, or none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from scripted import job
from sse_server import DONE, delta, usage

from lab.errors import LabError
from lab.load import tokenizer
from lab.load.answer import Answer
from lab.load.recount import recount


def answer(*texts: str, counted: bool = False) -> SimpleNamespace:
    """A request with an answer of these chunks."""
    one = Answer("chat")
    for number, text in enumerate(texts):
        one.feed(delta(content=text), float(number))
    one.feed(delta("stop") + (usage(9) if counted else b"") + DONE, 9.0)
    one.close(9.0)
    return SimpleNamespace(answer=one)


def counting(monkeypatch: pytest.MonkeyPatch, found: Any) -> None:
    """Let `found` be the server's tokenizer."""
    monkeypatch.setattr(tokenizer, "find", lambda *arguments: found)


def words(text: str) -> list[int]:
    """A token for each word; a bad one is not answered."""
    if "bad" in text:
        raise LabError("the tokenizer does not answer")
    return [0] * len(text.split())


def test_only_answers_that_nobody_counted_are_recounted(monkeypatch: pytest.MonkeyPatch):
    told: list[int] = []
    counting(monkeypatch, SimpleNamespace(tokens=words))
    requests = [answer("one two ", "three"), answer("a", "b", counted=True), answer()]
    recount(job("http://x"), requests, lambda: told.append(1))
    assert [request.answer.output_tokens for request in requests] == [3, 9, 0]
    assert [request.answer.tokens_source for request in requests] == ["tokenizer", "usage", "chunks"]
    assert list(requests[0].answer.chunk_tokens) == [2, 1]
    assert told


def test_a_connection_that_breaks_once_is_no_failure(monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []

    def breaks_at_first(text: str) -> list[int]:
        asked.append(text)
        return words("bad" if len(asked) == 1 else text)

    counting(monkeypatch, SimpleNamespace(tokens=breaks_at_first))
    requests = [answer("one two ", "three")]
    recount(job("http://x"), requests, lambda: None)
    assert requests[0].answer.output_tokens == 3


def test_one_failure_leaves_all_as_they_were(monkeypatch: pytest.MonkeyPatch):
    counting(monkeypatch, SimpleNamespace(tokens=words))
    requests = [answer("one two ", "three"), answer("bad"), *(answer("four five") for _ in range(20))]
    recount(job("http://x"), requests, lambda: None)
    assert {request.answer.tokens_source for request in requests} == {"chunks"}
    assert requests[0].answer.output_tokens == 2


def test_a_server_without_a_tokenizer(monkeypatch: pytest.MonkeyPatch):
    counting(monkeypatch, None)
    requests = [answer("one two ", "three")]
    recount(job("http://x"), requests, lambda: None)
    assert requests[0].answer.tokens_source == "chunks"


def test_nothing_to_count_asks_nobody(monkeypatch: pytest.MonkeyPatch):
    def find(*arguments: object) -> None:
        raise AssertionError("nobody should be asked")

    monkeypatch.setattr(tokenizer, "find", find)
    recount(job("http://x"), [answer("a", "b", counted=True)], lambda: None)
