"""The kind `trace`: requests at the times at which they once came.

Without it a server is tuned for a steady stream, and meets bursts and shared beginnings only in production.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.errors import InputError
from lab.load.kinds import _lines
from lab.load.kinds._order import addressed, tagged, tags
from lab.load.kinds._words import Words
from lab.load.kinds.base import Ask, Item, Kind, Material, register

BLOCK_TOKENS = 512
"""Tokens behind one entry of `hash_ids`, as in the traces published with Mooncake."""
MILLISECONDS = 1000.0


@dataclass(frozen=True)
class Due:
    """One line: when (seconds of the trace), what to ask (None: words of `input_tokens`), and the cap on the answer."""

    at_s: float
    prompt: Item | None
    input_tokens: int | None
    hash_ids: tuple[Any, ...]
    cap: dict[str, int]


@register
class Trace(Kind):
    """A JSON-lines or CSV file with a time on each line: `timestamp` in milliseconds, or `at_s` in seconds.

    What is asked is `messages`, `prompt` or `text`, or a length: `input_length`, which random words fill; equal
    `hash_ids` stand for equal blocks of 512 tokens. The answer's cap is `output_tokens` or `output_length`, else
    the workload's. Times must not fall; `speed: 2` lets the requests come twice as fast. Requests too long for the
    server are left out. The list is never gone through again: it ends when the trace does.
    """

    name = "trace"
    synthesises = True
    needs = frozenset({"path"})
    takes = frozenset({"thinking", "speed"})
    brings_output_tokens = True
    brings_arrivals = True

    def check(self, workload: Any, folder: Path, seconds: float) -> None:
        due, _ = _requests(workload, folder)
        lasts_s = (due[-1].at_s - due[0].at_s) / (workload.speed or 1.0)
        if lasts_s < seconds:
            raise InputError(
                f"{folder / workload.path}: ends after {lasts_s:g} s, warm-up and window take {seconds:g} s; "
                "shorten the window or give a longer trace"
            )

    def compose(self, ask: Ask) -> Material:
        due, left_out = _requests(ask.workload, ask.folder)
        api = ask.workload.api or _lines.usual_api([request.prompt for request in due if request.prompt])
        synthetic = any(request.prompt is None for request in due)
        words = Words(ask, api) if synthetic else None
        start_s, speed = due[0].at_s, ask.workload.speed or 1.0
        items: list[Item] = []
        numbered = tags(ask.salt)
        for number, request in enumerate(due):
            if len(items) == ask.count:
                break
            if not _fits(ask, request, api):
                left_out += 1
                continue
            item = tagged(request.prompt, next(numbered)) if request.prompt else _filled(words, request, number)
            items.append(addressed(item, api) | request.cap | {"at_s": (request.at_s - start_s) / speed})
        if not items and ask.count:
            raise InputError(
                f"{_lines.resolve(ask.folder, ask.workload.path)}: no request fits into "
                f"{ask.max_prompt_tokens} tokens; lengthen the server's context"
            )
        return Material(
            items,
            api,
            left_out=left_out,
            reuse=any(request.hash_ids for request in due),
            synthetic=synthetic,
            input_tokens_exact=words.as_ids if words else None,
            length_source=words.source if words else None,
        )


def _fits(ask: Ask, request: Due, api: str) -> bool:
    if request.prompt:
        return ask.fits(_lines.all_text(request.prompt), templated=api == "chat")
    return ask.max_prompt_tokens is None or request.input_tokens <= ask.max_prompt_tokens


def _filled(words: Words, request: Due, number: int) -> Item:
    """Blocks that requests share by their hash, then words of the request's own; the last block may be cut short."""
    blocks, rest = [], request.input_tokens
    for name in request.hash_ids:
        if rest < BLOCK_TOKENS:
            break
        blocks.append((f"block {name}", BLOCK_TOKENS))
        rest -= BLOCK_TOKENS
    partial = rest and len(blocks) < len(request.hash_ids)
    if partial:
        blocks.append((f"block {request.hash_ids[len(blocks)]}", rest))
        rest = 0
    return words.item(f"request {number}", rest, blocks)


def _requests(workload: Any, folder: Path) -> tuple[list[Due], int]:
    """The requests of the file, and how many lines ask nothing."""
    path = _lines.resolve(folder, workload.path)
    requests: list[Due] = []
    silent = 0
    for line in _lines.read(path):
        request = _request(line, workload)
        if request is None:
            silent += 1
            continue
        before_s = requests[-1].at_s if requests else 0.0
        if request.at_s < before_s:
            raise line.error(f"is due at {request.at_s:g} s, before the line above it ({before_s:g} s); sort the file")
        requests.append(request)
    if not requests:
        raise InputError(f"{path}: in no conversation does anybody ask")
    return requests, silent


def _request(line: _lines.Line, workload: Any) -> Due | None:
    at_s, stamp_ms = line.number("at_s"), line.number("timestamp")
    if at_s is None and stamp_ms is None:
        raise line.error("has no time; give timestamp in milliseconds or at_s in seconds")
    due_s = at_s if at_s is not None else stamp_ms / MILLISECONDS
    if line.has_prompt():
        prompt = line.prompt()
        if prompt is None:
            return None
        line.require_chat(prompt, workload.api)
        return Due(due_s, prompt, None, (), line.cap(workload.output_tokens))
    length = line.count("input_length")
    if length is None:
        raise line.error("says not what to ask; give messages, prompt, text or input_length")
    hashes = line.content.get("hash_ids") or []
    if not isinstance(hashes, list):
        raise line.error(f"hash_ids: must be a list, got {hashes!r}")
    return Due(due_s, None, length, tuple(hashes), line.cap(workload.output_tokens))
