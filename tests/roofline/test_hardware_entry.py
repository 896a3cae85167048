"""A figure of a hardware file is a figure, or the file is refused with line and field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab.errors import InputError
from lab.roofline.hardware import Hardware
from lab.roofline.hardware_catalogue import find
from lab.roofline.hardware_entry import HardwareEntry

ENTRY = {"product": "'A'", "source": "'x'", "bandwidth_gb_s": "1000"}
NO_NUMBERS = [
    ".inf",
    "-.inf",
    ".nan",
    "true",
    '"480"',
    "1e400",
    "-3",
    "0",
    "2024-01-01",
    "[1]",
    "{a: 1}",
    "4800000000000",
]
FIGURES = ["bandwidth_gb_s", "memory_gb", "memory_mib", "link_gb_s", "joined", "cache_mib"]


def read(folder: Path, **fields: str) -> Hardware:
    path = folder / "mine.yaml"
    path.write_text("a:\n" + "".join(f"  {name}: {value}\n" for name, value in {**ENTRY, **fields}.items()))
    return find(str(path))


def refusal(folder: Path, **fields: str) -> str:
    with pytest.raises(InputError) as error:
        read(folder, **fields)
    (name,) = fields
    line = 2 + list({**ENTRY, **fields}).index(name)
    start = f"{folder / 'mine.yaml'}:{line}: a.{name}"
    assert str(error.value).startswith(start) and "\n" not in str(error.value)
    return str(error.value).removeprefix(start)


@pytest.mark.parametrize("value", NO_NUMBERS)
@pytest.mark.parametrize("name", FIGURES)
def test_what_is_no_figure_is_refused_with_what_is(tmp_path: Path, name: str, value: str) -> None:
    message = refusal(tmp_path, **{name: value})
    kind = "a whole number from 1 to 100000" if name == "joined" else "a number from 0.001 to"
    assert message.startswith(f": expected {kind}")


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_taken(tmp_path: Path, name: str) -> None:
    assert read(tmp_path, **{name: "64"}).memory_bandwidth_bytes_s == (64e9 if name == "bandwidth_gb_s" else 1e12)


def test_a_number_too_long_to_be_one_is_refused(tmp_path: Path) -> None:
    assert "digits" in refusal(tmp_path, bandwidth_gb_s="1" * 400)


def test_null_is_unknown_but_for_what_is_required(tmp_path: Path) -> None:
    hardware = read(
        tmp_path, **dict.fromkeys((*FIGURES[1:], "tflops", "link", "generation", "edition", "nvml"), "null")
    )
    assert (hardware.memory_bytes, hardware.link, hardware.joined, hardware.peak_flops_s) == (None, None, None, {})
    assert "got None" in refusal(tmp_path, bandwidth_gb_s="null")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{BF16: 480}", ": unknown precision 'BF16'; did you mean 'bf16'?"),
        ("{bf17: 480}", ": unknown precision 'bf17'; did you mean 'bf16'?"),
        ("{FP8: 480}", ": unknown precision 'FP8'; did you mean 'fp8'?"),
        ("{int8: 480}", ": unknown precision 'int8'; known: bf16, fp4, fp8"),
        ("{fp8: .inf}", ".fp8: expected a number"),
        ("{fp8: '960'}", ".fp8: expected a number"),
        ("{fp8: 960000000000000}", ".fp8: expected a number"),
        ("480", ": expected a mapping such as {bf16: 480, fp8: 960}, got 480"),
    ],
)
def test_peaks_of_unknown_precisions_or_no_numbers_are_refused(tmp_path: Path, value: str, message: str) -> None:
    assert refusal(tmp_path, tflops=value).startswith(message)


def test_peaks_are_taken(tmp_path: Path) -> None:
    assert read(tmp_path, tflops="{bf16: 480, fp8: 960.5, fp4: null}").peak_flops_s == {"bf16": 480e12, "fp8": 960.5e12}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("source", "2024-01-01", "a line of text, in quotes if it looks like a number or a date"),
        ("source", '""', "a line of text"),
        ("product", "4090", "a line of text"),
        ("product", '"a\\nb"', "a line of text"),
        ("edition", "true", "a line of text"),
        ("note", "3", "text"),
        ("link", "NVLink", "nvlink, pcie or xgmi"),
        ("generation", "turing", "ampere, ada, hopper or blackwell"),
        ("collectives", "[h200_sxm]", "a line of text"),
        ("nvml", "NVIDIA A", "a list of texts"),
    ],
)
def test_texts_are_texts_and_names_are_known(tmp_path: Path, name: str, value: str, message: str) -> None:
    assert refusal(tmp_path, **{name: value}).startswith(f": expected {message}")


def test_known_names_are_taken(tmp_path: Path) -> None:
    hardware = read(tmp_path, link="xgmi", generation="ada", edition="'2024-01-01'", collectives="l40s")
    assert (hardware.link, hardware.generation, hardware.name) == ("xgmi", "ada", "A 2024-01-01")


ANYTHING: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(name=st.sampled_from([*HardwareEntry.model_fields, "tflops.bf16"]), value=ANYTHING)
def test_whatever_a_field_holds_is_a_figure_or_refused(tmp_path: Path, name: str, value: Any) -> None:
    path = tmp_path / "mine.yaml"
    field, _, precision = name.partition(".")
    entry = {"product": "A", "source": "x", "bandwidth_gb_s": 1, field: {precision: value} if precision else value}
    path.write_text(yaml.safe_dump({"a": entry}, allow_unicode=True), encoding="utf-8")
    try:
        hardware = find(str(path))
    except InputError as error:
        assert str(path) in str(error)
        return
    assert 0 < hardware.memory_bandwidth_bytes_s <= 1e15
    assert all(0 < peak <= 1e18 for peak in hardware.peak_flops_s.values())
