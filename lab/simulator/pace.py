"""How long a step takes: the plain cost of its batch, and everything that makes it vary.

Without one place for noise, drift, cold requests and pauses, the true mean of a step could not be written down.
"""

from __future__ import annotations

import random

from lab.simulator.truth import Truth

_CLIP = 3.0  # standard deviations; symmetric, so the mean stays


class Pace:
    """Step times of one process; `launch` numbers it among the launches of a campaign."""

    def __init__(self, truth: Truth, launch: int = 0) -> None:
        self._truth = truth
        self._random = random.Random(f"{truth.seed}/{launch}/steps")
        draw = random.Random(f"{truth.seed}/{launch}/launch").gauss(0, 1)
        noise = truth.noise
        self.launch_factor = (1 + noise.launch_cv_pct / 100 * _clipped(draw)) * (
            1 + noise.launch_drift_pct / 100
        ) ** launch
        self._compiled = truth.compile_at_s is None

    def decode_ms(self, running: int, decoding: int, context_tokens: int) -> float:
        """Milliseconds of a step's decode part, without noise. `running` counts requests in prefill too."""
        truth = self._truth
        cost = truth.step_ms + truth.step_ms_per_running * running
        cost += truth.step_ms_per_context_token * context_tokens
        if truth.speculation.tokens and decoding:
            cost *= truth.speculation.step_cost
        if self.is_eager(running):
            cost *= truth.graphs.eager_cost
        return cost

    def is_eager(self, running: int) -> bool:
        """Whether a batch of that many requests runs without a graph."""
        largest = self._truth.graphs.max_batch
        return largest is not None and running > largest

    def step_s(self, cost_ms: float, since_first_s: float, cold: bool) -> float:
        """Server seconds of a step of that plain cost, begun that long after the first request."""
        truth = self._truth
        factor = self.launch_factor * (1 + truth.drift_pct_per_minute / 100 * since_first_s / 60)
        ramp = truth.slowdown
        if ramp.by_pct:
            factor *= 1 + ramp.by_pct / 100 * min(1.0, max(0.0, (since_first_s - ramp.start_s) / ramp.span_s))
        if truth.noise.step_cv_pct:
            factor *= 1 + truth.noise.step_cv_pct / 100 * _clipped(self._random.gauss(0, 1))
        if cold:
            factor *= truth.cold.factor
        return cost_ms * factor / 1000

    def pause_s(self, since_first_s: float) -> float:
        """Server seconds for which the engine compiles before this step: once, at `compile_at_s`."""
        at_s = self._truth.compile_at_s
        if self._compiled or at_s is None or since_first_s < at_s:
            return 0.0
        self._compiled = True
        return self._truth.compile_s


def _clipped(value: float) -> float:
    return max(-_CLIP, min(_CLIP, value))
