"""Why a vLLM server ended: the root cause in its log, above the generic last line.

Without it every failed start reads "Engine core initialization failed. See root cause above.", and an engine that died
under load passes for one that stopped in order: its exit code is 0.

The order of search is that of three processes: a crash of a worker, a worker's first error, the engine core's, the
front end's. Texts of vLLM 0.32.0.
"""

from __future__ import annotations

import re

from lab.engines import _failure_texts
from lab.engines._colours import without_colours
from lab.engines.base import Failure

_PREFIX = re.compile(r"^\((?P<process>\S+) pid=\d+\) (?:[A-Z]+ \d\d-\d\d [\d:]{8} \[[\w.]+:\d+\] )?(?P<message>.*)$")
_CRASH = re.compile(r"Segfault encountered|Worker proc \S+ died unexpectedly \(exit code: -\d+\)")
_DIED = re.compile(r"(Worker proc \S+ died unexpectedly \(exit code: (-\d+)\))")
_ERROR = re.compile(
    r"^(?:[\w.]+\.)?\w+(?:Error|Exception|Interrupt)(?:: .*)?$|^\w*(?:Exception|Exit): .*$|^vllm(?: \w+)?: error: "
)
_GENERIC = re.compile(
    r"EngineDeadError|Engine core initialization failed|RuntimeError: cancelled|OSError: \[Errno 24\]|"
    r"WorkerProc initialization failed|Worker failed with error|SystemExit"
)
_DEATH = re.compile(r"EngineCore encountered a fatal error|EngineDeadError|died unexpectedly")
_ORDERLY = re.compile(r"shutdown triggered")
_WORDS_OF_PYDANTIC = re.compile(r"^(.*?) \[type=\w+, input_value=.*$")


def failure(log: str, code: int | None) -> Failure:
    """Why the server ended, from its log and its exit code."""
    lines = [_split(without_colours(raw)) for raw in log.splitlines()]
    causes = _causes(lines)
    detail = "\n".join(dict.fromkeys(causes)) or "\n".join(log.splitlines()[-5:])
    if crash := _crash(lines):
        return Failure("crashed", crash, detail)
    if causes:
        return _failure_texts.made(causes[0], detail)
    return _failure_texts.unexplained(log, code, detail)


def engine_died(log: str) -> bool:
    """Whether the engine behind the front end died, not in the course of an ordinary stop."""
    for line in log.splitlines():
        if _ORDERLY.search(line):
            return False
        if _DEATH.search(line):
            return True
    return False


def _split(raw: str) -> tuple[str, str]:
    """Process (empty: none is named) and message."""
    found = _PREFIX.match(raw)
    return (found["process"], found["message"]) if found else ("", raw)


def _crash(lines: list[tuple[str, str]]) -> str:
    """A worker that ended by a signal: its line, and the native frame where it was."""
    for at, (_, message) in enumerate(lines):
        if not _CRASH.search(message):
            continue
        died = next((found[1] for _, text in lines[at:] if (found := _DIED.search(text))), message.strip(" !"))
        below = lines[at + 1][1].strip() if "Segfault" in message and at + 1 < len(lines) else ""
        frame = below.removeprefix("File ")
        return f"{died}{frame and f' in {frame}'}"[: _failure_texts.REASON_CHARACTERS]
    return ""


def _causes(lines: list[tuple[str, str]]) -> list[str]:
    """Errors of the workers, then of the engine core, then those without a process; generic ones are left out."""
    found: dict[int, list[str]] = {0: [], 1: [], 2: []}
    for at, (process, message) in enumerate(lines):
        if not _ERROR.match(message) or _GENERIC.search(message):
            continue
        rank = 0 if "Worker" in process else 1 if process.startswith("EngineCore") else 2
        text = message.split("error: ", 1)[1] if message.startswith("vllm") else message
        if "ValidationError" in message:
            text = _of_pydantic([below.strip() for _, below in lines[at + 1 : at + 3]]) or text
        found[rank].append(text)
    return [text for rank in sorted(found) for text in found[rank]]


def _of_pydantic(below: list[str]) -> str:
    """The words of a refusal from the lines below its head: its own, or those of a field; empty without any."""
    words = [found[1] for line in below if (found := _WORDS_OF_PYDANTIC.match(line))]
    own = next((text.removeprefix("Value error, ") for text in words if text.startswith("Value error, ")), "")
    return own or (f"{below[0]}: {words[-1]}" if len(below) > 1 and words else "")
