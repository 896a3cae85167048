"""The few facts at the head of a GGUF file.

Without it a look at a checkpoint's format would parse its whole vocabulary, two seconds each time.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from lab.errors import InputError

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_LONGEST_STRING_BYTES = 1 << 26


@dataclass(frozen=True)
class GgufHeader:
    """format: as llama.cpp names it ("Q4_1"); experts: routed experts per layer, None in a dense model."""

    architecture: str | None
    format: str | None
    experts: int | None


def read_header(path: Path) -> GgufHeader:
    """Read the keys before the tokenizer's; raises InputError when the file is missing or no GGUF."""
    try:
        with path.open("rb") as stream:
            values = _keys(stream)
    except (OSError, ValueError, struct.error, KeyError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a GGUF file, or a damaged one"
        raise InputError(f"{path}: {reason}") from error
    architecture = values.get("general.architecture")
    number = values.get("general.file_type")
    return GgufHeader(
        architecture=architecture,
        format=None if number is None else _format_name(number),
        experts=values.get(f"{architecture}.expert_count") or None,
    )


def _keys(stream: BinaryIO) -> dict[str, Any]:
    magic, version, _, count = struct.unpack("<4sIQQ", stream.read(24))
    if magic != b"GGUF" or version < 2:
        raise ValueError("magic")
    values: dict[str, Any] = {}
    for _ in range(count):
        key = _string(stream)
        values[key] = _value(stream, _number(stream, "I"))
        if "general.file_type" in values and key.startswith("tokenizer."):
            break
    return values


def _value(stream: BinaryIO, kind: int) -> Any:
    if kind == _STRING:
        return _string(stream)
    if kind == _ARRAY:
        element, length = _number(stream, "I"), _number(stream, "Q")
        return [_value(stream, element) for _ in range(length)]
    return _number(stream, _SCALARS[kind])


def _number(stream: BinaryIO, code: str) -> Any:
    return struct.unpack(f"<{code}", stream.read(struct.calcsize(code)))[0]


def _string(stream: BinaryIO) -> str:
    length = _number(stream, "Q")
    if length > _LONGEST_STRING_BYTES:
        raise ValueError("length")
    return stream.read(length).decode(errors="replace")


def _format_name(number: int) -> str | None:
    from gguf import LlamaFileType

    try:
        return LlamaFileType(number).name.removeprefix("MOSTLY_").removeprefix("ALL_")
    except ValueError:
        return None
