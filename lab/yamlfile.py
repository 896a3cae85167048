"""YAML with line numbers, checked against pydantic models.

Without the line and the field in the message, a typo in a campaign file costs its owner a search; without the
nearest suggestion, a second one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from lab.errors import InputError
from lab.files import SHOWN_LETTERS, printable, quoted, suggest

Location = tuple[str | int, ...]
ModelType = TypeVar("ModelType", bound=BaseModel)
DEEPEST = 30  # levels of nesting; a campaign file has six
MOST_VALUES = 20_000  # aliases of aliases expand without end
LONGEST_PATH = 255  # letters of one in a message
MOST_DIGITS = 20  # of a whole number: seeds have as many
_MAPPING_TAG, _SEQUENCE_TAG = "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True)
class Document:
    """A parsed YAML file: its data and the line on which each value stands."""

    path: Path
    data: Any
    lines: dict[Location, int] = field(repr=False)

    def error(self, location: Location, message: str) -> InputError:
        """An InputError `FILE:LINE: a.b.c: message`; an unknown location falls back to its nearest parent."""
        known = location
        while known and known not in self.lines:
            known = known[:-1]
        dotted = ".".join(printable(_short(str(part))) for part in location)
        where = f"{self.path}:{self.lines.get(known, 1)}"
        return InputError(f"{where}: {dotted}: {message}" if dotted else f"{where}: {message}")

    def validate(self, model: type[ModelType], data: Any, location: Location = ()) -> ModelType:
        """`data` as an instance of `model`; raises InputError for the first thing that is wrong."""
        if not isinstance(data, dict):
            raise self.error(
                location, f"expected a mapping of {', '.join(model.model_fields)}, got {_short(repr(data))}"
            )
        try:
            return model.model_validate(data)
        except ValidationError as error:
            problems = error.errors(include_url=False)
            unknown = [p for p in problems if p["type"] == "extra_forbidden"]
            problem = (unknown or problems)[0]
            choice = None if unknown else self._choice(location, problems)
            field_location, message = choice or (location + tuple(problem["loc"]), _explain(problem, model))
            raise self.error(field_location, message) from None

    def _choice(self, location: Location, problems: Sequence[Any]) -> tuple[Location, str] | None:
        """Where a value fits none of several types pydantic reports one problem per type, at a location that ends with
        the type's name instead of a key; this makes one of them."""
        first = problems[0]
        full = location + tuple(first["loc"])
        place = full[:-1]
        if first["type"] == "missing" or full in self.lines or place not in self.lines:
            return None
        types = [str(p["loc"][-1]).partition("[")[0] for p in problems if location + tuple(p["loc"])[:-1] == place]
        return place, f"none of {', '.join(types)} fits, got {_short(repr(first['input']))}"


def load(path: Path) -> Document:
    """Read one YAML file; raises InputError when it is missing, broken, or names an unset `${VARIABLE}`."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        shown = _short(str(path), LONGEST_PATH)
        raise InputError(f"{shown}: no such file; name a campaign file such as experiments/local.yaml") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except RecursionError:
        raise InputError(f"{path}: is nested too deeply; it should have a few levels") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise InputError(f"{where}: not valid YAML: {problem}") from None
    lines: dict[Location, int] = {}
    document = Document(path, None, lines)
    data = None if node is None else _construct(node, (), document)
    return Document(path, data, lines)


def _construct(node: yaml.Node, location: Location, document: Document) -> Any:
    document.lines[location] = node.start_mark.line + 1
    if len(location) > DEEPEST:
        raise document.error(location[:1], "is nested too deeply; does it hold itself?")
    if len(document.lines) > MOST_VALUES:
        raise document.error(location[:1], f"with it the file holds more than {MOST_VALUES:,} values; does it repeat?")
    if not isinstance(node, yaml.ScalarNode) and node.tag not in (_MAPPING_TAG, _SEQUENCE_TAG):
        raise document.error(location, f"the tag {node.tag} has no meaning here; remove it")
    if isinstance(node, yaml.MappingNode):
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                line = key_node.start_mark.line + 1
                raise document.error(location, f"line {line} has a list or mapping as its key; a key is a word")
            key = key_node.value
            document.lines[(*location, key)] = key_node.start_mark.line + 1
            if key in result:
                raise document.error((*location, key), "this key stands here twice; remove one")
            result[key] = _construct(value_node, (*location, key), document)
            document.lines[(*location, key)] = key_node.start_mark.line + 1
        return result
    if isinstance(node, yaml.SequenceNode):
        return [_construct(child, (*location, i), document) for i, child in enumerate(node.value)]
    try:
        value = yaml.SafeLoader("").construct_object(node)
    except (yaml.YAMLError, ValueError) as error:
        reason = getattr(error, "problem", None) or str(error).partition(";")[0]
        raise document.error(location, f"{quoted(node.value)} cannot be read: {reason}") from None
    if isinstance(value, str):
        plain = getattr(node, "style", None) is None and _VARIABLE.fullmatch(value)
        expanded = _expand(value, location, document)
        value = _number(expanded) if plain else expanded
    if isinstance(value, int) and abs(value) >= 10**MOST_DIGITS:
        raise document.error(location, f"{quoted(node.value)} is a number of more than {MOST_DIGITS} digits")
    return value


def _expand(value: str, location: Location, document: Document) -> str:
    def read(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in os.environ:
            raise document.error(location, f"the environment variable {name} is not set; export it first")
        return os.environ[name]

    return _VARIABLE.sub(read, value)


def _number(text: str) -> Any:
    """A number or truth value that an unquoted variable holds, as if it stood in the file; else the text."""
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        return text
    return value if isinstance(value, bool | int | float) else text


def _explain(problem: Any, model: type[BaseModel]) -> str:
    kind, value = problem["type"], problem.get("input")
    if kind == "extra_forbidden":
        known = _known_keys(model, problem["loc"][:-1])
        return f"unknown key{suggest(str(problem['loc'][-1]), known)}"
    if kind == "missing":
        return "is required and missing"
    if kind in ("value_error", "assertion_error"):
        return str(problem["ctx"]["error"])
    message = problem["msg"]
    message = message[0].lower() + message[1:]
    return f"{message}, got {_short(repr(value))}"


def _short(text: str, most: int = SHOWN_LETTERS) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _known_keys(model: type[BaseModel], location: Location) -> list[str]:
    current: Any = model
    for part in location:
        if isinstance(current, type) and issubclass(current, BaseModel):
            if part not in current.model_fields:
                return []
            current = _unwrap(current.model_fields[str(part)].annotation)
        elif get_origin(current) in (dict, list):
            current = _unwrap(get_args(current)[-1])
    return list(current.model_fields) if isinstance(current, type) and issubclass(current, BaseModel) else []


def _unwrap(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, UnionType):
        choices = [choice for choice in get_args(annotation) if choice is not type(None)]
        return _unwrap(choices[0])
    return annotation
