"""The engine's model does what the truth says: limits, times, acceptance, cache."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.simulator.pace import Pace
from lab.simulator.request import Request
from lab.simulator.scheduler import Rank, Step
from lab.simulator.truth import Truth, from_flags


class Closed:
    """A rank under so many clients, each sending its next request when the last has ended."""

    def __init__(
        self,
        clients: int,
        prompt: int = 100,
        length: int = 64,
        blocks: Callable[[int], list[int]] | None = None,
        launch: int = 0,
        synthetic: bool = False,
        **flags: Any,
    ) -> None:
        self.truth = from_flags({name.replace("__", "."): value for name, value in flags.items()})
        self.rank = Rank(self.truth, Pace(self.truth, launch))
        self.steps: list[Step] = []
        self.done: list[Request] = []
        self._prompt, self._length, self._blocks, self._synthetic = prompt, length, blocks, synthetic
        self._sent = 0
        for _ in range(clients):
            self._send(0.0)

    def _send(self, now_s: float) -> None:
        blocks = self._blocks(self._sent) if self._blocks else []
        ready_s = now_s + self.truth.overhead_ms / 1000
        self.rank.add(
            Request(self._sent, now_s, ready_s, self._prompt, self._length, self._length, blocks, self._synthetic)
        )
        self._sent += 1

    def run(self, seconds: float) -> Closed:
        """Advance the rank's own time."""
        while (now_s := self.rank.next_s()) < seconds:
            while (step := self.rank.advance(now_s)) is not None:
                self.steps.append(step)
                for request in step.finished:
                    self.done.append(request)
                    self._send(step.end_s)
        return self

    def rate(self, skip: int = 0) -> float:
        """Tokens per second of the steps after the first `skip`."""
        steps = self.steps[skip:]
        tokens = sum(count for step in steps for _, count in step.tokens)
        return tokens / (steps[-1].end_s - steps[0].start_s)


def test_a_cap_of_8_under_16_clients_runs_exactly_8_at_the_rate_of_the_formula() -> None:
    closed = Closed(16, max_running=8, step_ms=20.0, step_ms_per_running=0.5, prefill_ms_per_token=0.02).run(300)
    assert {step.running for step in closed.steps[1:]} == {8}
    assert {step.waiting for step in closed.steps[200:]} == {0, 8}  # eight end together; the next eight come 2 ms later
    # A request lives 64 steps; in each of them 8 requests run, and every request adds its prompt's time once.
    seconds = 64 * (20 + 0.5 * 8) / 1000 + 8 * 100 * 0.02 / 1000
    assert closed.rate() == pytest.approx(8 * 64 / seconds, rel=0.001)


def test_whole_batches_end_before_the_next_one_begins() -> None:
    """Eight clients whose first batch holds all of them; the next ones are what had come when it ended."""
    steps = Closed(8, whole_batches=True).run(20).steps
    assert all(after.running <= before.running for before, after in pairwise(steps) if not after.new_requests)
    assert all(step.new_requests == step.running for step in steps if step.new_requests)
    assert steps[0].running == 8


def test_the_first_token_comes_after_overhead_queue_and_prefill() -> None:
    closed = Closed(
        1,
        prompt=5000,
        overhead_ms=3.0,
        step_ms=20.0,
        step_ms_per_running=0.0,
        prefill_ms_per_token=0.1,
        prefill_chunk_tokens=2048,
    ).run(60)
    first = closed.done[0]
    assert first.first_token_s - first.arrival_s == pytest.approx((3 + 3 * 20 + 5000 * 0.1) / 1000)
    assert [step.prefill_tokens for step in closed.steps[:4]] == [2048, 2048, 904, 0]
    assert first.finished_s - first.first_token_s == pytest.approx(63 * 0.020)


def test_context_makes_steps_longer() -> None:
    closed = Closed(
        1,
        prompt=1000,
        length=3,
        step_ms=10.0,
        step_ms_per_running=0.0,
        prefill_ms_per_token=0.0,
        step_ms_per_context_token=0.001,
    ).run(1)
    lengths = [round((step.end_s - step.start_s) * 1000, 3) for step in closed.steps[:3]]
    assert lengths == [10.0, 11.001, 11.002]


