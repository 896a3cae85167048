"""Latencies are read from the table as they are, and every figure says how it was found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.errors import InputError, LabError
from lab.roofline import aiconfigurator, collectives
from lab.roofline.collectives import all_reduce, all_to_all, lookup, send
from lab.roofline.hardware_catalogue import find

SERVER = find("rtx_pro_6000_server")
SIZES, LATENCIES = (1024.0, 2048.0, 4096.0), (10.0, 30.0, 20.0)
calm = settings(deadline=None, max_examples=50)


@pytest.mark.parametrize(
    ("size", "us", "found"),
    [(8192, 13.54, "measured"), (131_072, 24.88, "measured"), (98_304, 21.21, "interpolated"), (100, 13.04, "clamped")],
)
def test_four_cards_by_nccl(size: float, us: float, found: str) -> None:
    latency = all_reduce(SERVER, 4, size)
    assert latency.us == pytest.approx(us, rel=0.005)
    assert (latency.found, latency.library, latency.borrowed) == (found, "nccl-2.29.2", False)


def test_eight_h200_by_nccl() -> None:
    latency = all_reduce(find("H200"), 8, 57_344)
    assert latency.us == pytest.approx(19.59, rel=0.005)
    assert latency.found == "interpolated"


# Microseconds: ai-dynamo/aiconfigurator systems/data and local-inference-lab/rtx6kpro.
@pytest.mark.parametrize(
    ("gpu", "ranks", "library", "size", "us"),
    [
        ("rtx_pro_6000_server", 2, None, 8192, 6.8),
        ("rtx_pro_6000_server", 8, None, 524_288, 156.1),
        ("rtx_pro_6000_server", 8, None, 1_048_576, 131.5),
        ("h100_sxm", 8, None, 8192, 16.0),
        ("b200_sxm", 8, None, 65_536, 29.0),
        ("a100_sxm_80", 8, None, 1_048_576, 38.9),
        ("l40s", 4, None, 2_097_152, 622.1),
        ("rtx_pro_6000_server", 4, "sglang-0.5.14-custom-graph", 8192, 14.4),
        ("rtx_pro_6000_server", 2, "sglang-0.5.14-custom-graph", 8192, 4.6),
        ("rtx_pro_6000_server", 4, "pcie-oneshot", 65_536, 11.8),
        ("rtx_pro_6000_server", 8, "pcie-switch-custom", 8192, 9.2),
    ],
)
def test_the_table_holds_what_was_measured(gpu: str, ranks: int, library: str | None, size: float, us: float) -> None:
    latency = all_reduce(find(gpu), ranks, size, library)
    assert latency.us == pytest.approx(us, abs=0.06)
    assert latency.found == "measured"


def test_above_the_table_bytes_scale() -> None:
    latency = all_reduce(SERVER, 4, 2 * 67_108_864)
    assert latency.us == pytest.approx(2 * all_reduce(SERVER, 4, 67_108_864).us)
    assert latency.found == "scaled"


def test_an_array_of_sizes_tells_of_each() -> None:
    us, found = lookup(SIZES, LATENCIES, np.array([512, 1024, 1500, 4096, 8192]))
    assert us[[0, 1, 3, 4]] == pytest.approx([10, 10, 20, 40])
    assert list(found) == ["clamped", "measured", "interpolated", "measured", "scaled"]


@calm
@given(st.floats(1.0, 1e6))
def test_a_latency_is_never_smoothed_nor_outside_its_neighbours(size: float) -> None:
    us, found = lookup(SIZES, LATENCIES, size)
    if found == "interpolated":
        neighbours = LATENCIES[:2] if size < 2048 else LATENCIES[1:]
        assert min(neighbours) - 1e-9 <= us <= max(neighbours) + 1e-9
    elif found == "scaled":
        assert us == pytest.approx(20.0 * size / 4096)
    else:
        assert any(us == pytest.approx(value) for value in LATENCIES)


def test_a_device_without_measurements_borrows_and_says_so() -> None:
    assert all_reduce(find("rtx_pro_6000_maxq"), 4, 8192).borrowed
    assert all_reduce(find("b300_sxm"), 8, 8192).us == all_reduce(find("b200_sxm"), 8, 8192).us


def test_ranks_that_nobody_measured_are_modelled() -> None:
    latency = all_reduce(SERVER, 3, 1024)
    assert (latency.found, latency.library) == ("alpha-beta", "nccl")
    assert latency.us == pytest.approx(6.6 + 2 * 2 * 1.0 + 1024 / (1e3 * 32 * 3 / 4), rel=1e-6)


def test_an_unknown_library_lists_those_measured() -> None:
    with pytest.raises(InputError, match="did you mean 'pcie-oneshot'"):
        all_reduce(SERVER, 4, 8192, "pcie-onesho")


@pytest.mark.parametrize(
    ("ranks", "size", "us"), [(4, 8192, 8.7), (8, 65_536, 26.4), (4, 262_144, 21.0), (8, 1_048_576, 77.9)]
)
def test_all_to_all_of_the_server_edition_was_measured(ranks: int, size: float, us: float) -> None:
    latency = all_to_all(SERVER, ranks, size)
    assert latency.us == pytest.approx(us, abs=0.06)
    assert latency.found == "measured"


def test_an_all_to_all_nobody_measured_keeps_its_own_share_at_home() -> None:
    gpu = find("h200_sxm")
    few, many = (all_to_all(gpu, 8, size) for size in (0.0, 8e6))
    assert many.found == "alpha-beta"
    assert many.us - few.us == pytest.approx(8e6 * 7 / 8 / 450e3)
    assert send(gpu, 45e6).us == pytest.approx(6.6 + 0.6 + 100)


def test_a_link_without_a_model_is_refused() -> None:
    with pytest.raises(LabError, match="'xgmi'"):
        all_reduce(find("mi300x"), 8, 8192)
    with pytest.raises(LabError, match="how they are linked"):
        all_reduce(replace(SERVER, link=None, collectives=None), 4, 8192)


def write_package(folder: Path, columns: dict[str, list[object]]) -> Path:
    path = folder / "systems" / "data" / "mi300x" / "comm" / "nccl" / "2.29.2" / "nccl_perf.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table(columns), path)
    return folder


COLUMNS: dict[str, list[object]] = {
    "op_name": ["all_reduce", "all_reduce", "all_reduce", "alltoall", "all_reduce"],
    "nccl_dtype": ["half", "half", "int8", "half", "half"],
    "num_gpus": [8, 8, 8, 8, 4],
    "message_size": [1024, 512, 1024, 1024, 1024],  # elements
    "latency": [0.012, 0.010, 0.5, 0.5, 0.5],  # milliseconds
}


def test_an_installed_aiconfigurator_adds_its_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = write_package(tmp_path, COLUMNS)
    assert aiconfigurator.table(package, "mi300x", "all_reduce", 8) == ("nccl-2.29.2", (1024, 2048), (10.0, 12.0))
    assert aiconfigurator.table(package, "mi300x", "all_reduce", 2) is None
    assert aiconfigurator.table(package, "h200_sxm", "all_reduce", 8) is None
    monkeypatch.setattr(collectives.aiconfigurator, "installed", lambda: package)
    latency = all_reduce(find("mi300x"), 8, 2048)
    assert (latency.us, latency.found, latency.library) == (pytest.approx(12.0), "measured", "nccl-2.29.2")
    assert all_reduce(SERVER, 4, 8192).us == pytest.approx(13.54)  # our own comes first


def test_an_aiconfigurator_of_another_layout_is_not_guessed_at(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="no such folder"):
        aiconfigurator.table(tmp_path / "elsewhere", "mi300x", "all_reduce", 8)
    package = write_package(tmp_path, {name: values for name, values in COLUMNS.items() if name != "latency"})
    with pytest.raises(LabError, match="lacks the columns latency"):
        aiconfigurator.table(package, "mi300x", "all_reduce", 8)
