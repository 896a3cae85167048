"""What the roofline expects of a lever before anything is measured: the arithmetic, and a figure where inputs differ.

Without it written down beforehand, any result can be explained afterwards, and a lever that the bound does not even see
is measured for a night in the hope of a gain that cannot be there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from lab.roofline import nccl
from lab.roofline.hardware import Hardware
from lab.roofline.layout import Layout
from lab.roofline.model import Model
from lab.roofline.step import Bound, bound
from lab.served_bound import CacheTypes

PER_LAYER_MS = 0.01
"""A round fixed cost of a layer, to show what one would be worth."""


@dataclass(frozen=True)
class Prediction:
    """effect_pct: of output tokens per second at the offered load, None where the roofline has no figure; sentence: the
    arithmetic, or why there is none."""

    effect_pct: float | None
    sentence: str

    def __str__(self) -> str:
        return self.sentence if self.effect_pct is None else f"{signed(self.effect_pct)} %: {self.sentence}"


@dataclass(frozen=True)
class Planned:
    """An arm before its launch, as far as it is known: what it serves on what, the requests that will run at once, the
    mean context of each in tokens, and its cache."""

    model: Model
    hardware: Hardware
    layout: Layout
    batch: float
    context: float
    cache: CacheTypes

    def limit(self, draft_tokens: int = 0) -> Bound:
        """Its nominal bound, no prefix shared; raises LabError where the hardware could not serve it so."""
        return bound(
            self.model,
            self.hardware,
            self.layout,
            self.batch,
            self.context,
            kv_dtype_k=self.cache.key,
            kv_dtype_v=self.cache.value,
            shared_prefix=0.0,
            draft_tokens=draft_tokens,
        )

    def megabytes(self, limit: Bound, *parts: str) -> float:
        """1e6 bytes that one device reads in a step for these parts."""
        read_ms = sum(float(limit.components_ms.get(part, 0.0)) for part in parts)
        return read_ms * self.hardware.memory_bandwidth_bytes_s / 1e9


def by_inputs(control: Planned, treatment: Planned) -> Prediction:
    """The bound of both arms, where anything that it sees differs between them."""
    changed = _changes(control, treatment)
    if not changed:
        return Prediction(None, f"no figure: the roofline does not see what this changes; {_step(control)}")
    return _compared(control, treatment, ", ".join(changed))


def of_checkpoint(control: Planned, treatment: Planned) -> Prediction:
    """Fewer bytes of weights in each step."""
    mine, theirs = (arm.megabytes(arm.limit(), "weights", "experts") for arm in (treatment, control))
    read = f"each device reads {theirs:,.1f} → {mine:,.1f} MB of weights a step ({_formats(control, treatment)})"
    return _compared(control, treatment, read)


def of_cache(control: Planned, treatment: Planned) -> Prediction:
    """Fewer bytes of cache in each step, in proportion to batch and context."""
    mine, theirs = (arm.megabytes(arm.limit(), "kv") for arm in (treatment, control))
    weights = control.megabytes(control.limit(), "weights", "experts")
    read = f"each device reads {theirs:,.2f} → {mine:,.2f} MB of cache a step beside {weights:,.1f} MB of weights"
    return _compared(control, treatment, read)


def of_drafts(control: Planned, draft_tokens: int) -> Prediction:
    """What drafting must bring; how many drafts are accepted only the measurement tells."""
    plain, verified = control.limit(), control.limit(draft_tokens)
    even = float(verified.step_ms / plain.step_ms)
    sentence = (
        f"no figure before the acceptance is measured: verifying {draft_tokens} drafts takes {verified.step_ms:.3g} ms "
        f"instead of {plain.step_ms:.3g} ms a step, so it pays from {even:.2f} tokens a step, that is from "
        f"{100 * (even - 1) / draft_tokens:.0f} % of the drafts accepted, and brings at most "
        f"{signed(100 * ((1 + draft_tokens) / even - 1), 0)} % with all of them"
    )
    if "compute" not in plain.components_ms:
        sentence += "; the arithmetic of this hardware is not known, and verification costs more by it"
    return Prediction(None, sentence)


def of_experts(control: Planned, treatment: Planned) -> Prediction:
    """Whole experts on each device against a slice of every one, and what their tokens' way costs."""
    layout = treatment.layout
    if layout.ep <= control.layout.ep:
        layout = replace(control.layout, ep=control.layout.tp)
    spread = replace(treatment, layout=layout)
    before, after = control.limit(), spread.limit()
    touched, ways = float(after.distinct_experts or 0.0), ("all_reduce", "all_to_all")
    sent = [sum(float(limit.components_ms.get(way, 0.0)) for way in ways) for limit in (before, after)]
    read = (
        f"of {control.model.n_experts} experts a layer a step touches {touched:.0f}: a slice of each on every device, "
        f"or {touched / layout.ep:.1f} whole ones; messages take {sent[0]:.3g} → {sent[1]:.3g} ms a step"
    )
    if before.bound_tok_s == after.bound_tok_s:
        return Prediction(None, f"no figure: {read}; the same bytes, and the busiest device sets the step")
    return _compared(control, spread, read)


