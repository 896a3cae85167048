"""A campaign's hardware is known while the file is read, or its line says what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.errors import InputError
from lab.hardware_ref import named
from lab.yamlfile import load

MINE = "a:\n  product: A\n  source: x\n  bandwidth_gb_s: "


def hardware(folder: Path, value: Any) -> Any:
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump({"name": "small", "hardware": value}, sort_keys=False))
    document = load(path)
    return named(document, document.data["hardware"], folder)


def test_auto_names_nothing(tmp_path: Path) -> None:
    assert hardware(tmp_path, "auto") is None


def test_a_key_and_a_file_beside_the_campaign_are_found(tmp_path: Path) -> None:
    assert hardware(tmp_path, {"gpu": "h200_sxm", "count": 8}).key == "h200_sxm"
    (tmp_path / "mine.yaml").write_text(f"{MINE}1000\n")
    assert hardware(tmp_path, {"gpu": "mine.yaml", "count": 1}).memory_bandwidth_bytes_s == 1e12


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("h200_sxm", "hardware: 'h200_sxm' is neither auto nor a mapping"),
        ({"gpu": "h200_sx", "count": 8}, "hardware.gpu: unknown hardware 'h200_sx'; did you mean 'h200_sxm'?"),
        ({"gpu": "h200_sxm", "count": 0}, "hardware.count: input should be greater than or equal to 1, got 0"),
        ({"gpu": "h200_sxm", "count": 10**9}, "hardware.count: input should be less than or equal to 100000"),
        ({"gpu": "h200_sxm", "count": True}, "hardware.count: input should be a valid integer, got True"),
        ({"gpu": 3, "count": 1}, "hardware.gpu: input should be a valid string, got 3"),
        ({"gpu": "x" * 5_000 + ".yaml", "count": 1}, "hardware.gpu: '"),
        ({"gpu": "a\0.yaml", "count": 1}, "hardware.gpu: '"),
        ({"gpu": "absent.yaml", "count": 1}, "absent.yaml: no such file"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, value: Any, message: str) -> None:
    with pytest.raises(InputError) as error:
        hardware(tmp_path, value)
    assert f"{tmp_path}/small.yaml:" in str(error.value) and message in str(error.value)
    assert "\n" not in str(error.value) and len(str(error.value)) < 600


@pytest.mark.parametrize("figure", [".inf", "true", '"1000"', "2024-01-01"])
def test_a_wrong_figure_in_a_file_of_your_own_is_named_in_both_files(tmp_path: Path, figure: str) -> None:
    (tmp_path / "mine.yaml").write_text(f"{MINE}{figure}\n")
    with pytest.raises(InputError) as error:
        hardware(tmp_path, {"gpu": "mine.yaml", "count": 1})
    start = f"{tmp_path}/small.yaml:3: hardware.gpu: {tmp_path}/mine.yaml:4: a.bandwidth_gb_s: expected a number"
    assert str(error.value).startswith(start)