def test_acceptance_has_the_true_shares_and_the_step_its_cost() -> None:
    spec = {"speculation__tokens": 3, "speculation__acceptance": [0.8, 0.5, 0.2], "speculation__step_cost": 1.5}
    closed = Closed(8, length=400, step_ms_per_running=0.0, prefill_ms_per_token=0.0, **spec).run(300)
    drafts = sum(step.drafts for step in closed.steps)
    for position, share in enumerate((0.8, 0.5, 0.2)):
        assert sum(step.accepted_at[position] for step in closed.steps) / drafts == pytest.approx(share, abs=0.002)
    assert sum(step.accepted for step in closed.steps) / drafts == pytest.approx(1.5, abs=0.005)
    decoding = [step for step in closed.steps if step.decoding]
    assert {round(step.end_s - step.start_s, 6) for step in decoding} == {0.030}
    assert {count for step in closed.steps for _, count in step.tokens} == {1, 2, 3, 4}


def test_synthetic_prompts_are_accepted_at_their_own_rate() -> None:
    spec = {"speculation__tokens": 1, "speculation__acceptance": [0.5], "speculation__synthetic_acceptance": [0.9]}
    for synthetic, share in ((False, 0.5), (True, 0.9)):
        closed = Closed(4, length=300, synthetic=synthetic, **spec).run(120)
        drafts, accepted = (sum(getattr(step, name) for step in closed.steps) for name in ("drafts", "accepted"))
        assert accepted / drafts == pytest.approx(share, abs=0.005)


def test_a_full_cache_bounds_the_batch_and_preempts() -> None:
    closed = Closed(64, prompt=100, length=200, max_running=64, kv_tokens=4000).run(200)
    running = [step.running for step in closed.steps[100:]]
    assert max(running) < 40
    assert closed.rank.preemptions > 0
    assert all(step.kv_tokens <= 4000 for step in closed.steps)
    assert all(request.generated == 200 for request in closed.done)


def test_with_reserved_output_nothing_is_preempted() -> None:
    closed = Closed(64, prompt=100, length=200, max_running=64, kv_tokens=4000, kv_reserve_output=True).run(200)
    assert closed.rank.preemptions == 0
    assert max(step.running for step in closed.steps) == 13


def test_cached_blocks_cost_nothing_and_the_last_token_is_computed() -> None:
    same = Closed(1, prompt=64, blocks=lambda _: [1, 2, 3, 4], prefix_cache=True, block_tokens=16).run(20)
    assert [request.cached_tokens for request in same.done[:3]] == [0, 48, 48]
    other = Closed(1, prompt=64, blocks=lambda n: [4 * n + i for i in range(4)], prefix_cache=True).run(20)
    assert {request.cached_tokens for request in other.done} == {0}
    off = Closed(1, prompt=64, blocks=lambda _: [1, 2, 3, 4]).run(20)
    assert {request.cached_tokens for request in off.done} == {0}
    assert sum(step.queried_tokens for step in off.steps) == 0


def test_noise_varies_steps_and_keeps_the_mean() -> None:
    noisy = Closed(4, noise__step_cv_pct=10.0, step_ms_per_running=0.0, prefill_ms_per_token=0.0).run(600)
    lengths = [step.end_s - step.start_s for step in noisy.steps]
    mean = sum(lengths) / len(lengths)
    spread = math.sqrt(sum((value - mean) ** 2 for value in lengths) / len(lengths))
    assert mean == pytest.approx(0.020, rel=0.003)
    assert spread / mean == pytest.approx(0.10, rel=0.05)


def test_launches_differ_by_the_ordered_spread_and_drift() -> None:
    truth = from_flags({"noise.launch_cv_pct": 2.0})
    factors = [Pace(truth, launch).launch_factor for launch in range(2000)]
    mean = sum(factors) / len(factors)
    spread = math.sqrt(sum((value - mean) ** 2 for value in factors) / len(factors))
    assert mean == pytest.approx(1.0, abs=0.002)
    assert spread == pytest.approx(0.02, rel=0.06)
    assert factors[5] == Pace(truth, 5).launch_factor
    drifting = from_flags({"noise.launch_drift_pct": 1.0})
    assert [Pace(drifting, launch).launch_factor for launch in (0, 1, 2)] == pytest.approx([1.0, 1.01, 1.0201])


