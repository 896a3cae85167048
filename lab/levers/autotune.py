"""Kernel autotune: on GPUs the engine's own search, on llama.cpp a short search over its CPU settings.

Without a fresh measurement of the winner, the best of several candidates is partly luck.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from lab.campaign import Arm
from lab.engines.base import Engine
from lab.levers.base import Lever, Proof, register
from lab.records import Launch
from lab.roofline.model import Model

_FACTS = {"n_threads": "n_threads", "n_ubatch": "n_ubatch"}


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
        cores = os.cpu_count() or 1
        micro_batch = {"n_ubatch": 64}
        if len(scores) == 0:
            return self._candidate(control, cores, "active", {} if cores > 1 else micro_batch)
        if len(scores) == 1 and cores > 1:
            return self._candidate(control, cores, "passive", {})
        if len(scores) == 2:
            best = max(scores, key=lambda pair: pair[1])[0]
            wait_policy = best.env["OMP_WAIT_POLICY"]
            return self._candidate(control, cores, wait_policy, micro_batch)
        return None

    def proof(self, control: Launch, treatment: Launch, engine: Engine) -> Proof:
        arm = treatment.record["arm"]
        asked = {**arm["flags"], **{name: arm["env"].get(name) for name in ("OMP_WAIT_POLICY",)}}
        facts = {**_FACTS, "OMP_WAIT_POLICY": "omp_wait_policy"}
        shown = []
        for setting, fact in facts.items():
            value = asked.get(setting)
            if value is None:
                continue
            effective = treatment.effective.get(fact)
            if str(effective) != str(value):
                return Proof(False, f"asked {setting} {value}, the server reports {effective}")
            shown.append(f"{setting} {control.effective.get(fact)} → {effective}")
        return Proof(bool(shown), "; ".join(shown))

    def _candidate(self, control: Arm, threads: int, wait_policy: str, flags: dict[str, int]) -> Arm:
        words = [f"{threads} threads", wait_policy, *(f"micro-batch {n}" for n in flags.values())]
        return self.arm(
            control,
            ", ".join(words),
            flags={"n_threads": threads, **flags},
            env={"OMP_WAIT_POLICY": wait_policy},
        )
