"""An answer of another form than a reader relies on is no answer: named by path and place, never a traceback."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from lab import engines
from lab.engines._control import Control
from lab.engines.server import Server
from lab.http_session import Shape, content
from tests.engines import web
from tests.engines.test_attach import MODELS, PAGES
from tests.engines.web import Web

OTHERS: tuple[Any, ...] = (None, 7, -1.5, "x", True, [], {}, [7], [None], {"x": 7})
CHECKED = ("/slots", "/props", "/v1/models", "/v1/loads", "/server_info", "/server_info?config_format=json", "/version")


def answer(value: Any, status: int = 200) -> requests.Response:
    made = requests.Response()
    made.status_code = status
    made._content = (value if isinstance(value, str) else json.dumps(value)).encode()
    return made


@pytest.mark.parametrize(
    ("value", "shape", "words"),
    [
        ("<html>", {}, "the answer is no JSON"),
        ("[]", {}, "answer is no object but list"),
        ("null", [float], "answer is no list but null"),
        (
            {"a": [{"n": 1}, {"n": "S3CRET"}]},
            {"a": [{"n": float}]},
            "answer.a[1].n is no number but text",
        ),
        ({"a": True}, {"a": int}, "answer.a is no whole number but boolean"),
        ({"a": 1.5}, {"a": int}, "answer.a is no whole number but number"),
        ({"a": None}, {"a": str}, "answer.a is no text but null"),
        ({}, {"a": object}, "answer has no 'a'"),
        ({"a": 1}, {"a?": (str, {})}, "answer.a is no object but whole number"),
    ],
)
def test_what_is_wrong_is_named_and_not_repeated(value: Any, shape: Shape, words: str) -> None:
    with pytest.raises(requests.RequestException) as caught:
        content(answer(value), "/page", shape)
    assert "S3CRET" not in str(caught.value)
    assert str(caught.value) == f"/page: {words}"


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        ({"a": 1, "b": "more"}, {"a": float}),
        ({"a": None}, {"a?": int}),
        ({}, {"a?": int}),
        ({"a": None}, {"a": object}),
        ({"a": "text"}, {"a": (str, {})}),
        ([], [int]),
        (7, object),
    ],
)
def test_what_fits_is_returned_as_it_is(value: Any, shape: Shape) -> None:
    assert content(answer(value), "/page", shape) == value


def replaced(value: Any, depth: int = 6) -> Iterator[Any]:
    """Copies of a JSON value with one part of it, at any depth, of another form or left out."""
    yield from OTHERS
    if not depth or not isinstance(value, dict | list):
        return
    for key in list(value) if isinstance(value, dict) else range(min(2, len(value))):
        for part in replaced(value[key], depth - 1):
            changed = copy.copy(value)
            changed[key] = part
            yield changed
        changed = copy.copy(value)
        del changed[key]
        yield changed


def asked(server: Server) -> None:
    server.look()
    server.sample()
    server.describe()


def pages_of(engine: str) -> dict[str, Any]:
    """The captured pages, with what these servers did not happen to say."""
    pages = copy.deepcopy(PAGES[engine]())
    if engine == "sglang":
        info = pages["/server_info"]
        speculating = {"speculative_algorithm": "EAGLE", "speculative_num_draft_tokens": 4, "env_vars": {"A": "1"}}
        info["internal_states"] = [{**info["internal_states"][0], **speculating, "decode_cuda_graph_bs": [1, 2]}]
        info["speculative_algorithm"] = "EAGLE"
    for page in pages.values():  # what no reader looks at need not be changed
        for row in page if isinstance(page, list) else ():
            row.pop("params", None)
    return pages


@pytest.mark.parametrize("engine", PAGES)
def test_no_change_of_form_is_more_than_a_refusal(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = pages_of(engine)
    served = dict(pages)

    def get(control: Control, path: str) -> requests.Response:
        return answer(served[path]) if path in served else answer("", 404)

    monkeypatch.setattr(Control, "get", get)
    refused = 0
    for path in CHECKED:
        for page in replaced(pages[path]) if path in pages else ():
            served[path] = page
            try:
                asked(engines.readers()[engine].server("http://h", MODELS[engine]))
            except requests.RequestException as error:
                assert str(error).startswith(path)
                refused += 1
            served[path] = pages[path]
    assert refused > 20
    asked(engines.readers()[engine].server("http://h", MODELS[engine]))


def test_an_older_snapshot_of_another_form_is_refused_too() -> None:
    for loads in ({"loads": []}, [7], [{"num_reqs": "16"}]):
        with Web(web.sglang(**{"/v1/loads": None, "/get_load": loads})) as server:
            found = engines.readers()["sglang"].attach(server.url, "/models/tiny")
            with pytest.raises(requests.RequestException, match=r"^/get_load: "):
                found.sample()


def test_a_page_that_a_proxy_answers_is_named() -> None:
    with Web(web.vllm()) as server:
        found = engines.readers()["vllm"].attach(server.url, "m")
        server.pages["/version"] = "<html>sign in</html>"
        with pytest.raises(requests.RequestException, match=r"^/version: the answer is no JSON$"):
            found.describe()
