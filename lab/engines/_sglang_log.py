"""What SGLang writes into its log: the effective limits and the cache it allocated.

Without it a server before 0.5.8 does not say how many requests it can run, no server says in which type the cache is
kept, and a limit that speculation reset looks like one that somebody chose.

Grammar of 0.2 to 0.5.23: keys are looked up by name, since their order differs from release to release.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lab.engines._colours import without_colours

_HEAD = re.compile(
    r"^(?:\(([^)]*)\)\s*)?\[((?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d(?:[.,]\d+)?)((?:\s+[A-Z_]+\d+)*)\s*\]\s+(.*)$"
)
_BANNER = re.compile(r"\b(max_total_num_tokens|chunked_prefill_size|max_running_requests|context_len)=(\d+)")
_KV = re.compile(r"KV Cache is allocated\.(?: dtype: (?:torch\.)?(\w+),)? #tokens: (\d+)")
_KV_DTYPE = re.compile(r"Using KV cache dtype: (?:torch\.)?(\w+)")
_RESET = re.compile(r"Max running requests is reset to (\d+) for speculative decoding")


@dataclass(frozen=True)
class Line:
    """One line: its time as written, the ranks it is tagged with (`DP1`), and the message without colours."""

    time: str
    ranks: tuple[str, ...]
    message: str


@dataclass(frozen=True)
class Banner:
    """The limits in force in one data-parallel rank."""

    rank: str
    max_running_requests: int
    max_total_num_tokens: int
    context_len: int
    text: str


@dataclass(frozen=True)
class KvCache:
    """The target model's cache in one rank; the type is None where the release does not write it."""

    dtype: str | None
    tokens: int | None
    text: str


def lines(log: str) -> list[Line]:
    """The complete lines with a time stamp; access lines, tracebacks and what is just being written are left out."""
    parsed = []
    for raw in log[: log.rfind("\n") + 1].splitlines():
        head = _HEAD.match(without_colours(raw))
        if head:
            parsed.append(Line(head[2], tuple(head[3].split()), head[4]))
    return parsed


def banners(log: list[Line]) -> list[Banner]:
    """One for each rank that announced its limits, in the order of the log."""
    found = []
    for line in log:
        values = {key: int(value) for key, value in _BANNER.findall(line.message)}
        if {"max_running_requests", "max_total_num_tokens", "context_len"} <= values.keys():
            values.pop("chunked_prefill_size", None)
            found.append(Banner(data_parallel_rank(line.ranks), text=line.message, **values))
    return found


def kv_cache(log: list[Line]) -> KvCache | None:
    """The first allocation (a draft model's own comes after it), with the type from the line that names one."""
    typed = next((found for line in log if (found := _KV_DTYPE.search(line.message))), None)
    for line in log:
        found = _KV.search(line.message)
        if found:
            text = line.message if found[1] or not typed else f"{typed[0]}; {line.message}"
            return KvCache(found[1] or (typed[1] if typed else None), int(found[2]), text)
    return KvCache(typed[1], None, typed[0]) if typed else None


def reset_limit(log: list[Line]) -> tuple[int, str] | None:
    """The running limit that speculation set because nobody typed one, and the line that says so."""
    for line in log:
        found = _RESET.search(line.message)
        if found:
            return int(found[1]), line.message
    return None


def data_parallel_rank(ranks: tuple[str, ...]) -> str:
    """`DP1` of the tags, empty without data parallelism."""
    return next((rank for rank in ranks if re.fullmatch(r"DP\d+", rank)), "")
