"""Short campaigns on the real embedded server, and ways to run the lab as a person does.

Windows are seconds long and the model is cut to a few layers, so figures of these runs say nothing; that they are
measured, judged and kept does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

from lab.campaign import PROJECT
from lab.hosts import marked_processes
from lab.runs import Run
from tests.live.shallow import cut

BASE: dict[str, Any] = {
    "name": "short",
    "server": {"engine": "llamacpp", "flags": {"n_parallel": 4, "n_ctx": 2048}},
    "workloads": {"chat": {"kind": "chat", "output_tokens": 16, "concurrency": [4]}},
    "window": {"warmup_seconds": 0.3, "seconds": 2, "min_steady_seconds": 1},
    "rule": {"workload": "chat", "concurrency": 4, "passes": {"min": 1, "max": 1}},
    "accuracy": {"allow_unknown": True},
    "limits": {"start_seconds": 60, "stall_seconds": 30, "drain_seconds": 20},
    "levers": {},
}


class Lab:
    """The command line with a results folder of its own, serving `checkpoint` where a campaign names none.

    brief: workloads for tests in which it is no matter what is asked; most of a short answer's time is its prompt's.
    """

    brief: ClassVar[dict[str, Any]] = {
        "chat": {"kind": "random", "input_tokens": 16, "output_tokens": 8, "concurrency": [4]}
    }

    def __init__(self, folder: Path, checkpoint: Path) -> None:
        self.folder = folder
        self.checkpoint = checkpoint
        self.results = folder / "results"
        self.env = {**os.environ, "LAB_RESULTS": str(self.results)}
        self.env.pop("MLFLOW_TRACKING_URI", None)

    def campaign(self, **changes: Any) -> Path:
        """A campaign file: BASE with whole top-level keys replaced."""
        path = self.folder / "short.yaml"
        model = {"name": "SmolLM2-135M-Instruct", "checkpoint": str(self.checkpoint)}
        path.write_text(yaml.safe_dump({**BASE, "model": model, **changes}, sort_keys=False))
        return path

    def command(self, *arguments: str | Path) -> list[str]:
        return [sys.executable, "-m", "lab", *map(str, arguments)]

    def run(self, *arguments: str | Path, timeout: float = 280) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            env=self.env,
            cwd=PROJECT,
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    def start(self, *arguments: str | Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*arguments),
            env=self.env,
            cwd=PROJECT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )

    def latest(self) -> Run:
        return Run((self.results / "short" / "latest").resolve())

    def has_run(self) -> bool:
        return (self.results / "short" / "latest").exists()

    def rows(self) -> dict[str, dict[str, Any]]:
        """Verdict rows of the latest run by lever."""
        answer = self.run("verdicts", "--format", "json")
        assert answer.returncode == 0, answer.stderr
        return {row["lever"]: row for row in json.loads(answer.stdout)}


@pytest.fixture(scope="session")
def shallow(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small real model cut to a few layers."""
    path = tmp_path_factory.mktemp("shallow") / "shallow-q4_1.gguf"
    cut(checkpoint, path)
    return path


@pytest.fixture
def lab(tmp_path: Path, shallow: Path) -> Iterator[Lab]:
    yield from _cleanly(Lab(tmp_path, shallow))


@pytest.fixture(scope="module")
def shared_lab(tmp_path_factory: pytest.TempPathFactory, shallow: Path) -> Iterator[Lab]:
    yield from _cleanly(Lab(tmp_path_factory.mktemp("lab"), shallow))


def _cleanly(lab: Lab) -> Iterator[Lab]:
    yield lab
    for status in lab.results.glob("*/*/status.json"):
        left = marked_processes(status.parent.name)
        deadline = time.monotonic() + 30
        while left and time.monotonic() < deadline:
            time.sleep(0.2)
            left = marked_processes(status.parent.name)
        assert left == [], f"processes of {status.parent.name} outlived the test: {left}"


@pytest.fixture
def eventually() -> Callable[..., Any]:
    """Wait until a question has a true answer, and give it back."""

    def wait(question: Callable[[], Any], what: str, seconds: float = 60) -> Any:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if answer := question():
                return answer
            time.sleep(0.05)
        raise AssertionError(f"not within {seconds} s: {what}")

    return wait
