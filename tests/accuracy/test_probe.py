"""The probe against a server of this test that knows its sums, or some of them."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import requests

from lab.accuracy.gate import FAIL, gate
from lab.accuracy.probe import parse, probe, questions


@contextmanager
def answering(answer: Callable[[int, int], str], bodies: list[dict[str, Any]], status: int = 200) -> Iterator[str]:
    """A chat server that answers each sum by `answer` and keeps what it was asked."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            bodies.append({**body, "path": self.path, "key": self.headers.get("Authorization")})
            a, b = map(int, re.findall(r"\d+", body["messages"][0]["content"]))
            reply = json.dumps({"choices": [{"message": {"content": answer(a, b)}}]}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def asked(answer: Callable[[int, int], str], **options: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    bodies: list[dict[str, Any]] = []
    with answering(answer, bodies) as url:
        return probe(url, "tiny", items=40, **options), bodies


def test_right_wrong_and_unparsed_are_kept_by_id() -> None:
    def answer(a: int, b: int) -> str:
        return "no idea" if a % 3 == 0 else str(a + b + (a % 3 == 1))

    record, _ = asked(answer)
    sides = {key: int(key.partition("+")[0]) % 3 for key in questions(40)}
    assert record["items"] == 40
    assert record["right"] == [key for key, rest in sides.items() if rest == 2]
    assert record["wrong"] == [key for key, rest in sides.items() if rest != 2]
    assert record["unparsed"] == sum(rest == 0 for rest in sides.values())


def test_every_question_is_asked_once_and_greedily() -> None:
    record, bodies = asked(lambda a, b: str(a + b), extras={"cache_prompt": False}, headers={"Authorization": "k"})
    assert len(record["right"]) == 40
    assert sorted(body["messages"][0]["content"] for body in bodies) == sorted(q for q, _ in questions(40).values())
    for body in bodies:
        assert (body["temperature"], body["model"], body["cache_prompt"]) == (0, "tiny", False)
        assert (body["path"], body["key"]) == ("/v1/chat/completions", "k")


def test_the_protocol_names_how_it_was_asked_and_not_what_was_answered() -> None:
    right, wrong = asked(lambda a, b: str(a + b))[0], asked(lambda a, b: "0")[0]
    other = asked(lambda a, b: str(a + b), extras={"top_k": 3})[0]
    assert right["protocol"] == wrong["protocol"] != other["protocol"]


def test_two_probes_make_a_gate() -> None:
    right, broken = asked(lambda a, b: str(a + b))[0], asked(lambda a, b: str(a + b + (a % 4 == 0)))[0]
    found = gate(right, broken, 5)
    assert found is not None and found.outcome == FAIL
    assert found.lost == len(broken["wrong"])


def test_a_server_that_fails_is_no_record() -> None:
    with answering(lambda a, b: "1", [], status=500) as url, pytest.raises(requests.RequestException):
        probe(url, "tiny", items=4)


@pytest.mark.parametrize(
    ("content", "value"),
    [
        ("42", 42),
        ("17 + 25 = 42", 42),
        ("The answer is 1,042.", 1042),
        ("<think>17 and 25 … 41?</think>\n42", 42),
        ("**42**", 42),
        ("-3", -3),
        ("forty-two", None),
        ("", None),
        (None, None),
    ],
)
def test_the_last_number_of_an_answer_counts(content: str | None, value: int | None) -> None:
    assert parse(content) == value


def test_the_questions_are_the_same_every_time_and_more_items_keep_the_first() -> None:
    assert questions(50) == questions(50)
    assert list(questions(50)) == list(questions(200))[:50]
    assert all(answer == sum(map(int, key.split("+"))) for key, (_, answer) in questions(50).items())
