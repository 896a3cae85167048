"""Every figure belongs to one edition, and an unknown name leads to the right one."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml

import lab.roofline
from lab.errors import InputError
from lab.roofline.hardware import Hardware
from lab.roofline.hardware_catalogue import by_nvml_name, editions, find, read

DATA = Path(lab.roofline.__file__).parent / "data"
FIGURES_OF_A = "a:\n  product: A\n  source: x\n  bandwidth_gb_s: 1\n"
# key, GB/s, BF16, FP8 and FP4 dense TFLOPS: the makers' figures
FIGURES = [
    *(("rtx_pro_6000_server", 1597, 480, 960, 1920), ("rtx_pro_6000_ws", 1792, 503.8, 1007.6, 2015.2)),
    *(("rtx_pro_6000_maxq", 1792, 438.9, 877.9, 1755.7), ("rtx_5090", 1792, 209.5, None, None)),
    *(("a100_sxm_80", 2039, 312, None, None), ("h100_sxm", 3350, 989.4, 1978.9, None)),
    *(("h200_sxm", 4800, 989.4, 1978.9, None), ("b200_sxm", 8000, 2250, 4500, 9000)),
    *(("mi300x", 5300, 1307.4, 2614.9, None), ("l40s", 864, 362.05, 733, None)),
]


@pytest.mark.parametrize(("key", "gb_s", "bf16", "fp8", "fp4"), FIGURES)
def test_figures_are_the_makers(key: str, gb_s: float, bf16: float, fp8: float | None, fp4: float | None) -> None:
    hardware = find(key)
    assert hardware.memory_bandwidth_bytes_s == gb_s * 1e9
    expected = {name: value * 1e12 for name, value in (("bf16", bf16), ("fp8", fp8), ("fp4", fp4)) if value}
    assert hardware.peak_flops_s == pytest.approx(expected)
    assert hardware.source and hardware.key == key


def test_memory_is_what_the_driver_shows() -> None:
    assert find("rtx_pro_6000_server").memory_bytes == 97_887 * 2**20
    assert find("h200_sxm").memory_bytes == 141e9
    assert find("rtx_pro_6000_server").cache_bytes == 128 * 2**20
    assert find("b300_sxm").cache_bytes is None


@pytest.mark.parametrize(
    ("name", "key"),
    [
        *(("H200", "h200_sxm"), ("b200", "b200_sxm"), ("RTX PRO 6000 Blackwell Server Edition", "rtx_pro_6000_server")),
        *(("GB200", "gb200"), ("A100 80GB PCIe", "a100_pcie_80"), ("rtx-5090", "rtx_5090")),
    ],
)
def test_a_product_of_one_edition_and_a_full_name_are_enough(name: str, key: str) -> None:
    assert find(name).key == key


@pytest.mark.parametrize("name", ["RTX PRO 6000", "RTX PRO 6000 Blackwell"])
def test_editions_that_differ_must_be_named(name: str) -> None:
    with pytest.raises(InputError, match=r"rtx_pro_6000_server \(1597 GB/s\), rtx_pro_6000_ws \(1792 GB/s\)"):
        find(name)
    assert [hardware.key for hardware in editions(name)] == [
        "rtx_pro_6000_server",
        "rtx_pro_6000_ws",
        "rtx_pro_6000_maxq",
    ]


@pytest.mark.parametrize(
    ("name", "key"),
    [
        *(("NVIDIA H200", "h200_sxm"), ("NVIDIA H100 80GB HBM3", "h100_sxm"), ("NVIDIA H100 PCIe", "h100_pcie")),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "rtx_pro_6000_maxq"),
        ("NVIDIA A100-SXM4-40GB", "a100_sxm_40"),
    ],
)
def test_a_name_of_the_driver_is_taken_exactly(name: str, key: str) -> None:
    assert by_nvml_name(name) == find(key)
    for similar in (f"{name} NVL", name.lower(), name.removeprefix("NVIDIA ")):
        assert by_nvml_name(similar) is None


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'h200_sxm'"):
        find("h200_sx")


def test_a_record_brings_the_hardware_back() -> None:
    hardware = find("h200_sxm")
    assert Hardware.from_record(json.loads(json.dumps(asdict(hardware)))) == hardware


def test_a_file_of_your_own_is_hardware_too(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("my_card:\n  product: My Card\n  bandwidth_gb_s: 1000\n  source: measured\n  cache_mib: 32\n")
    hardware = find(str(path))
    assert (hardware.name, hardware.memory_bandwidth_bytes_s, hardware.cache_bytes) == ("My Card", 1e12, 32 * 2**20)
    assert hardware.memory_bytes is None and hardware.peak_flops_s == {} and hardware.collectives is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: {product: A, bandwidth_gb_s: 1}", ":1: a.source: is required and missing"),
        ("a:\n  product: A\n  bandwith_gb_s: 1", ":3: a.bandwith_gb_s: unknown key; did you mean 'bandwidth_gb_s'"),
        ("a: {product: A, source: x, bandwidth_gb_s: 1}\nb: {product: B}", ": holds 2 entries"),
        ("", ":1: expected a mapping"),
        ("- a", ":1: expected a mapping"),
        ("a: 3", ":1: a: expected a mapping"),
        ("a: [", "not valid YAML"),
        ("a: " + "[" * 5000, "nested too deeply"),
        ("#" * 2_000_000, "has 2,000,000 bytes"),
        (
            f"{FIGURES_OF_A}  collectives: h200_sx",
            ":5: a.collectives: nothing was measured on 'h200_sx'; did you mean 'h2",
        ),
        (None, "no such file"),
    ],
)
def test_a_wrong_file_is_named_with_its_field(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "mine.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError) as error:
        find(str(path))
    assert str(error.value).startswith(f"{path}:") and message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_folder_is_no_hardware_file(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").mkdir()
    with pytest.raises(InputError, match=r"mine\.yaml: a folder"):
        find(str(tmp_path / "mine.yaml"))


def test_the_devices_whose_collectives_were_measured_may_stand_in(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"{FIGURES_OF_A}  collectives: h200_sxm\n")
    assert find(str(path)).collectives == "h200_sxm"
    measured = yaml.safe_load((DATA / "collectives.yaml").read_text())
    tables = {table["hardware"] for operation in ("all_reduce", "all_to_all") for table in measured[operation]}
    assert {hardware.collectives for hardware in read(DATA / "hardware.yaml").values()} - {None} == tables


@pytest.mark.parametrize(
    ("key", "weights", "activations", "tflops"),
    [
        *(("rtx_pro_6000_server", "fp4", None, 1920), ("rtx_pro_6000_server", "fp4", "fp8", 960)),
        *(("rtx_pro_6000_server", "fp4", "bf16", 480), ("rtx_pro_6000_server", "fp8", None, 960)),
        *(("h200_sxm", "fp4", None, 1978.9), ("a100_sxm_80", "fp8", None, 312), ("a100_sxm_80", None, None, None)),
    ],
)
def test_a_product_runs_at_the_wider_precision_that_the_device_has(
    key: str, weights: str | None, activations: str | None, tflops: float | None
) -> None:
    peak = find(key).peak(weights, activations)
    assert peak == (None if tflops is None else pytest.approx(tflops * 1e12))


# Tokens at which products take as long as reading the weights, P x bytes / (2 x bandwidth)
@pytest.mark.parametrize(
    ("key", "weights", "activations", "size", "tokens"),
    [
        ("rtx_pro_6000_server", "bf16", None, 2, 301),
        ("rtx_pro_6000_server", "fp8", None, 1, 301),
        ("rtx_pro_6000_server", "fp4", None, 0.5625, 338),
        ("rtx_pro_6000_server", "fp4", "bf16", 0.53125, 80),
        ("rtx_pro_6000_server", "fp4", "bf16", 0.5625, 85),
        ("h200_sxm", "fp8", None, 1, 206),
        ("b200_sxm", "fp4", None, 0.5625, 316),
        ("a100_sxm_80", "bf16", None, 2, 153),
    ],
)
def test_critical_tokens(key: str, weights: str, activations: str | None, size: float, tokens: int) -> None:
    hardware = find(key)
    critical = hardware.peak(weights, activations) * size / (2 * hardware.memory_bandwidth_bytes_s)
    assert critical == pytest.approx(tokens, abs=0.6)
