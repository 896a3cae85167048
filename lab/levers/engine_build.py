"""Another build of the engine: patches, another release, another Python, against the one that the control runs.

Without the fingerprint of what really served, a patched folder that was never imported counts as "no effect" of the
patch.
"""

from __future__ import annotations

from typing import Any

from pydantic import model_validator

from lab.campaign import Arm, Strict
from lab.engines.base import Engine
from lab.errors import InputError
from lab.levers.base import Lever, Proof, compare_fact, register
from lab.records import Launch
from lab.roofline.model import Model


@register
class EngineBuild(Lever):
    """The same flags and checkpoint on another build."""

    class Options(Strict):
        """At least one of `python`: the interpreter whose packages serve; `path`: folders, separated by `:`, from which
        it imports first."""

        python: str | None = None
        path: str | None = None

        @model_validator(mode="after")
        def _one(self) -> Any:
            if self.python is None and self.path is None:
                raise ValueError("give python or path, as in {path: /src/vllm-with-patches}")
            return self

    title = "Engine build"
    notebook = "10_engine_build"
    mechanism = (
        "Patches and releases change kernels, scheduling and defaults under the same flags: whatever differs between "
        "the two builds is measured together."
    )
    predicted = "stated by the patch; without one, no effect"
    backfires = (
        "a build without its compiled parts falls back to slow kernels, and new defaults change more than the patch"
    )
    changes_text = True

    def not_applicable(self, engine: Engine, model: Model) -> str | None:
        return "a simulated server has no build" if engine.simulated else None

    def treatments(self, control: Arm, engine: Engine) -> list[Arm]:
        runtime = self.options.model_dump(exclude_none=True)
        arm = self.arm(control, ", ".join(runtime.values()), runtime=runtime)
        builds = [engine.build(one) for one in (control, arm)]
        if builds[0] == builds[1]:
            raise InputError(f"levers.{self.name}: both arms would run {builds[0]}; name a build that differs")
        return [arm]

    def proof(self, control: Launch, treatment: Launch, engine: Engine) -> Proof:
        """Both servers tell their build, and it differs: its digest covers the files that were there to import."""
        return compare_fact(control, treatment, "build", "build")
