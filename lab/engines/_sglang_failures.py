"""Why an SGLang server ended: the exception of its scheduler, above "Received sigquit from a child process".

Without it every failed start reads "It usually means the child failed", and dozens of harmless import errors of models
that nobody asked for stand in front of the real one.

Texts of SGLang 0.5.23.
"""

from __future__ import annotations

import re

from lab.engines import _failure_texts
from lab.engines._colours import without_colours
from lab.engines.base import Failure

_HEAD = re.compile(r"^(?:\([^)]*\)\s*)?\[[\d\-:., ]+(?:\s+[A-Z_]+\d+)*\s*\]\s+")
_BLOCK = re.compile(r"hit an exception|Traceback \(most recent call last\)|Exception in (?:thread|callback)")
_ERROR = re.compile(r"^(?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt)(?:: .*)?$")
_COMMAND_LINE = re.compile(r"^(?:[\w.-]+\.py|sglang[\w ]*): (error: .*)$")
_WATCHDOG = re.compile(r"watchdog timeout", re.IGNORECASE)
_BIND = re.compile(r"\[Errno 98\].*address already in use|Address already in use|Port is already in use", re.IGNORECASE)
_NOT_A_CAUSE = re.compile(r"Ignore import error|^Received sigquit|kill_process_tree|SystemExit")
_NATIVE = re.compile(r"^Fatal Python error: ")


def failure(log: str, code: int | None) -> Failure:
    """Why the server ended, from its log and its exit code."""
    lines = [_HEAD.sub("", without_colours(raw)).rstrip() for raw in log.splitlines()]
    causes = list(dict.fromkeys(_causes(lines)))
    detail = "\n".join(causes) or "\n".join(log.splitlines()[-5:])
    if causes:
        return _failure_texts.made(causes[0], detail)
    return _failure_texts.unexplained(log, code, detail)


def _causes(lines: list[str]) -> list[str]:
    """The errors that ended a traceback, in the order of the log; a hang and a refused command line count as such."""
    found, inside = [], False
    for line in lines:
        if _NOT_A_CAUSE.search(line):
            continue
        if _BLOCK.search(line):
            inside = True
        elif words := _COMMAND_LINE.match(line):
            found.append(words[1])
        elif _WATCHDOG.search(line) or _BIND.search(line) or _NATIVE.match(line):
            found.append(line)
        elif inside and _ERROR.match(line):
            found.append(line)
            inside = False
    return found
