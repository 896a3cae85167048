"""Kernel autotune: on GPUs the engine's own search, on llama.cpp a short search over its CPU settings.

Without a fresh measurement of the winner, the best of several candidates is partly luck.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from lab.campaign import Arm
from lab.engines.base import Engine
from lab.levers.base import Lever, Proof, register
from lab.predictions import Planned, Prediction, of_kernels
from lab.records import Launch
from lab.roofline.model import Model

MICRO_BATCH = 64
_FACTS = {"n_threads": "n_threads", "n_ubatch": "n_ubatch", "OMP_WAIT_POLICY": "omp_wait_policy"}


@register
class Autotune(Lever):
    """The best of a few settings for how the engine spreads its kernels over this machine."""

    title = "Kernel autotune"
    notebook = "01_autotune"
    mechanism = (
        "More threads split each matrix product; the OpenMP wait policy decides whether threads spin or sleep at "
        "barriers; the micro-batch sets how many prompt tokens share one pass over the weights."
    )
    predicted = "positive where cores are free: up to the number of cores for compute-bound steps"
    backfires = "on a busy machine spinning threads wait for each other, and throughput falls many times over"
    searches = 3

    def not_applicable(self, engine: Engine, model: Model) -> str | None:
        return None if engine.name == "llamacpp" else f"no search is defined for {engine.name}"

    def treatments(self, control: Arm, engine: Engine) -> list[Arm]:
        return [self.arm(control, "best found")]

    def propose(self, control: Arm, engine: Engine, scores: Sequence[tuple[Arm, float]]) -> Arm | None:
        """All cores under each wait policy, then the better one with a small micro-batch; never the control itself."""
        cores = os.cpu_count() or 1
        policies = ("active", "passive") if cores > 1 else ()
        plain = [self._candidate(control, cores, policy, {}) for policy in policies]
        plain = [candidate for candidate in plain if candidate.digest != control.digest]
        if len(scores) < len(plain):
            return plain[len(scores)]
        best = max(scores, key=lambda pair: pair[1])[0].env["OMP_WAIT_POLICY"] if scores else "active"
        small = self._candidate(control, cores, best, {"n_ubatch": MICRO_BATCH})
        return None if len(scores) > len(plain) or small.digest == control.digest else small

    def prediction(self, control: Planned, treatment: Planned) -> Prediction:
        return of_kernels(control)

    def proof(self, control: Launch, treatment: Launch, engine: Engine) -> Proof:
        arm = treatment.record["arm"]
        asked = {**arm["flags"], "OMP_WAIT_POLICY": arm["env"].get("OMP_WAIT_POLICY")}
        shown, moved = [], False
        for setting, fact in _FACTS.items():
            value = asked.get(setting)
            if value is None:
                continue
            before, after = control.effective.get(fact), treatment.effective.get(fact)
            if str(after) != str(value):
                return Proof(False, f"asked {setting} {value}, the server reports {after}")
            shown.append(f"{setting} {before} → {after}")
            moved = moved or before != after
        return Proof(moved, "; ".join(shown))

    def _candidate(self, control: Arm, threads: int, wait_policy: str, flags: dict[str, int]) -> Arm:
        before = control.flags.get("n_threads", 1)
        words = [f"{threads} threads, control {before}", wait_policy, *(f"micro-batch {n}" for n in flags.values())]
        return self.arm(
            control,
            ", ".join(words),
            flags={"n_threads": threads, **flags},
            env={"OMP_WAIT_POLICY": wait_policy},
        )
