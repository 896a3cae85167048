"""Arms and captured logs for the engine tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lab.campaign import Arm

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.fixture
def captured() -> Callable[[str], str]:
    """The text of a file captured from a real server."""
    return lambda name: (FIXTURES / name).read_text()


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
