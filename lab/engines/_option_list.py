"""Ask a serving engine's own command line which options it takes, and stop before it serves anything.

Without it a flag that moved between releases is found out by a start that fails, or worse: argument parsers take
abbreviations, so a server that starts has not understood the flag.

Run by file path with the Python of the arm's runtime (standard library and the engine only):

    python _option_list.py MODULE ANCHOR VARIABLES [ARGUMENT …]

MODULE is run as the engine's command with these arguments. The first parser that knows the option ANCHOR is described
at the moment it would read them: one line `OPTIONS {"options": [{"names", "kind", "choices", "number"}, …],
"variables": [NAME, …] or null}`. kind: switch (takes no value), pair (also as --no-…), json, many (takes several
values), repeated (may be given several times) or value; number: int, float or null. VARIABLES, `module:attribute` or
empty, is where the engine keeps the names of the environment variables that it reads.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import runpy
import sys
from typing import Any

MARK = "OPTIONS "
_MANY = ("+", "*", argparse.REMAINDER)


def kind_of(action: argparse.Action) -> str:
    """How the option takes its value."""
    if action.nargs == 0:
        negative = any(name.startswith("--no-") for name in action.option_strings)
        return "pair" if negative and len(action.option_strings) > 1 else "switch"
    if action.nargs in _MANY or isinstance(action.nargs, int):
        return "many"
    if type(action).__name__ in ("_AppendAction", "_ExtendAction"):
        return "repeated"
    return "json" if _takes_json(action.type) else "value"


def _takes_json(convert: Any) -> bool:
    """Whether the option's own conversion reads a JSON object, or a JSON list, and no bare word."""
    if not callable(convert) or convert in (str, int, float):
        return False
    try:
        convert("{}")
    except BaseException:
        try:
            convert("[]")
        except BaseException:
            return False
    try:
        convert("a word")
    except BaseException:
        return True
    return False


def described(action: argparse.Action) -> dict[str, Any]:
    """One option as plain data."""
    choices = [str(one) for one in action.choices] if action.choices and action.nargs != 0 else None
    number = action.type.__name__ if action.type in (int, float) else None
    return {"names": list(action.option_strings), "kind": kind_of(action), "choices": choices, "number": number}


def options_of(parser: argparse.ArgumentParser, anchor: str) -> list[argparse.Action]:
    """The options of the parser, or of the first command below it, that knows `anchor`; empty without one."""
    known = [action for action in parser._actions if action.option_strings]
    if any(anchor in action.option_strings for action in known):
        return known
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                if found := options_of(command, anchor):
                    return found
    return []


def variables_of(place: str) -> list[str] | None:
    """Names of environment variables at `module:attribute`; None where there is no such place."""
    module, _, attribute = place.partition(":")
    try:
        return sorted(map(str, getattr(importlib.import_module(module), attribute)))
    except (ImportError, AttributeError, ValueError, TypeError):
        return None


def main(module: str, anchor: str, place: str, arguments: list[str]) -> None:
    """Run the command; leaves the process as soon as its parser is known."""
    read = argparse.ArgumentParser.parse_known_args

    def instead(parser: argparse.ArgumentParser, *given: Any, **named: Any) -> Any:
        found = options_of(parser, anchor)
        if not found:
            return read(parser, *given, **named)
        answer = {"options": [described(action) for action in found], "variables": variables_of(place)}
        os.write(1, f"\n{MARK}{json.dumps(answer)}\n".encode())
        os._exit(0)

    argparse.ArgumentParser.parse_known_args = instead  # type: ignore[method-assign]
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    sys.path.pop(0)  # this script's folder holds modules called like the engines
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
