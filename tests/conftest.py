"""Fixtures of the core rooms' tests: a cache and results of their own, and an engine that starts nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab import checkpoints, engines
from lab.engines import base
from lab.errors import LabError
from tests.builders import StubEngine

ALONE = ("test_check.py", "load", "engines/test_llamacpp_live.py", "live", "golden")
"""Tests whose figures a busy neighbour moves: one worker runs them, one after the other and in this order."""
TOGETHER = ("tracking", "engines", "hosts")
"""Folders whose tests share a server, or count processes by the same marks: each on one worker."""


def _rank(nodeid: str) -> int:
    """The place in ALONE of a test, its length for one that is not there."""
    place = nodeid.removeprefix("tests/")
    return next((number for number, name in enumerate(ALONE) if place.startswith(name)), len(ALONE))


def _unit(nodeid: str) -> str:
    """What one worker runs as a whole: the tests that measure, a folder of TOGETHER, or a file."""
    if _rank(nodeid) < len(ALONE):
        return "alone"
    path = nodeid.partition("::")[0]
    folder = path.removeprefix("tests/").partition("/")[0]
    return folder if folder in TOGETHER else path


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that measure come in the order of ALONE."""
    items.sort(key=lambda item: _rank(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Spread units over the workers, the largest first."""
    from xdist.scheduler import LoadScopeScheduling

    class ByUnit(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _unit(nodeid)

    return ByUnit(config, log)


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
