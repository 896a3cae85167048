"""The server's tokenizer: found in every dialect, absent where there is none, and loud when it breaks off."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from lab.errors import LabError
from lab.load import tokenizer

Answers = Callable[[str, dict[str, Any]], tuple[int, Any]]


@pytest.fixture
def serve() -> Iterator[Callable[[Answers], str]]:
    """Starts a server that answers POSTs with (status, JSON): `serve(answers)` gives its address; requests are kept in
    `answers.seen` when it has one."""
    servers = []

    def start(answers: Answers) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, content = answers(self.path, body | {"_key": self.headers.get("Authorization")})
                data = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def llamacpp(path: str, body: dict[str, Any]) -> tuple[int, Any]:
    """As captured from llama.cpp: a body without `content` is answered with no tokens."""
    if path == "/tokenize":
        assert not body.get("add_special")
        return 200, {"tokens": [len(word) for word in body.get("content", "").split()]}
    return 200, {"content": " ".join("x" * number for number in body["tokens"])}


def openai(field: str) -> Answers:
    """vLLM's and SGLang's dialect; they differ in the name of the detokenized text."""

    def answers(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if body.get("model") != "m" or (path == "/tokenize" and "prompt" not in body):
            return 400, {"error": "bad request"}
        if path == "/tokenize":
            ids = [len(word) for word in body["prompt"].split()]
            return 200, {
                "count": len(ids),
                "max_model_len": 99,
                "tokens": [0, *ids] if body["add_special_tokens"] else ids,
            }
        return 200, {field: " ".join("x" * number for number in body["tokens"])}

    return answers


@pytest.mark.parametrize(
    ("answers", "name"), [(llamacpp, "llama.cpp"), (openai("prompt"), "vLLM"), (openai("text"), "SGLang")]
)
def test_every_dialect_is_found(serve: Callable[[Answers], str], answers: Answers, name: str):
    found = tokenizer.find(serve(answers) + "/v1", "m")
    assert found is not None
    assert name in found.source
    assert found.tokens("one three") == [3, 5]
    assert found.text([3, 5]) == "xxx xxxxx"


@pytest.mark.parametrize(
    "answer", [(404, {"error": "no such route"}), (200, b"<html>"), (200, []), (200, {"tokens": ["a"]}), (200, {})]
)
def test_a_server_without_a_tokenizer_has_none(serve: Callable[[Answers], str], answer: tuple[int, Any]):
    assert tokenizer.find(serve(lambda *_: answer), "m") is None


def test_a_server_that_is_gone_has_none():
    assert tokenizer.find("http://127.0.0.1:9", "m") is None


def test_headers_go_with_every_request(serve: Callable[[Answers], str]):
    def locked(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        return llamacpp(path, body) if body["_key"] == "Bearer k" else (401, {})

    url = serve(locked)
    assert tokenizer.find(url, "m") is None
    found = tokenizer.find(url, "m", {"Authorization": "Bearer k"})
    assert found is not None
    assert found.tokens("one") == [3]


def test_a_tokenizer_that_breaks_off_is_an_error_that_names_it(serve: Callable[[Answers], str]):
    broken = False

    def answers(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        return (500, {}) if broken else llamacpp(path, body)

    url = serve(answers)
    found = tokenizer.find(url, "m")
    assert found is not None
    broken = True
    with pytest.raises(LabError, match=f"{url}/tokenize: the tokenizer does not answer"):
        found.tokens("one")
    with pytest.raises(LabError, match=f"{url}/detokenize: the tokenizer does not answer"):
        found.text([1])


def test_a_detokenizer_that_says_nothing_is_an_error(serve: Callable[[Answers], str]):
    found = tokenizer.find(serve(lambda path, body: llamacpp(path, body) if path == "/tokenize" else (200, {})), "m")
    assert found is not None
    with pytest.raises(LabError, match="answers without a text"):
        found.text([1])
