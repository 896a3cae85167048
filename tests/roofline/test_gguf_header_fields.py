"""A damaged GGUF header ends in one line, not in a full memory, a traceback or a bound."""

from __future__ import annotations

import errno
import math
import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab.errors import InputError
from lab.roofline.gguf_file import from_gguf
from lab.roofline.gguf_header_fields import MOST_VALUES, Reader, opened
from tests.roofline.test_gguf_file import write_gguf

WIDTH, LAYERS, VOCAB = 64, 2, 8
KEYS: dict[str, Any] = {
    "block_count": LAYERS,
    "embedding_length": WIDTH,
    "context_length": 512,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
}


def header(folder: Path, **changes: Any) -> Path:
    """A GGUF of one small table whose keys are KEYS with changes ("__" for "."; None: left out)."""
    path = folder / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in {**KEYS, **{name.replace("__", "."): value for name, value in changes.items()}}.items():
        name = key if "general." in key or "split." in key else f"llama.{key}"
        add: Any = {bool: writer.add_bool, int: writer.add_uint64, float: writer.add_float64, str: writer.add_string}
        if value is not None:
            add.get(type(value), writer.add_array)(name, value)
    writer.add_tensor("token_embd.weight", np.zeros((VOCAB, WIDTH), dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as error:
        from_gguf(path)
    assert str(error.value).startswith(f"{path}: ") and "\n" not in str(error.value)
    return str(error.value).removeprefix(f"{path}: ")


def test_the_header_that_the_others_are_made_from_is_sound(tmp_path: Path) -> None:
    model = from_gguf(header(tmp_path))
    assert (model.not_modelled, model.weight_bytes) == (None, VOCAB * WIDTH * 2)


@pytest.mark.parametrize("value", [0, -3, 2.5, math.nan, True, "2", [2], 2**60], ids=repr)
@pytest.mark.parametrize("key", ["block_count", "embedding_length", "context_length"])
def test_what_is_no_count_is_refused_with_what_is(tmp_path: Path, key: str, value: Any) -> None:
    if value == -3:
        value = float(value)
    assert refusal(header(tmp_path, **{key: value})).startswith(f"llama.{key}: expected a whole number from 1 to 10")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_count": None}, "lacks llama.block_count"),
        ({"attention__head_count": None}, "lacks llama.attention.head_count"),
        ({"attention__head_count": 0}, "no attention heads"),
        ({"attention__head_count": 2.0}, "llama.attention.head_count: expected a whole number from 0 to 1000000"),
        ({"attention__head_count": ["a"]}, "llama.attention.head_count: expected a whole number"),
        ({"attention__head_count": [4]}, "llama.attention.head_count: expected one count for each of 2 layers"),
        (
            {"attention__head_count": 128, "attention__head_count_kv": 128},
            "llama.attention.head_count: expected at most",
        ),
        (
            {"attention__head_count_kv": 0},
            "llama.attention.head_count_kv: expected a divisor of 4 attention heads, got 0",
        ),
        ({"attention__head_count_kv": 3}, "llama.attention.head_count_kv: expected a divisor"),
        ({"attention__key_length": 0}, "llama.attention.key_length: expected a whole number from 1"),
        ({"attention__sliding_window": "wide"}, "llama.attention.sliding_window: expected a whole number"),
        (
            {"attention__sliding_window": 8, "attention__sliding_window_pattern": [True]},
            "llama.attention.sliding_window_pattern: expected one entry for each of 2 layers",
        ),
        ({"expert_count": 10**7}, "llama.expert_count: expected a whole number from 0 to 1000000"),
        ({"expert_count": 4, "expert_used_count": 5}, "llama.expert_used_count: expected at most the 4 experts, got 5"),
        ({"embedding_length": 128}, "token_embd.weight is 64 x 8, but llama.embedding_length 128"),
        ({"general.architecture": 3}, "general.architecture: expected the name of an architecture"),
        ({"general.architecture": "a b"}, "general.architecture: expected the name of an architecture"),
        ({"general.name": 3}, "general.name: expected text"),
        ({"split.count": "two"}, "split.count: expected a whole number"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_what_is_absent_out_of_range_or_at_odds_is_named(
    tmp_path: Path, changes: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "general.architecture" in changes:  # which the writer has written itself
        monkeypatch.setattr(gguf.GGUFWriter, "add_architecture", lambda writer: None)
    assert refusal(header(tmp_path, **changes)).startswith(message)


def test_tensors_of_other_experts_than_the_header_counts_have_no_bound(tmp_path: Path) -> None:
    assert from_gguf(write_gguf(tmp_path / "m.gguf", experts=8)).not_modelled is None
    path = write_gguf(tmp_path / "n.gguf", experts=8)
    content = path.read_bytes()
    key = b"llama.expert_count" + struct.pack("<I", 4)
    path.write_bytes(content.replace(key + struct.pack("<I", 8), key + struct.pack("<I", 4)))
    assert "other than the 4 experts" in str(from_gguf(path).not_modelled)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it does not begin with GGUF"),
        (b"GGML" + b"\0" * 100, "it does not begin with GGUF"),
        (b"GGUF\3\0\0\0", "it ends early"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 1), "it announces 1,152,921,504,606,846,976 tensors"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1, 2**60), "and 1,152,921,504,606,846,976 keys"),
        (b"GGUF" + struct.pack(">IQQ", 3, 1, 2**60), "and 1,152,921,504,606,846,976 keys"),
        (b"GGUF" + struct.pack("<IQQ", 99, 1, 1), "version 99"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 1, 1, 2**62), "not a readable GGUF file"),
        (b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 1, 1, 1, b"a", 9, 4, 2**40), "it ends early"),
        (b"GGUF" + struct.pack("<IQQQ1sI", 3, 1, 1, 1, b"a", 9) + struct.pack("<IQ", 9, 1) * 5_000, "recursion"),
    ],
)
def test_a_header_with_absurd_counts_is_not_followed(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    found = refusal(path)
    assert found.startswith("not a readable GGUF file (") and message in found


def test_a_header_of_too_many_values_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = header(tmp_path, numbers=list(range(200)))
    assert opened(path)._values < MOST_VALUES
    monkeypatch.setattr("lab.roofline.gguf_header_fields.MOST_VALUES", 100)
    assert "more than 100 values" in refusal(path)


def test_text_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    path = header(tmp_path, **{"general.name": "naive"})
    path.write_bytes(path.read_bytes().replace(b"naive", b"na\xffve"))
    assert refusal(path).startswith("general.name: cannot be read ('utf-8' codec")


def test_a_name_is_one_line(tmp_path: Path) -> None:
    assert from_gguf(header(tmp_path, **{"general.name": " tiny\nmodel "})).name == "tiny model"


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path / "absent.gguf").startswith("no such file")
    assert refusal(tmp_path).startswith("no such file")


