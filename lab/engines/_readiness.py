"""Wait until a server that the lab has started really answers, or say why it does not.

Without it each engine would take another sign for readiness, and most signs lie: a health check that answers before a
slot exists, somebody else's server at the port, a process that has long ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import requests

from lab.engines.base import ArmFailed, Failure
from lab.engines.server import Server
from lab.http_session import content, session

_PROBE_TOKENS = 4  # enough that llama.cpp's `graphs reused` has moved when describe() first reads it
_ANSWER = {"model?": str, "usage": {"completion_tokens": int}}


class Running(Protocol):
    """The process that is waited for."""

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""


def listening(log: str) -> str:
    """The URL on a launcher's own line `LISTEN http://…`, once that line is complete; else empty."""
    _, found, rest = log.partition("\nLISTEN ")
    return rest.partition("\n")[0].strip() if found and "\n" in rest else ""


def no_completion(server: Server, seconds: float, fields: Mapping[str, Any] | None = None) -> str:
    """Why no completion of the expected model comes by the OpenAI API; empty when one has come.

    `fields` are further ones of the request. Counters move, so read them afterwards.
    """
    body = {"model": server.model, "prompt": "Hello", "max_tokens": _PROBE_TOKENS, "ignore_eos": True, **(fields or {})}
    path = "/v1/completions"
    try:
        with session(server.headers, close=True) as made:
            answer = made.post(server.url + path, json=body, timeout=max(0.1, seconds), allow_redirects=False)
        if answer.status_code != requests.codes.ok:
            told = server.control.concealed(" ".join(answer.text.split()), 100)
            return f"a completion answers {answer.status_code}: {told}"
        said = content(answer, path, _ANSWER)
    except requests.RequestException as error:
        return f"a completion failed: {error}"
    if said.get("model") != server.model:
        return f"the completion came from model '{said.get('model')}'"
    return "" if said["usage"]["completion_tokens"] >= 1 else "the completion had no token"


@dataclass(frozen=True)
class Start:
    """One start of a server, from its process to its first completion.

    failure: why it ended, from its log and exit code; started_s: monotonic; allowed_s: from then on; address: from the
    log, the URL to ask, empty until the server listens. One that is known beforehand counts only from then on, too:
    another server may hold the port. ask: why no completion comes within so many seconds, empty when one has come.
    """

    arm: str
    server: Server
    process: Running
    failure: Callable[[str, int | None], Failure]
    started_s: float
    allowed_s: float
    address: Callable[[str], str] = listening
    ask: Callable[[Server, float], str] = no_completion
    poll_seconds: float = 0.05

    def wait(self) -> None:
        """Until a completion has come: then `url` and `ready_seconds` of the server are set.

        Raises ArmFailed when the process ends or the time is over; the server is stopped at any exception.
        """
        try:
            self._wait()
        except BaseException:
            self.server.stop()
            raise
        self.server.ready_seconds = round(time.monotonic() - self.started_s, 3)

    def _wait(self) -> None:
        server, reason = self.server, "it did not listen"
        while (left_s := self.started_s + self.allowed_s - time.monotonic()) > 0:
            code = self.process.poll()
            if code is not None:
                raise ArmFailed(self.arm, self.failure(server.log_text(), code))
            server.url = server.url or self.address(server.log_text())
            if server.url:
                reason = self.ask(server, left_s)
                if not reason:
                    return
            time.sleep(self.poll_seconds)
        last = next((line.strip() for line in reversed(server.log_text().splitlines()) if line.strip()), "nothing")
        text = f"no completion within the time allowed (limits.start_seconds): {reason}; last line: {last[:200]}"
        raise ArmFailed(self.arm, Failure("start-timeout", text, healthy=server.healthy()))
