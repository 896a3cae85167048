"""Where the time of a measured step goes: what the roofline explains, part by part, and what it leaves over.

Without it a server at 2 % of its bound is tuned lever by lever, although nearly all of its step is spent on something
that no lever touches.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from lab.records import Trial
from lab.roofline.step import Bound
from lab.served_bound import cache_types

MEMORY = ("weights", "experts", "kv", "state")
MESSAGES = ("all_reduce", "all_to_all", "sends")
COLLECTIVES, COMPUTE, SPECULATION, UNEXPLAINED = "collectives", "compute", "speculation", "unexplained"
STRUCTURAL_SHARE = 0.2
"""Share of the nominal bound below which something structural is in the way: healthy stacks reach 0.4 to 0.8 of it, a
single stream over PCIe 0.2 to 0.4 (published decode figures set against the bound with collectives)."""
INPUTS = (
    "speculation that the server does not show, the edition of the device and its bandwidth, a prefix that all "
    "requests share, the law by which tokens pick experts, the types of cache and state, prompt tokens counted as "
    "output, a batch larger than the server says, replicas behind one address, latencies of collectives that are not "
    "measured"
)
"""What a step shorter than its bound may rest on, in the order in which to check it."""


@dataclass(frozen=True)
class Gap:
    """One step of a trial, on average over its window, in milliseconds.

    step_ms        measured: running requests x tokens per step / output tokens per second
    parts_ms       its parts, in this order, those that there are: weights, experts, kv, state (each read from memory);
                   collectives; compute (arithmetic beyond the reading); speculation (what the verification of drafted
                   tokens adds to a plain step of this batch); unexplained, which is the rest: launching kernels,
                   kernels slower than memory, drafting, prompts read between the steps. It is negative where the
                   measured step is shorter than its bound: then an input is wrong
    asked, running requests asked for, and the server's mean of those that ran
    layers         layers of the model
    output_tok_s, tokens_per_step   measured, and what a sequence gains in a step
    bound_tok_s, plain_bound_tok_s  the ceiling of `output_tok_s`, and what it would be if the verification of drafts
                   cost nothing: equal without speculation, or where the number of drafts is not known
    note           what a reader of the figures must know, in a sentence; empty: nothing
    """

    trial: str
    arm: str
    asked: int
    running: float
    layers: int
    step_ms: float
    parts_ms: dict[str, float]
    output_tok_s: float
    bound_tok_s: float
    plain_bound_tok_s: float
    tokens_per_step: float
    note: str = ""

    @property
    def unexplained_ms(self) -> float:
        """What the bound does not explain."""
        return self.parts_ms[UNEXPLAINED]

    @property
    def bound_fraction(self) -> float:
        """Measured over bound, never clamped."""
        return self.output_tok_s / self.bound_tok_s

    def per_layer_ms(self, part: str) -> float:
        """A part's milliseconds in one layer, were they spread evenly over the layers."""
        return self.parts_ms[part] / self.layers


def account(trial: Trial, bound: Bound, verified: Bound | None = None) -> Gap | None:
    """The gap account of a valid trial; None where its batch or throughput is not known.

    bound     of a plain step of the batch and context that ran, and the tokens that it gained (`health.plain_bound`)
    verified  of the same step with the drafted tokens verified in it (`health.verified_bound`); None: it does not
              speculate, or how many it drafts is not known, and then their cost is in the unexplained part
    """
    running, output_tok_s = trial.server["running"], trial.metrics["output_tok_s"]
    if not running or not output_tok_s:
        return None
    parts = {name: float(bound.components_ms[name]) for name in MEMORY if name in bound.components_ms}
    sent = [float(bound.components_ms[name]) for name in MESSAGES if name in bound.components_ms]
    if sent:
        parts[COLLECTIVES] = sum(sent)
    if COMPUTE in bound.components_ms:
        parts[COMPUTE] = float(bound.components_ms[COMPUTE])
    if verified is not None:
        parts[SPECULATION] = float(verified.step_ms - bound.step_ms)
    step_ms = 1e3 * running * bound.tokens_per_step / output_tok_s
    parts[UNEXPLAINED] = step_ms - sum(parts.values())
    return Gap(
        trial=trial.id,
        arm=trial.launch.arm,
        asked=trial.concurrency,
        running=running,
        layers=trial.launch.record["model"]["layers"],
        step_ms=step_ms,
        parts_ms=parts,
        output_tok_s=output_tok_s,
        bound_tok_s=float((verified or bound).bound_tok_s),
        plain_bound_tok_s=float(bound.bound_tok_s),
        tokens_per_step=bound.tokens_per_step,
        note=_note(trial, parts, verified),
    )


def structural_gap(trial: Trial, bound: Bound) -> str | None:
    """The finding `structural-gap` of one trial and its nominal bound (`health.trial_bound`) in a sentence; None where
    there is none, or where its batch or throughput is not known."""
    gap = account(trial, bound)
    return None if gap is None else structural([gap])


def structural(gaps: Sequence[Gap]) -> str | None:
    """The finding `structural-gap` of trials of one arm in a sentence of their means, where they reach less than
    STRUCTURAL_SHARE of their bounds; None where they reach more, or there are none."""
    if not gaps or (share := _mean(gap.bound_fraction for gap in gaps)) >= STRUCTURAL_SHARE:
        return None
    tok_s, limit = _mean(gap.output_tok_s for gap in gaps), _mean(gap.bound_tok_s for gap in gaps)
    step_ms, left_ms = _mean(gap.step_ms for gap in gaps), _mean(gap.unexplained_ms for gap in gaps)
    running, layer_ms = _mean(gap.running for gap in gaps), _mean(gap.per_layer_ms(UNEXPLAINED) for gap in gaps)
    return (
        f"{tok_s:,.1f} tok/s is {100 * share:.1f} % of the {limit:,.0f} tok/s that the hardware allows for the "
        f"{running:.1f} requests that ran: a step takes {step_ms:,.1f} ms, of which reading, arithmetic and messages "
        f"explain {step_ms - left_ms:,.1f} ms; {layer_ms:.3g} ms of each layer go elsewhere: find what is in the way "
        "before any lever"
    )


_mean = statistics.fmean


def _note(trial: Trial, parts: dict[str, float], verified: Bound | None) -> str:
    said = []
    if doubt := cache_types(trial.launch.effective).doubt:
        said.append(f"the type of the cache is {doubt}: its part may be another")
    if parts[UNEXPLAINED] < 0:
        said.append(
            f"the measured step is {-parts[UNEXPLAINED]:,.2f} ms shorter than its bound, which cannot be: an input is "
            f"wrong; check in this order: {INPUTS}"
        )
    elif verified is None and trial.launch.effective.get("speculative"):
        said.append(
            "the server speculates and does not say how many tokens it drafts: what their verification costs is in the "
            "unexplained part"
        )
    return "; ".join(said)
