"""The keys of a GGUF header that the roofline reads, with the values that they can have, and a reader that stops.

Without it a header that announces 2**60 strings is read until the memory is full, and a head count of 0 or a layer
count in floating point becomes a bound.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Annotated, Any

import gguf
from pydantic import Field

from lab.errors import InputError
from lab.roofline.config_fields import MOST_LAYERS, Count, Layers, Size, Text, Tokens
from lab.roofline.fields import Foreign, expected, whole

MOST_KEYS, MOST_TENSORS = 10_000, 1_000_000
MOST_VALUES = 6_000_000  # of the header together; a vocabulary of 256,000 tokens takes 2 million

Amount = Annotated[int, whole(0, 2**32)]
Architecture = Annotated[str, Field(pattern=r"^[\w.-]{1,60}$"), expected("the name of an architecture")]
HeadCounts = Annotated[
    Annotated[int, Field(ge=0, le=10**6)] | list[Annotated[int, Field(ge=0, le=10**6)]],
    expected("a whole number from 0 to 1000000, or one for each layer"),
]
Pattern = Annotated[
    Annotated[int, Field(ge=0, le=MOST_LAYERS)] | list[bool | int],
    expected(f"a whole number from 0 to {MOST_LAYERS}, or true and false for each layer"),
]


class General(Foreign):
    """Keys that every architecture has."""

    architecture: Architecture = Field(alias="general.architecture")
    name: Text | None = Field(None, alias="general.name")
    parts: Count = Field(1, alias="split.count")


class Shape(Foreign):
    """Keys below the name of the architecture."""

    block_count: Layers
    embedding_length: Size
    head_count: HeadCounts = Field(alias="attention.head_count")
    head_count_kv: HeadCounts | None = Field(None, alias="attention.head_count_kv")
    key_length: Size | None = Field(None, alias="attention.key_length")
    value_length: Size | None = Field(None, alias="attention.value_length")
    sliding_window: Amount = Field(0, alias="attention.sliding_window")
    sliding_window_pattern: Pattern | None = Field(None, alias="attention.sliding_window_pattern")
    context_length: Tokens | None = None
    expert_count: Count = 0
    expert_used_count: Count = 0
    kv_lora_rank: Amount = Field(0, alias="attention.kv_lora_rank")
    state_size: Amount = Field(0, alias="ssm.state_size")
    nextn_predict_layers: Amount = 0


class Reader(gguf.GGUFReader):
    """The reader of the format's owners, which takes what it gets at the end of a file: here that is an error."""

    _values = 0

    def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Any:
        found = super()._get(offset, dtype, count, override_order)
        self._values += 1
        if len(found) != int(count):
            raise ValueError("it ends early")
        if self._values > MOST_VALUES:
            raise ValueError(f"its header holds more than {MOST_VALUES:,} values")
        return found


def opened(path: Path) -> Reader:
    """A reader of the file; raises InputError: unreadable, not GGUF, damaged, or with counts that no header has."""
    try:
        _check_counts(path)
        return Reader(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (ValueError, KeyError, IndexError, OverflowError, TypeError, MemoryError, RecursionError) as error:
        reason = str(error) or type(error).__name__
        raise InputError(f"{path}: not a readable GGUF file ({reason}); fetch it again") from None


def _check_counts(path: Path) -> None:
    with path.open("rb") as stream:
        start = stream.read(24)
    if start[:4] != b"GGUF":
        raise ValueError("it does not begin with GGUF")
    if len(start) < 24:
        raise ValueError("it ends early")
    order = ">" if start[4:6] == b"\0\0" else "<"  # a version is a small number, at the end that comes first
    tensors, keys = struct.unpack(f"{order}QQ", start[8:])
    if tensors > MOST_TENSORS or keys > MOST_KEYS:
        raise ValueError(f"it announces {tensors:,} tensors and {keys:,} keys")
