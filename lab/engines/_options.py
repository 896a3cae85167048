"""The options of an engine's command line: which there are in this build, and a command from an arm's flags.

Without it a flag that another release called differently is found out after the model was loaded, or never: parsers
take abbreviations.

Flags are the engine's own names with underscores (`max_num_seqs`). True and false switch (`--x`, `--no-x`), a list is
several values, and dotted names are collected: `speculative_config.method` and its neighbours become one JSON object.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from lab.engines._option_list import MARK
from lab.errors import InputError
from lab.files import cache_dir, digest, read_json, sha256_file, suggest, write_json

_SCRIPT = Path(__file__).with_name("_option_list.py")
_ASK_SECONDS = 300
_NUMBERS: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float)}


@dataclass(frozen=True)
class Option:
    """One option; kind, choices and number as `_option_list` describes them."""

    names: tuple[str, ...]
    kind: str
    choices: tuple[str, ...] | None = None
    number: str | None = None

    @property
    def flag(self) -> str:
        """Its longest spelling that an arm may use: the first one with two dashes."""
        return next((_as_flag(name) for name in self.names if name.startswith("--")), self.names[0])


@dataclass(frozen=True)
class Renamed:
    """A flag that releases call differently, or that became a value of another.

    old, new: names without dashes; hint: what to write instead, where it is more than the name.
    """

    old: str
    new: str
    hint: str = ""


@dataclass(frozen=True)
class Command:
    """How to ask an engine for its options: see `_option_list`."""

    module: str
    anchor: str
    variables: str
    arguments: tuple[str, ...]


class Options:
    """What one build takes; `engine`: its name and version, for messages."""

    def __init__(self, engine: str, options: list[Option], variables: list[str] | None = None) -> None:
        self.engine = engine
        self.variables = None if variables is None else frozenset(variables)
        self._by_flag = {
            _as_flag(name): option
            for option in options
            for name in option.names
            if name.startswith("--") and not (option.kind == "pair" and name.startswith("--no-"))
        }

    def find(self, flag: str) -> Option | None:
        """The option of this name, exactly; of a dotted name the one before the first dot."""
        return self._by_flag.get(flag.partition(".")[0])

    def check(self, flags: Mapping[str, Any], refused: Mapping[str, str], renamed: tuple[Renamed, ...]) -> None:
        """Raise InputError for the first flag that this build does not take, or that the lab sets itself."""
        for flag, value in flags.items():
            option = self.find(flag)
            if option is None:
                raise InputError(f"flag '{flag}' is {self._unknown(flag, renamed)}")
            spellings = {_as_flag(name) for name in option.names}
            for name in spellings & refused.keys():
                raise InputError(f"flag '{flag}' is refused: {refused[name]}")
            self._check_value(flag, option, value)
        self.arguments(flags)

    def arguments(self, flags: Mapping[str, Any]) -> list[str]:
        """The flags as a command line; raises InputError for a value that the option cannot take."""
        made: list[str] = []
        objects: dict[str, dict[str, Any]] = {}
        for flag, value in flags.items():
            option = self._by_flag[flag.partition(".")[0]]
            name = next(one for one in option.names if one.startswith("--"))
            if "." in flag:
                if flag.partition(".")[0] in flags:
                    raise InputError(f"flag '{flag}': {option.flag} is given as a whole too; use one of both forms")
                _place(objects.setdefault(name, {}), flag, value)
            else:
                made += _words(name, flag, option, value)
        for name, collected in objects.items():
            made += [name, json.dumps(collected)]
        return made

    def _unknown(self, flag: str, renamed: tuple[Renamed, ...]) -> str:
        base = flag.partition(".")[0]
        for pair in renamed:
            for gone, now, hint in ((pair.old, pair.new, pair.hint), (pair.new, pair.old, "")):
                if base == gone and now in self._by_flag:
                    return f"called '{now}' in {self.engine}{hint and f': {hint}'}"
        if base.replace("-", "_") in self._by_flag:
            return f"spelt '{base.replace('-', '_')}' in an arm"
        return f"unknown to {self.engine}{suggest(base, self._by_flag)}"

    def _check_value(self, flag: str, option: Option, value: Any) -> None:
        if "." in flag:
            if option.kind not in ("json", "value") or option.choices or option.number:
                raise InputError(f"flag '{flag}': {option.flag} takes no keys; write {option.flag} alone")
            return
        if option.kind in ("switch", "pair") and not isinstance(value, bool):
            raise InputError(f"flag {flag}: {value!r} does not fit; it is true or false")
        if option.kind not in ("switch", "pair") and isinstance(value, bool):
            raise InputError(f"flag {flag}: {value!r} does not fit; it takes {_wanted(option)}")
        for one in value if isinstance(value, list) else [value]:
            _check_one(flag, option, one)


def ask(engine: str, command: Command, python: str, env: Mapping[str, str], known_by: list[str]) -> Options:
    """The options of the build that `python` would start under `env`; the engine is imported once, then its answer is
    kept for what is `known_by` the same words: its build, and the variables that may change what it offers.

    Raises InputError where the engine cannot be imported: its last line.
    """
    key = digest([command.module, sha256_file(_SCRIPT), *known_by])
    return _kept(engine, command, python, tuple(sorted(env.items())), key)


@cache
def _kept(engine: str, command: Command, python: str, env: tuple[tuple[str, str], ...], key: str) -> Options:
    note = cache_dir() / "options" / f"{key}.json"
    told: dict[str, Any] | None = None
    with contextlib.suppress(InputError):  # none yet, or damaged: it is made anew
        told = read_json(note)
    if told is None:
        told = _asked(command, python, dict(env))
        write_json(note, told)
    options = [
        Option(tuple(one["names"]), one["kind"], one["choices"] and tuple(one["choices"]), one["number"])
        for one in told["options"]
    ]
    return Options(engine, options, told["variables"])


def _asked(command: Command, python: str, env: dict[str, str]) -> dict[str, Any]:
    argv = [python, str(_SCRIPT), command.module, command.anchor, command.variables, *command.arguments]
    try:
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=_ASK_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"{python} cannot say which options {command.module} takes: {error}") from error
    for line in done.stdout.splitlines():
        if line.startswith(MARK):
            return json.loads(line.removeprefix(MARK))
    last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    raise InputError(f"{python} cannot say which options {command.module} takes: {last[:300]}")


def _as_flag(name: str) -> str:
    return name.lstrip("-").replace("-", "_")


def _check_one(flag: str, option: Option, value: Any) -> None:
    if option.choices is not None and str(value) not in option.choices:
        raise InputError(f"flag {flag}: {value!r} is none of {', '.join(option.choices)}")
    wanted = _NUMBERS.get(option.number or "")
    if wanted and not isinstance(value, wanted):
        raise InputError(f"flag {flag}: {value!r} does not fit; it takes {_wanted(option)}")
    if option.kind == "json" and isinstance(value, str):
        try:
            json.loads(value)
        except ValueError:
            raise InputError(f"flag {flag}: {value!r} is no JSON; write {option.flag}.KEY: VALUE instead") from None


def _wanted(option: Option) -> str:
    kinds = {"int": "a whole number", "float": "a number"}
    return kinds.get(option.number or "", "a JSON value" if option.kind == "json" else "a value")


def _words(name: str, flag: str, option: Option, value: Any) -> list[str]:
    """One flag on the command line; a switch that is off and has no opposite is left out."""
    if isinstance(value, bool):
        off = [f"--no-{name.removeprefix('--')}"] if option.kind == "pair" else []
        return [name] if value else off
    if option.kind == "json":
        return [name, value if isinstance(value, str) else json.dumps(value)]
    if not isinstance(value, list):
        return [name, str(value)]
    if option.kind == "many":
        return [name, *map(str, value)]
    if option.kind == "repeated":
        return [word for one in value for word in (name, str(one))]
    raise InputError(f"flag {flag}: {value!r} does not fit; it takes one value")


def _place(collected: dict[str, Any], flag: str, value: Any) -> None:
    """Set a dotted name below its option; raises InputError when a value stands where a key must lead on."""
    *groups, leaf = flag.split(".")[1:]
    for group in groups:
        collected = collected.setdefault(group, {})
        if not isinstance(collected, dict):
            raise InputError(f"flag '{flag}': '{group}' has a value already; it cannot hold keys")
    if isinstance(collected.get(leaf), dict):
        raise InputError(f"flag '{flag}': it holds keys already; it cannot have a value")
    collected[leaf] = value
