"""A file that is no config.json is named, whatever else it is."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lab.errors import InputError
from lab.roofline.config_file import MOST_BYTES, config_path, read


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as error:
        read(path)
    assert str(error.value).startswith(f"{path}: ") and "\n" not in str(error.value)
    return str(error.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot be read as JSON (Expecting value"),
        (b'{"a": ', "cannot be read as JSON (Expecting value"),
        (b"\xff\xfe", "cannot be read as JSON ('utf-8' codec"),
        (b"[" * 100_000, "cannot be read as JSON (nested too deeply)"),
        (b'{"a": ' + b"1" * 5_000 + b"}", "cannot be read as JSON (Exceeds the limit"),
        (b"null", "holds no mapping"),
        (b"3", "holds no mapping"),
    ],
)
def test_what_is_no_json_mapping(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    assert refusal(path).startswith(message)


def test_a_mapping_is_read_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"a": NaN, "b": "é"}', encoding="utf-8")
    assert read(tmp_path / "config.json")["b"] == "é"


def test_a_file_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "config.json").open("wb") as stream:
        stream.truncate(MOST_BYTES + 1)
    assert refusal(tmp_path / "config.json").startswith("has 67,108,865 bytes")


def test_what_is_no_file(tmp_path: Path) -> None:
    assert refusal(tmp_path / "config.json").startswith("no such file")
    (tmp_path / "config.json").mkdir()
    assert refusal(tmp_path / "config.json").startswith("a folder")
    os.mkfifo(tmp_path / "pipe.json")
    assert refusal(tmp_path / "pipe.json").startswith("no such file")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text("{}")
    path.chmod(0)
    assert refusal(path) == "cannot be read as JSON (Permission denied)"


def test_a_folder_means_the_config_in_it(tmp_path: Path) -> None:
    assert config_path(tmp_path) == tmp_path / "config.json"
    assert config_path(tmp_path / "mine.json") == tmp_path / "mine.json"
    with pytest.raises(InputError, match="too long"):
        config_path("x" * 5_000)


@pytest.mark.parametrize("own", [{}, {"quantization_config": None}])
def test_the_older_file_beside_it_counts_where_it_declares_nothing(tmp_path: Path, own: dict[str, None]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(own))
    (tmp_path / "hf_quant_config.json").write_text('{"quantization": {"quant_algo": "FP8"}}')
    assert read(tmp_path / "config.json")["quantization_config"] == {"quant_algo": "FP8"}
    (tmp_path / "config.json").write_text('{"quantization_config": {"quant_algo": "NVFP4"}}')
    assert read(tmp_path / "config.json")["quantization_config"] == {"quant_algo": "NVFP4"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "holds no mapping"),
        ('{"quantization": 3}', "quantization: expected a mapping, got 3"),
        ('{"quantization": {"quant_algo": 3}}', "quantization.quant_algo: expected text, got 3"),
    ],
)
def test_a_fault_in_the_older_file_is_said_of_it(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "config.json").write_text("{}")
    beside = tmp_path / "hf_quant_config.json"
    beside.write_text(content)
    with pytest.raises(InputError) as error:
        read(tmp_path / "config.json")
    assert str(error.value).startswith(f"{beside}: {message}")
