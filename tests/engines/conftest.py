"""Arms and captured logs for the engine tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lab import checkpoints
from lab.campaign import Arm
from lab.errors import LabError

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.fixture
def captured() -> Callable[[str], str]:
    """The text of a file captured from a real server."""
    return lambda name: (FIXTURES / name).read_text()


@pytest.fixture(scope="session")
def checkpoint() -> Path:
    """The small real model; its tests are skipped where it is neither cached nor fetchable."""
    try:
        return checkpoints.resolve("smollm2-135m-q4_1", Path.cwd())
    except LabError as error:
        pytest.skip(str(error))


@pytest.fixture
def arm(checkpoint: Path) -> Callable[..., Arm]:
    """Makes an arm that serves the small model: `arm(n_threads=2, env={…})`."""

    def make(env: dict[str, str] | None = None, runtime: dict[str, str] | None = None, **flags: object) -> Arm:
        return Arm(
            name="t",
            engine="llamacpp",
            checkpoint=str(checkpoint),
            flags={"n_parallel": 4, "n_ctx": 4096, **flags},
            env=env or {},
            runtime=runtime or {},
        )

    return make
