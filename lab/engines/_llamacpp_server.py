"""Serve llama.cpp's own HTTP server from the xllamacpp module, or check flags for it.

Without it there is nothing to launch: the wheel has no executable. All HTTP routes are the engine's own; this
script only sets attributes of `CommonParams`, starts `Server` and stops it cleanly.

Run by file path with the Python of the arm's runtime (standard library and xllamacpp only):

    python _llamacpp_server.py '{"attribute.path": value, …}'        serve until SIGTERM or SIGINT
    python _llamacpp_server.py --check < '[{…}, …]'                  set every attribute, start nothing

Enum-valued attributes take plain words: the member's name without its prefix, in any case (`q8_0`), or
on/off. The server's address is announced on a line of its own, `LISTEN http://…`, the build on `BUILD
xllamacpp …`. `--check` answers with one JSON list: null, or {"flag", "problem": "unknown" | "type" | "word",
…} for each mapping.
"""

from __future__ import annotations

import enum
import importlib.metadata
import json
import os
import signal
import sys
import time
from typing import Any

SWITCH_WORDS = {"on": "enabled", "off": "disabled"}
SHORTEST_LIFE_SECONDS = 0.5  # a server destroyed right after its constructor returned deadlocks
BAD_FLAG = 2


class BadFlag(Exception):
    """A flag that llama.cpp does not have, or a value that it does not take; `problem` says which."""

    def __init__(self, **problem: Any) -> None:
        super().__init__(f"flag {problem['flag']}: {problem['problem']}, value {problem.get('value')!r}")
        self.problem = problem


def apply(params: Any, flags: dict[str, Any]) -> None:
    """Set dotted attribute paths; raises BadFlag for the first that does not fit."""
    for path, value in flags.items():
        *groups, leaf = path.split(".")
        owner = params
        for name in groups:
            owner = getattr(owner, name, None)
        if leaf.startswith("_") or not hasattr(owner, leaf):
            raise BadFlag(flag=path, problem="unknown", known=list(attribute_paths(params)))
        current = getattr(owner, leaf)
        try:
            setattr(owner, leaf, converted(path, value, current, params))
        except (TypeError, ValueError, OverflowError) as error:
            expected = f"{type(current).__name__} ({error})"
            raise BadFlag(flag=path, problem="type", value=value, expected=expected) from error


def converted(path: str, value: Any, current: Any, params: Any) -> Any:
    """`value` as the attribute that now holds `current` takes it."""
    if isinstance(current, enum.Enum):
        return member(path, value, type(current))
    if isinstance(current, list) and current and isinstance(current[0], enum.Enum):
        words = value if isinstance(value, list) else [value]
        return [member(path, word, type(current[0])) for word in words]
    expected: tuple[type, ...] = (type(current),)
    if isinstance(current, float):
        expected = (float, int)
    elif isinstance(current, set):
        expected = (list, set)
    fits = isinstance(value, expected) and (isinstance(value, bool) == isinstance(current, bool))
    if is_group(current) or not fits:
        wanted = "one of its attributes" if is_group(current) else type(current).__name__
        raise BadFlag(flag=path, problem="type", value=value, expected=wanted)
    return value


def member(path: str, word: Any, kind: type[enum.Enum]) -> enum.Enum:
    """The enum member that a word means; YAML's bare on and off arrive as booleans."""
    members = {name: kind[full] for full, name in short_names(kind).items()}
    text = {True: "on", False: "off"}[word] if isinstance(word, bool) else str(word).lower()
    text = text if text in members else SWITCH_WORDS.get(text, text)
    if text not in members:
        aliases = [alias for alias, name in SWITCH_WORDS.items() if name in members]
        raise BadFlag(flag=path, problem="word", value=word, known=sorted([*members, *aliases]))
    return members[text]


def short_names(kind: type[enum.Enum]) -> dict[str, str]:
    """Full member name → its word: without the prefix that all share, in lower case."""
    names = [name for name in kind.__members__ if not name.endswith("_COUNT")]
    parts = [name.split("_") for name in names]
    shared = 0
    while all(len(part) > shared + 1 and part[shared] == parts[0][shared] for part in parts):
        shared += 1
    return {name: "_".join(part[shared:]).lower() for name, part in zip(names, parts, strict=True)}


def attribute_paths(owner: Any, prefix: str = "") -> list[str]:
    """Every settable attribute path below `owner`."""
    paths: list[str] = []
    for name in dir(owner):
        value = getattr(owner, name) if not name.startswith("_") else None
        if name.startswith("_") or callable(value):
            continue
        paths += attribute_paths(value, f"{prefix}{name}.") if is_group(value) else [prefix + name]
    return paths


def is_group(value: Any) -> bool:
    """Whether an attribute holds further attributes rather than a value."""
    return type(value).__module__.startswith("xllamacpp") and not isinstance(value, enum.Enum)


def check(candidates: list[dict[str, Any]]) -> list[dict[str, Any] | None]:
    """What is wrong with each mapping, None when nothing is."""
    import xllamacpp

    found: list[dict[str, Any] | None] = []
    for flags in candidates:
        try:
            apply(xllamacpp.CommonParams(), flags)
            found.append(None)
        except BadFlag as bad:
            found.append(bad.problem)
    return found


def serve(flags: dict[str, Any]) -> int:
    """Load, announce, and serve until told to stop."""
    stop: list[int] = []
    for number in (
        signal.SIGTERM,
        signal.SIGINT,
    ):  # before the server exists: it may be told to stop while it loads
        signal.signal(number, lambda signum, _: stop.append(signum))
    import xllamacpp

    announce(f"BUILD xllamacpp {importlib.metadata.version('xllamacpp')}")
    params = xllamacpp.CommonParams()
    try:
        apply(params, flags)
    except BadFlag as bad:
        announce(f"BADFLAG {bad}")
        return BAD_FLAG
    server = xllamacpp.Server(params)
    started = time.monotonic()
    announce(f"LISTEN {server.listening_address}")
    while not stop or time.monotonic() - started < SHORTEST_LIFE_SECONDS:
        time.sleep(0.05)
    del server
    return 0


def announce(text: str) -> None:
    """A line of its own in one write: the engine's logger writes to the same file from another thread."""
    os.write(1, f"\n{text}\n".encode())


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        print(json.dumps(check(json.load(sys.stdin))))
        sys.exit(0)
    sys.exit(serve(json.loads(sys.argv[1])))
