"""A server is ready when a completion of the expected model has come, and a start that fails says why."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lab.engines._llamacpp_facts import LlamaCppServer
from lab.engines._readiness import Start, listening, no_completion
from lab.engines.base import ArmFailed, Failure
from tests.engines.web import Web

PATH = "/v1/completions"
SAID = {"model": "m", "usage": {"completion_tokens": 4}}


class Process:
    """A process that has ended with a code, or runs."""

    def __init__(self, code: int | None = None) -> None:
        self.code = code

    def poll(self) -> int | None:
        """The code."""
        return self.code


def start(server: LlamaCppServer, allowed_s: float, process: Process | None = None, **options: Any) -> Start:
    """A start that begins at once; a failure quotes the log."""
    process = process or Process()
    options = {"poll_seconds": 0.01, **options}
    return Start(
        "a", server, process, lambda log, code: Failure(f"code {code}", log), time.monotonic(), allowed_s, **options
    )


def failure(asked: Start) -> Failure:
    with pytest.raises(ArmFailed, match="arm 'a' failed") as caught:
        asked.wait()
    assert asked.server.ready_seconds is None
    return caught.value.failure


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "server.log"


def test_the_address_is_taken_from_a_whole_line_of_the_log() -> None:
    assert listening("\nLISTEN http://h:1\nmore") == "http://h:1"
    assert listening("\nLISTEN http://h:1") == listening("no LISTEN here\n") == ""


def test_a_server_found_in_its_log_is_asked_until_it_completes(log: Path) -> None:
    with Web({PATH: (503, {"error": "Loading model"})}) as web:
        log.write_text(f"BUILD 1\n\nLISTEN {web.url}\n")
        server = LlamaCppServer("", "m", log=log)

        def ask(server: LlamaCppServer, seconds: float) -> str:
            said = no_completion(server, seconds, {"temperature": 0})
            web.pages[PATH] = SAID
            return said

        start(server, 20, ask=ask).wait()
    assert server.url == web.url
    assert server.ready_seconds is not None
    assert [body["temperature"] for body in web.bodies] == [0, 0]
    assert web.bodies[0].items() >= {"model": "m", "max_tokens": 4, "ignore_eos": True}.items()


def test_an_address_known_beforehand_counts_from_the_line_that_says_so(log: Path) -> None:
    """Another server, that holds the port, is not taken for the one that is loading."""
    with Web({PATH: SAID, "/health": ""}) as web:
        log.write_text("loading\n")
        server = LlamaCppServer("", "m", log=log)
        address = partial(lambda url, log: url if "startup complete" in log else "", web.url)
        found = failure(start(server, 0.1, address=address))
        assert (found.kind, web.bodies) == ("start-timeout", [])
        log.write_text("loading\nApplication startup complete.\n")
        start(server, 20, address=address).wait()
    assert server.url == web.url


def test_a_process_that_ends_is_not_waited_for(log: Path) -> None:
    log.write_text("no memory\n")
    began_s = time.monotonic()
    found = failure(start(LlamaCppServer("", "m", log=log), 60, Process(3)))
    assert found == Failure("code 3", "no memory\n")
    assert time.monotonic() - began_s < 10


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ((500, {"error": "no slot"}), 'a completion answers 500: {"error": "no slot"}'),
        ((302, ""), "a completion answers 302"),
        ({**SAID, "model": "other"}, "the completion came from model 'other'"),
        ({**SAID, "usage": {"completion_tokens": 0}}, "the completion had no token"),
        ([], f"a completion failed: {PATH}: answer is no object but list"),
        ({"model": "m"}, f"a completion failed: {PATH}: answer has no 'usage'"),
    ],
)
def test_without_a_completion_in_time_the_reason_and_the_last_line_are_told(log: Path, page: Any, words: str) -> None:
    with Web({PATH: page, "/health": ""}) as web:
        log.write_text(f"\nLISTEN {web.url}\nwarming up\n\n")
        found = failure(start(LlamaCppServer("", "m", log=log), 0.3))
    assert (found.kind, found.healthy) == ("start-timeout", True)
    assert words in found.reason
    assert found.reason.endswith("; last line: warming up")


def test_a_server_that_never_listens_is_not_healthy(log: Path) -> None:
    found = failure(start(LlamaCppServer("", "m", log=log), 0.05))
    assert (found.kind, found.healthy) == ("start-timeout", False)
    assert found.reason.endswith(": it did not listen; last line: nothing")


def test_a_key_goes_along() -> None:
    with Web({PATH: SAID}, key="K") as web:
        assert no_completion(LlamaCppServer(web.url, "m"), 5).startswith("a completion answers 401")
        assert no_completion(LlamaCppServer(web.url, "m", headers={"Authorization": "Bearer K"}), 5) == ""


def test_a_server_is_stopped_when_the_wait_is_broken_off(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = []
    server = LlamaCppServer("http://127.0.0.1:9", "m", log=log)
    monkeypatch.setattr(server, "stop", lambda: stopped.append(True))

    def interrupted(server: LlamaCppServer, seconds: float) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start(server, 5, ask=interrupted).wait()
    assert stopped == [True]
