"""Reading the prompts and traces that users bring.

Without the file and the line in the message, one damaged line among a hundred thousand costs its owner an evening.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

from lab.errors import InputError
from lab.files import typed_path
from lab.load.kinds.base import Item

ROLES = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "system": "system"}
"""Speakers of ShareGPT conversations, and their roles in the chat API."""
LENGTH_FIELDS = ("output_tokens", "output_length", "max_tokens")


class Line:
    """One JSON object of a user's file, and where it stands."""

    def __init__(self, path: Path, place: str, content: Any) -> None:
        self._path, self._place = path, place
        if not isinstance(content, dict):
            raise self.error(f"is no JSON object, but {_short(content)}")
        self.content: dict[str, Any] = content

    def error(self, problem: str) -> InputError:
        """An InputError that names file and line."""
        return InputError(f"{self._path}:{self._place}: {problem}")

    def number(self, field: str) -> float | None:
        """A finite number that is not negative; None when the line has no such field."""
        value = self.content.get(field)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            raise self.error(f"{field}: must be a number from 0, got {_short(value)}")
        return value

    def count(self, field: str) -> int | None:
        """A whole number from 1; None when the line has no such field."""
        value = self.number(field)
        if value is not None and (value < 1 or value != int(value)):
            raise self.error(f"{field}: must be a whole number from 1, got {_short(value)}")
        return None if value is None else int(value)

    def prompt(self) -> Item | None:
        """The line's prompt: `{"messages"}` from messages or a ShareGPT conversation, `{"text"}` from prompt or text.

        None for a conversation in which nobody asks. Raises InputError when there is no prompt, or a broken one.
        """
        for field, read in _READERS.items():
            if self.content.get(field) is not None:
                return read(self, field)
        raise self.error(f"holds no prompt; give one of {', '.join(_READERS)}")

    def require_chat(self, prompt: Item, api: str | None) -> None:
        """Raise InputError when messages would go to an API that takes none."""
        if "messages" in prompt and api not in (None, "chat"):
            raise self.error(f"holds messages, which api '{api}' does not take; set api: chat, or give a prompt")

    def has_prompt(self) -> bool:
        """Whether the line spells out what to ask."""
        return any(self.content.get(field) is not None for field in _READERS)

    def cap(self, default: int | None) -> dict[str, int]:
        """`{"max_tokens"}` when the line brings its own cap on the answer; raises InputError when nobody gives one."""
        for field in LENGTH_FIELDS:
            if value := self.count(field):
                return {"max_tokens": value}
        if default is None:
            raise self.error("gives no output_tokens, and neither does the workload; add it to one of them")
        return {}


def _messages(line: Line, field: str) -> Item:
    messages = line.content[field]
    if not isinstance(messages, list) or not messages:
        raise line.error(f"{field}: must be a list of messages, got {_short(messages)}")
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise line.error(f"{field}: a message is an object with role and content, got {_short(message)}")
        if not isinstance(message.get("content"), str | list) and "tool_calls" not in message:
            raise line.error(f"{field}: a message of '{message['role']}' has no content")
    return {"messages": messages}


def _conversation(line: Line, field: str) -> Item | None:
    turns = line.content[field]
    if not isinstance(turns, list):
        raise line.error(f"{field}: must be a list of turns, got {_short(turns)}")
    messages = []
    for turn in turns:
        speaker, said = (turn.get("from"), turn.get("value")) if isinstance(turn, dict) else (None, None)
        if speaker not in ROLES or not isinstance(said, str):
            known = ", ".join(ROLES)
            raise line.error(f"{field}: a turn has from (one of {known}) and value, got {_short(turn)}")
        messages.append({"role": ROLES[speaker], "content": said})
    while messages and messages[-1]["role"] != "user":
        messages.pop()
    while messages and messages[0]["role"] == "assistant":
        messages.pop(0)
    return {"messages": messages} if messages else None


def _text(line: Line, field: str) -> Item:
    text = line.content[field]
    if not isinstance(text, str) or not text:
        raise line.error(f"{field}: must be a text, got {_short(text)}")
    return {"text": text}


_READERS = {"messages": _messages, "conversations": _conversation, "prompt": _text, "text": _text}


def resolve(folder: Path, path: str) -> Path:
    """A path of the campaign file, relative to its folder; raises InputError as `typed_path`."""
    return typed_path(folder / typed_path(path))


def read(path: Path) -> list[Line]:
    """Every line of a JSON-lines file, every entry of a JSON array, or every row of a CSV file with a header.

    Raises InputError for a file that is absent, empty or not UTF-8, and for a line that is no JSON object.
    """
    try:
        stamp = path.stat()
    except OSError as error:
        raise InputError(f"{path}: prompts cannot be read ({error.strerror})") from error
    return _read(path, stamp.st_mtime_ns, stamp.st_size)


@lru_cache(maxsize=8)
def _read(path: Path, _changed_ns: int, _size: int) -> list[Line]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: prompts cannot be read ({error.strerror})") from error
    content = content.removeprefix(b"\xef\xbb\xbf")
    parse = _rows if path.suffix.lower() == ".csv" else _entries if content.lstrip()[:1] == b"[" else _lines
    lines = list(parse(path, content))
    if not lines:
        raise InputError(f"{path}: holds no prompts")
    return lines


def _lines(path: Path, content: bytes) -> Iterator[Line]:
    for number, line in enumerate(content.split(b"\n"), 1):
        if line.strip():
            yield Line(path, str(number), _json(path, str(number), line))


def _entries(path: Path, content: bytes) -> Iterator[Line]:
    for number, entry in enumerate(_json(path, "1", content), 1):
        yield Line(path, f"entry {number}", entry)


def _rows(path: Path, content: bytes) -> Iterator[Line]:
    reader = csv.DictReader(_decoded(path, "1", content).splitlines())
    for row in reader:
        place = str(reader.line_num)
        if None in row:
            raise InputError(f"{path}:{place}: has more fields than the header names")
        yield Line(path, place, {key: _number(value) for key, value in row.items() if value not in (None, "")})


def _json(path: Path, place: str, text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except ValueError as error:
        _decoded(path, place, text)
        raise InputError(f"{path}:{place}: is not valid JSON ({error})") from None


def _decoded(path: Path, place: str, text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        place = place if place != "1" else str(text[: error.start].count(b"\n") + 1)
        raise InputError(f"{path}:{place}: is not UTF-8 (byte {error.start}); convert the file") from None


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def usual_api(items: list[Item]) -> str:
    """The API for a file's prompts when the campaign names none."""
    return "chat" if any("messages" in item for item in items) else "completions"


def all_text(item: Item) -> str:
    """Everything an item says, to count its tokens."""
    return item["text"] if "text" in item else "\n".join(_said(item["messages"]))


def _said(messages: list[dict[str, Any]]) -> Iterator[str]:
    for message in messages:
        content = message.get("content")
        for part in content if isinstance(content, list) else [content]:
            text = part.get("text") if isinstance(part, dict) else part
            if isinstance(text, str):
                yield text
