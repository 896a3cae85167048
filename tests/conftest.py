"""Fixtures of the core rooms' tests: a cache and results of their own, and an engine that starts nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import checkpoints, engines
from lab.engines import base
from lab.errors import LabError
from tests.builders import StubEngine

ALONE = ("test_check.py", "load", "engines/test_llamacpp_live.py", "live", "golden")
"""Tests whose figures a busy neighbour moves: one worker runs them, one after the other and in this order."""
TOGETHER = ("tracking",)
"""Tests that share a server each."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that measure come first and stay on one worker; the others are spread over what is left."""
    here = Path(__file__).parent

    def rank(item: pytest.Item) -> int:
        place = item.path.relative_to(here).as_posix()
        return next((number for number, name in enumerate(ALONE) if place.startswith(name)), len(ALONE))

    items.sort(key=rank)
    for item in items:
        folder = item.path.relative_to(here).parts[0]
        group = "alone" if rank(item) < len(ALONE) else folder if folder in TOGETHER else None
        if group is not None:
            item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty results folder that the lab uses."""
    folder = tmp_path / "results"
    monkeypatch.setenv("LAB_RESULTS", str(folder))
    return folder


@pytest.fixture(scope="session")
def checkpoint() -> Path:
    """The small real model; its tests are skipped where it is neither cached nor fetchable."""
    try:
        return checkpoints.resolve("smollm2-135m-q4_1", Path.cwd())
    except LabError as error:
        pytest.skip(str(error))


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StubEngine:
    """The engine `stub`, known to the lab for one test, and a cache of its own."""
    engines.names()
    monkeypatch.setenv("LAB_CACHE", str(tmp_path / "cache"))
    engine = StubEngine()
    monkeypatch.setitem(base.REGISTERED, "stub", engine)
    return engine