def of_ring(control: Planned) -> Prediction:
    """Latency of a step's all-reduces by LL on a ring, against what NCCL's own model chooses."""
    limit, hardware, ranks = control.limit(), control.hardware, control.layout.tp
    sent = limit.collectives.get("all_reduce")
    if sent is None or hardware.link is None or hardware.link_bytes_s is None or hardware.generation is None:
        return Prediction(None, "no figure: nothing is reduced between devices here, or their link is not known")
    size, link_gb_s = float(sent.message_bytes), hardware.link_bytes_s / 1e9
    chosen = float(nccl.all_reduce_us(hardware.link, link_gb_s, hardware.generation, ranks, size))
    bandwidth = nccl.bandwidth_gb_s("ring", "LL", link_gb_s, ranks, hardware.generation)
    ring = nccl.latency_us("ring", "LL", hardware.link, ranks) + size / (1e3 * bandwidth)
    calls = (
        f"{sent.count} all-reduces of {size / 1024:,.0f} KiB on {ranks} devices take {float(sent.ms):.3g} of "
        f"{limit.step_ms:.3g} ms a step; NCCL's model gives LL on a ring {ring:.1f} µs each"
    )
    if ring <= chosen:
        return Prediction(None, f"no figure: {calls}, and would choose it by itself: a gain only where it does not")
    step_ms = limit.step_ms + sent.count * (ring - chosen) / 1e3
    return Prediction(100 * (limit.step_ms / step_ms - 1), f"{calls}, its own choice {chosen:.1f} µs")


def of_fixed_cost(control: Planned) -> Prediction:
    """What a fixed cost of a layer would be worth: the bound has none."""
    layers, step_ms = control.model.layers, control.limit().step_ms
    worth = 100 * layers * PER_LAYER_MS / step_ms
    return Prediction(
        None,
        f"no figure: the bound has no fixed cost, and none was fitted here; {layers} layers are launched in a step of "
        f"at least {step_ms:.3g} ms, so that each {PER_LAYER_MS} ms a layer is {worth:.2g} % of it",
    )


def of_kernels(control: Planned) -> Prediction:
    """Kernels nearer to the bound, which does not move."""
    return Prediction(None, f"no figure: better kernels leave the bound where it is; {_step(control)}")


def signed(value: float, decimals: int = 1) -> str:
    """`+3.9`, `−12.0`."""
    return f"{value:+.{decimals}f}".replace("-", "−")


def _compared(control: Planned, treatment: Planned, read: str) -> Prediction:
    before, after = control.limit(), treatment.limit()
    if before.bound_tok_s == after.bound_tok_s:
        return Prediction(None, f"no figure: {read}, which is the same bound")
    return Prediction(
        float(100 * (after.bound_tok_s / before.bound_tok_s - 1)),
        f"{read}; {_step(control)}, with the lever {after.step_ms:.3g} ms"
        + ("" if treatment.batch == control.batch else f" of {treatment.batch:g} requests"),
    )


def _step(arm: Planned) -> str:
    return (
        f"a step of {arm.batch:g} requests at a context of {arm.context:,.0f} tokens takes at least "
        f"{arm.limit().step_ms:.3g} ms"
    )


def _changes(control: Planned, treatment: Planned) -> list[str]:
    """What the bound sees of the difference, in words."""
    pairs: dict[str, tuple[Any, Any]] = {
        "requests at once": (f"{control.batch:g}", f"{treatment.batch:g}"),
        "cache": (control.cache.words(control.model), treatment.cache.words(treatment.model)),
        "layout": (_degrees(control.layout), _degrees(treatment.layout)),
    }
    found = [f"{name} {before} → {after}" for name, (before, after) in pairs.items() if before != after]
    return found + ([f"weights {_formats(control, treatment)}"] if control.model != treatment.model else [])


def _formats(control: Planned, treatment: Planned) -> str:
    return f"{control.model.format} → {treatment.model.format}"


def _degrees(layout: Layout) -> str:
    return f"tp {layout.tp} ep {layout.ep} dp {layout.dp} pp {layout.pp}"
