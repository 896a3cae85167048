"""NCCL's own latency model, at the points where it is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.errors import LabError
from lab.roofline.nccl import all_reduce_us, bandwidth_gb_s, latency_us


@pytest.mark.parametrize(
    ("algorithm", "protocol", "link", "ranks", "us"),
    [
        *(("ring", "LL", "pcie", 4, 12.6), ("ring", "LL", "nvlink", 8, 15.0)),
        *(("ring", "Simple", "pcie", 4, 42.6), ("ring", "LL128", "nvlink", 8, 40.6)),
        *(("ring", "LL", "pcie", 2, 8.6), ("ring", "LL", "pcie", 8, 20.6), ("ring", "LL", "nvlink", 2, 7.8)),
    ],
)
def test_latency_within_one_node(algorithm: str, protocol: str, link: str, ranks: int, us: float) -> None:
    assert latency_us(algorithm, protocol, link, ranks) == pytest.approx(us)


def test_latency_between_nodes() -> None:
    # two nodes of 8 on NVLink, LL: tree 6.8 + 2 (7 x 0.6 + 1 x 5); ring 6.6 + (30 - 2) 0.6 + 2 x 2.7
    assert latency_us("tree", "LL", "nvlink", 16, nodes=2) == pytest.approx(25.2)
    assert latency_us("ring", "LL", "nvlink", 16, nodes=2) == pytest.approx(28.8)


@pytest.mark.parametrize(
    ("algorithm", "protocol", "channels", "gb_s"),
    [
        ("ring", "Simple", None, 450 * 8 / 14),
        ("ring", "LL", None, 141 * 8 / 14),
        ("ring", "LL128", None, 0.92 * 450 * 8 / 14),
        ("ring", "LL128", 4, 4 * 36.7 * 8 / 14),
        ("tree", "Simple", None, 0.46 * 450),
        ("tree", "Simple", 4, 4 * 38.7 / 2),
        ("tree", "LL", None, 0.46 * 450 / 3.8),
        ("tree", "LL128", None, 0.46 * 450 * 7 / 9),
    ],
)
def test_bandwidth_of_eight_h100(algorithm: str, protocol: str, channels: int | None, gb_s: float) -> None:
    assert bandwidth_gb_s(algorithm, protocol, 450, 8, "hopper", channels) == pytest.approx(gb_s)


def test_pcie_has_no_ll128() -> None:
    # at 1 MiB the fastest of LL and Simple, ring and tree, on four cards: ring LL at 0.5 x 64 x 4/6 GB/s
    assert all_reduce_us("pcie", 64, "blackwell", 4, 1 << 20) == pytest.approx(12.6 + (1 << 20) / (1e3 * 64 * 4 / 12))


@given(st.sampled_from(["nvlink", "pcie"]), st.integers(2, 8), st.floats(0, 1e9), st.floats(1, 10))
def test_more_bytes_and_more_ranks_take_longer(link: str, ranks: int, size: float, factor: float) -> None:
    def us(ranks: int, size: float) -> float:
        return float(all_reduce_us(link, 64, "hopper", ranks, np.array(size)))

    assert us(ranks, size * factor) >= us(ranks, size)
    assert us(ranks + 1, size) > us(ranks, size)


@pytest.mark.parametrize(("link", "generation"), [("xgmi", "hopper"), ("pcie", None)])
def test_a_device_without_constants_is_refused(link: str, generation: str | None) -> None:
    with pytest.raises(LabError, match="no all-reduce latency is known"):
        all_reduce_us(link, 64, generation, 4, 1024)
