"""Another build is an arm of its own, and its fingerprint is the proof."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lab.campaign import Arm
from lab.errors import InputError
from lab.levers.engine_build import EngineBuild
from lab.records import Launch
from tests.builders import MODEL, StubEngine, control_arm

Make = Callable[..., Launch]


class Builds(StubEngine):
    """An engine whose build is the text of `runtime.path`."""

    def build(self, arm: Arm) -> str:
        return f"vllm, files {arm.runtime.get('path', 'stock')}"


ENGINE = Builds("vllm")


def lever(**options: str) -> EngineBuild:
    return EngineBuild("engine_build", EngineBuild.Options(**options))


def test_the_treatment_is_the_control_on_another_build() -> None:
    control = control_arm(flags={"max_num_seqs": 4})
    (arm,) = lever(path="/patched").treatments(control, ENGINE)
    assert (arm.runtime, arm.flags, arm.treatment) == ({"path": "/patched"}, control.flags, "/patched")
    assert arm.digest != control.digest


def test_the_same_build_twice_is_bad_input() -> None:
    with pytest.raises(InputError, match=r"levers\.engine_build: both arms would run vllm, files stock"):
        lever(path="stock").treatments(control_arm(), ENGINE)


def test_a_build_must_be_named() -> None:
    with pytest.raises(ValueError, match="give python or path"):
        EngineBuild.Options()


def test_a_simulated_server_has_no_build() -> None:
    class Simulated(Builds):
        simulated = True

    assert lever(path="x").not_applicable(Simulated("simulated"), MODEL) == "a simulated server has no build"
    assert lever(path="x").not_applicable(ENGINE, MODEL) is None


@pytest.mark.parametrize(
    ("before", "after", "applied"),
    [("files a", "files b", True), ("files a", "files a", False), ("files a", None, False)],
)
def test_the_fingerprint_is_the_proof(launch: Make, before: str, after: str | None, applied: bool) -> None:
    control, treatment = launch({"build": before}), launch({"build": after})
    proof = lever(path="x").proof(control, treatment, ENGINE)
    assert proof.applied is applied
    assert ("files a → files b" in proof.text) is applied