def test_drift_and_slowdown_change_steps_as_ordered() -> None:
    flat = {"step_ms_per_running": 0.0, "prefill_ms_per_token": 0.0}
    drift = Closed(1, drift_pct_per_minute=5.0, **flat).run(121)
    assert drift.steps[-1].end_s - drift.steps[-1].start_s == pytest.approx(0.020 * 1.10, rel=0.002)
    ramp = Closed(1, slowdown__start_s=10.0, slowdown__span_s=20.0, slowdown__by_pct=15.0, **flat).run(60)
    at = {round(step.start_s): step.end_s - step.start_s for step in ramp.steps}
    assert at[5] == pytest.approx(0.020)
    assert at[20] == pytest.approx(0.020 * 1.075, rel=0.01)
    assert at[50] == pytest.approx(0.023)


def test_cold_requests_slow_their_steps() -> None:
    closed = Closed(
        2, length=4, cold__requests=4, cold__factor=10.0, step_ms_per_running=0.0, prefill_ms_per_token=0.0
    ).run(10)
    lengths = [round(step.end_s - step.start_s, 6) for step in closed.steps]
    assert lengths.count(0.2) == 8 and lengths[8] == 0.02
    assert [step.first_cold for step in closed.steps].count(True) == 1


def test_the_compile_pause_comes_once_at_its_time() -> None:
    closed = Closed(1, compile_at_s=3.0, compile_s=5.0).run(20)
    pauses = [step for step in closed.steps if step.pause_s]
    assert [step.pause_s for step in pauses] == [5.0]
    assert 3.0 <= pauses[0].start_s < 3.1


def test_batches_above_the_largest_graph_run_eager() -> None:
    closed = Closed(
        8, graphs__max_batch=4, graphs__eager_cost=2.0, step_ms_per_running=0.0, prefill_ms_per_token=0.0
    ).run(5)
    assert all(step.eager for step in closed.steps[1:])
    assert closed.steps[5].end_s - closed.steps[5].start_s == pytest.approx(0.040)


def test_pinned_requests_run_for_ever_beside_the_others() -> None:
    closed = Closed(0)
    closed.rank.add(Request(-1, 0.0, 0.0, 1, 1 << 30, 1 << 30, pinned=True, foreign=True))
    closed.run(5)
    assert {step.running for step in closed.steps} == {1}
    assert not closed.done


@settings(max_examples=60, deadline=None)
@given(
    clients=st.integers(1, 20),
    prompt=st.integers(1, 300),
    length=st.integers(1, 60),
    cap=st.integers(1, 12),
    kv=st.integers(500, 4000),
    chunk=st.integers(16, 512),
    drafts=st.integers(0, 3),
)
def test_no_limit_is_ever_broken(
    clients: int, prompt: int, length: int, cap: int, kv: int, chunk: int, drafts: int
) -> None:
    spec = {"speculation__tokens": drafts, "speculation__acceptance": [0.7, 0.4, 0.1][:drafts]}
    closed = Closed(clients, prompt, length, max_running=cap, kv_tokens=kv, prefill_chunk_tokens=chunk, **spec).run(20)
    ends = [step.end_s for step in closed.steps]
    assert ends == sorted(ends)
    for step in closed.steps:
        assert step.running <= min(cap, clients)
        assert step.prefill_tokens <= chunk
        assert step.running <= 1 or step.kv_tokens <= kv
        assert step.running + step.waiting <= clients
    for request in closed.done:
        assert request.generated == length
        assert request.arrival_s <= request.admitted_s < request.first_token_s <= request.finished_s
    handed = sum(count for step in closed.steps for _, count in step.tokens)
    held = sum(request.generated for request in [*closed.rank.running, *closed.rank.waiting])
    assert handed == length * len(closed.done) + held


def test_the_default_truth_is_a_plain_server() -> None:
    assert Truth().speculation.tokens == 0
    assert Pace(Truth()).launch_factor == 1.0
