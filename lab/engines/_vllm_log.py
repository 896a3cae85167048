"""What vLLM writes into its log: the cache it could afford, and which kernels its workers chose.

Without it the attention backend and the type of the cache are the front end's wishes: flags that a worker ignored still
stand in /server_info.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lab.engines._colours import without_colours

_PREFIX = re.compile(
    r"^\((?P<process>\S+) pid=\d+\) (?P<level>[A-Z]+) (?P<time>\d\d-\d\d [\d:]{8}) \[[\w.]+:\d+\] (?P<message>.*)$"
)
_KV_SIZE = re.compile(
    r"\w+(?: \+ host)? KV cache size: ([\d,]+) tokens, Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x"
)
_GIVEN = re.compile(r"^non-default args: \{(.*)\}")
_ATTENTION = re.compile(
    r"^Using (?:AttentionBackendEnum\.)?([A-Z0-9_]+) (?:attention )?backend(?: out of potential|\.)"
)


@dataclass(frozen=True)
class Line:
    """One line of one process (`EngineCore`, `Worker_TP0`), its time as written, and the message."""

    process: str
    level: str
    time: str
    message: str


@dataclass(frozen=True)
class KvSize:
    """The cache of one engine, and how many requests of full length it holds at once."""

    tokens: int
    request_tokens: int
    concurrency: float
    text: str


def lines(log: str) -> list[Line]:
    """The complete lines with a process prefix, without colours; access lines and tracebacks are left out."""
    found = (_PREFIX.match(without_colours(raw)) for raw in log[: log.rfind("\n") + 1].splitlines())
    return [Line(one["process"], one["level"], one["time"], one["message"]) for one in found if one]


def kv_sizes(log: list[Line]) -> list[KvSize]:
    """One for each engine core that announced its cache."""
    found = ((line, _KV_SIZE.search(line.message)) for line in log)
    return [
        KvSize(int(one[1].replace(",", "")), int(one[2].replace(",", "")), float(one[3]), line.message)
        for line, one in found
        if one
    ]


def given(log: list[Line], name: str) -> str | None:
    """The value that an option was started with, empty where it was not given; None: the log does not tell."""
    for line in log:
        found = _GIVEN.match(line.message)
        if found:
            value = re.search(rf"'{name}': ([^,]+)", found[1])
            return value[1] if value else ""
    return None


def attention_backend(log: list[Line]) -> tuple[str, str] | None:
    """The backend that a worker took, and its line."""
    for line in log:
        found = _ATTENTION.match(line.message)
        if found:
            return found[1], line.message
    return None
