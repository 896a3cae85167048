"""Small launches on disk, as a lever's proof sees them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.records import Launch
from tests.builders import TRIAL, changed, control_arm, write_launch

Make = Callable[..., Launch]


@pytest.fixture
def launch(tmp_path: Path) -> Make:
    """Makes a launch: facts the server reported, and optionally flags, env, counters of its trial and a log."""

    def make(
        facts: dict[str, Any],
        flags: dict[str, Any] | None = None,
        env: dict[str, str] | None = None,
        delta: dict[str, float] | None = None,
        log: str = "",
    ) -> Launch:
        folder = tmp_path / f"{len(list(tmp_path.iterdir())):03d}-arm"
        trial = changed(TRIAL, {"server.delta": delta or {}})
        return write_launch(folder, control_arm(flags=flags or {}, env=env or {}), facts=facts, trials=[trial], log=log)

    return make