def test_a_file_that_fails_while_it_is_read_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(path: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("lab.roofline.gguf_header_fields.Reader", failing)
    assert refusal(header(tmp_path)) == "cannot be read (Input/output error)"


def test_the_reader_refuses_what_lies_beyond_the_end(tmp_path: Path) -> None:
    path = header(tmp_path)
    reader = Reader(path)
    with pytest.raises(ValueError, match="ends early"):
        reader._get(path.stat().st_size, np.uint32)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_whatever_bytes_a_header_holds_the_model_is_sound_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(header(tmp_path, attention__sliding_window_pattern=[True, False]).read_bytes())
    for place in data.draw(st.lists(st.integers(0, len(content) - VOCAB * WIDTH * 2 - 1), max_size=4)):
        content[place] = data.draw(st.integers(0, 255))
    path = tmp_path / "damaged.gguf"
    path.write_bytes(bytes(content[: data.draw(st.integers(0, len(content)) | st.just(len(content)))]))
    try:
        model = from_gguf(path)
    except InputError as error:
        assert str(path) in str(error) and "\n" not in str(error)
    else:
        assert 0 < model.weight_bytes_per_step <= model.weight_bytes < math.inf
        assert min(model.layers, model.heads, model.kv_heads, model.head_dim_k, model.head_dim_v) > 0
