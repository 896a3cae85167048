"""The probe must measure memory, and must say what it measured."""

from __future__ import annotations

import dataclasses
import json
from datetime import datetime
from pathlib import Path

import pytest

from lab.observe.bandwidth import MIB, last_level_cache_bytes, probe
from lab.roofline.hardware import PRECISIONS


@pytest.fixture(scope="module")
def measured():
    return probe(seconds=0.1)


def test_the_bandwidth_is_the_best_of_all_kernels_and_thread_counts(measured):
    assert {figure.kernel for figure in measured.kernels} == {"read", "copy", "triad"}
    assert 1 in {figure.threads for figure in measured.kernels}
    assert all(figure.bytes_s > 0 for figure in measured.kernels)
    best = max(measured.kernels, key=lambda figure: figure.bytes_s)
    assert (measured.memory_bandwidth_bytes_s, measured.threads) == (best.bytes_s, best.threads)
    assert best.kernel in measured.source


def test_the_figure_is_that_of_a_memory(measured):
    assert 1e8 < measured.memory_bandwidth_bytes_s < 1e13


def test_the_arithmetic_is_that_of_a_processor_and_bounds_nothing(measured):
    assert measured.peak_flops_s.keys() == {"fp32"}
    assert 1e8 < measured.peak_flops_s["fp32"] < 1e15
    assert [measured.peak(precision) for precision in PRECISIONS] == [None] * len(PRECISIONS)


def test_arrays_lie_beyond_the_cache_or_the_source_says_so(measured):
    assert 85 * MIB <= measured.array_bytes <= 342 * MIB
    beyond = measured.cache_bytes is None or measured.array_bytes >= 4 * measured.cache_bytes - 8
    assert beyond != ("too small" in measured.source)


def test_the_result_goes_into_a_record(measured):
    written = json.loads(json.dumps(dataclasses.asdict(measured), allow_nan=False))
    assert datetime.fromisoformat(written["measured_at"]).utcoffset().total_seconds() == 0
    assert written["kernels"][0].keys() == {"kernel", "threads", "bytes_s"}


def describe_cache(folder: Path, processor: int, index: int, level: int, size: str, sharers: str) -> None:
    cache = folder / f"cpu{processor}" / "cache" / f"index{index}"
    cache.mkdir(parents=True)
    for name, text in {"level": level, "size": size, "shared_cpu_list": sharers}.items():
        (cache / name).write_text(f"{text}\n")


def test_each_shared_cache_counts_once_and_only_the_last_level(tmp_path):
    for processor in range(4):
        describe_cache(tmp_path, processor, 2, 2, "1024K", str(processor))
        describe_cache(tmp_path, processor, 3, 3, "32768K", "0-1" if processor < 2 else "2-3")
    assert last_level_cache_bytes([0, 1, 2, 3], tmp_path) == 64 * MIB
    assert last_level_cache_bytes([0, 1], tmp_path) == 32 * MIB


def test_an_unknown_cache_is_none(tmp_path):
    assert last_level_cache_bytes([0], tmp_path) is None
    describe_cache(tmp_path, 0, 0, 1, "unknown", "0")
    assert last_level_cache_bytes([0], tmp_path) is None
