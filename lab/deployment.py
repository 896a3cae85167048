"""One deployment against the limits of its hardware: how fast a step can be, what fits beside the weights, and what
drafting must bring.

Without it "how fast could this be?" is answered by dividing a bandwidth by the size of a checkpoint, which forgets
experts, messages between GPUs and the cache.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from lab.errors import InputError
from lab.roofline.arrays import Numbers
from lab.roofline.capacity import Capacity, capacity
from lab.roofline.experts import UNIFORM
from lab.roofline.hardware import Hardware
from lab.roofline.layout import Layout
from lab.roofline.model import Model
from lab.roofline.speculation import break_even_tokens_per_step, draft_step_ms, tokens_per_step_marginal
from lab.roofline.step import Bound, bound
from lab.roofline.traffic import usual_kv_dtype

SWEEP = tuple(1 << power for power in range(11))
NOT_LIMITED = "all of the context is shared and stored once, so one more sequence takes no cache of its own"


@dataclass(frozen=True)
class Deployment:
    """What is asked about.

    batch            sequences that run at once on the whole deployment
    context          tokens of context of each
    kv_dtype         cache type as engines name it; None: what the model's servers use when told nothing
    shared_prefix    tokens of context that all sequences share; None: not known (`step.bound`)
    routing          which experts tokens pick (`experts.distinct`)
    acceptance       share of drafts accepted at each position, as vLLM counts it; empty: no drafting
    activations      their precision where it is not that of the weights
    memory_fraction  share of each device's memory that the engine takes
    """

    model: Model
    hardware: Hardware
    layout: Layout = field(default_factory=Layout)
    batch: float = 16
    context: float = 1024
    kv_dtype: str | None = None
    shared_prefix: float | None = None
    routing: str | float = UNIFORM
    acceptance: tuple[float, ...] = ()
    activations: str | None = None
    memory_fraction: float = 0.9

    @property
    def kv_taken(self) -> str:
        """The cache type that the bound takes."""
        return usual_kv_dtype(self.model) if self.kv_dtype is None else self.kv_dtype


@dataclass(frozen=True)
class Room:
    """What fits in memory: `capacity` None with the reason in `why`; max_batch 0 where the weights leave no room, None
    where the hardware's memory is not known, infinite where a sequence takes no memory of its own."""

    capacity: Capacity | None
    why: str | None
    max_batch: float | None

    @property
    def figure(self) -> float | None:
        """max_batch as JSON can hold it: None also where there is no limit."""
        return None if self.max_batch == math.inf else self.max_batch


@dataclass(frozen=True)
class Assessment:
    """What the roofline says of a deployment.

    limit             the bound at the asked batch; sweep: at the batches of SWEEP, in arrays
    room              what fits without the checkpoint's draft layers; room_drafting: with them, None without any
    break_even        tokens per step above which drafting pays at the asked batch; None without drafting
    draft_ms          one draft step of the checkpoint's own layer, milliseconds; None: no drafting, or no such layer,
                      and then the drafter's time is left out and the bound is a ceiling for the cheapest drafter
    """

    asked: Deployment
    limit: Bound
    sweep: Bound
    room: Room
    room_drafting: Room | None
    break_even: float | None
    draft_ms: float | None

    @property
    def max_batch(self) -> float | None:
        """The most sequences that fit as asked, beside the draft layers where it drafts; infinite: without limit."""
        drafting = self.room_drafting if self.asked.acceptance else None
        return (drafting or self.room).max_batch

    @property
    def quicker_filled_up(self) -> tuple[int, float] | None:
        """The larger batch of SWEEP with the shortest step, and that step in milliseconds; None where it is no shorter
        than that of the asked batch."""
        steps = zip(SWEEP, np.asarray(self.sweep.step_ms).tolist(), strict=True)
        larger = [(batch, step_ms) for batch, step_ms in steps if batch > self.asked.batch]
        best = min(larger, key=lambda entry: entry[1], default=None)
        return best if best is not None and best[1] < self.limit.step_ms else None

    def rows(self) -> list[dict[str, Any]]:
        """The sweep, one entry for each batch; `fits` is None where the largest batch is not known.

        Measured messages get quicker at some sizes as they grow, and a step may then be shorter than one of fewer
        sequences. The smaller batch can always be filled up to the larger one, so its entry counts the shorter step:
        over the sweep step_ms never falls. The latencies themselves stay as they were measured.
        """
        sweep, most = self.sweep, self.max_batch
        experts = sweep.distinct_experts
        steps_ms = np.minimum.accumulate(np.asarray(sweep.step_ms)[::-1])[::-1]
        gained = np.asarray(sweep.step_ms) / steps_ms
        return [
            {
                "batch": batch,
                "step_ms": float(steps_ms[index]),
                "bound_tok_s": float(gained[index] * sweep.bound_tok_s[index]),
                "bound_tok_s_per_user": float(gained[index] * sweep.bound_tok_s_per_user[index]),
                "bound_tok_s_per_gpu": float(gained[index] * sweep.bound_tok_s_per_gpu[index]),
                "distinct_experts": None if experts is None else float(experts[index]),
                "fits": None if most is None else batch <= most,
            }
            for index, batch in enumerate(SWEEP)
        ]

    def figures(self) -> dict[str, Any]:
        """The keys of `lab roofline --json` (contract, section 4); missing is None.

        `max_batch` and `kv_capacity_tokens` are those without draft layers, `…_speculating` with them;
        `batch_not_limited` says why there is no largest batch.
        """
        asked, limit, hardware = self.asked, self.limit, self.asked.hardware
        room, drafting = self.room.capacity, self.room_drafting
        return {
            "model": asked.model.name,
            "recipe": asked.model.format,
            "hardware": hardware.key or hardware.name,
            "hardware_name": hardware.name,
            "source": hardware.source,
            "memory_bandwidth_bytes_s": hardware.memory_bandwidth_bytes_s,
            **asdict(asked.layout),
            "devices": limit.devices,
            "batch": asked.batch,
            "context": asked.context,
            "shared_prefix": asked.shared_prefix,
            "routing": asked.routing,
            "precision": {
                "weights": asked.model.format,
                "kv": asked.kv_taken,
                "state": asked.model.state_dtype,
                "activations": asked.activations,
            },
            "components_ms": limit.components_ms,
            "bound_tok_s": limit.bound_tok_s,
            "bound_tok_s_per_user": limit.bound_tok_s_per_user,
            "bound_tok_s_per_gpu": limit.bound_tok_s_per_gpu,
            "bound_memory_tok_s": limit.bound_memory_tok_s,
            "bound_hard_tok_s": limit.bound_hard_tok_s,
            "step_ms": limit.step_ms,
            "distinct_experts": limit.distinct_experts,
            "limited_by": limit.limited_by,
            "collectives": {
                name: {
                    "count": sent.count,
                    "message_bytes": float(sent.message_bytes),
                    "us": float(sent.latency.us),
                    "ms": float(sent.ms),
                    "found": str(sent.latency.found),
                    "library": sent.latency.library,
                    "borrowed": sent.latency.borrowed,
                }
                for name, sent in limit.collectives.items()
            },
            "memory_fraction": asked.memory_fraction,
            "kv_capacity_tokens": room.kv_tokens if room else None,
            "kv_capacity_tokens_speculating": drafting.capacity.kv_tokens if drafting and drafting.capacity else None,
            "max_batch": self.room.figure,
            "max_batch_speculating": drafting.figure if drafting else None,
            "batch_not_limited": NOT_LIMITED if self.room.max_batch == math.inf else None,
            "capacity_unknown": self.room.why,
            "draft_tokens": len(asked.acceptance),
            "draft_step_ms": self.draft_ms,
            "tokens_per_step": limit.tokens_per_step,
            "break_even_tokens_per_step": self.break_even,
            "sweep": self.rows(),
        }


def assess(asked: Deployment) -> Assessment:
    """Bound, capacity and break-even of a deployment.

    Raises InputError for an impossible layout, an unknown cache type or a figure out of range, LabError for a model
    that is not modelled or a link that is not known.
    """
    drafted = len(asked.acceptance)
    inputs: dict[str, Any] = {
        "kv_dtype_k": asked.kv_dtype,
        "kv_dtype_v": asked.kv_dtype,
        "shared_prefix": asked.shared_prefix,
        "routing": asked.routing,
        "activations": asked.activations,
    }

    def limit(batch: Numbers) -> Bound:
        return bound(
            asked.model,
            asked.hardware,
            asked.layout,
            batch,
            asked.context,
            tokens_per_step=tokens_per_step_marginal(asked.acceptance),
            draft_tokens=drafted,
            draft_step_ms=drafting_ms(batch),
            **inputs,
        )

    def drafting_ms(batch: Numbers) -> Numbers:
        if not drafted or asked.model.draft is None:
            return 0.0
        where = (asked.model, asked.hardware, asked.layout, batch, asked.context)
        return draft_step_ms(*where, kv_dtype=asked.kv_dtype, routing=asked.routing)

    at_batch = limit(asked.batch)
    break_even = None
    if drafted:
        where = (asked.model, asked.hardware, asked.layout, asked.batch, asked.context)
        break_even = break_even_tokens_per_step(
            *where, draft_tokens=drafted, draft_step_ms=drafting_ms(asked.batch), **inputs
        )
    return Assessment(
        asked=asked,
        limit=at_batch,
        sweep=limit(np.array(SWEEP, dtype=float)),
        room=_room(asked, speculation=False),
        room_drafting=_room(asked, speculation=True) if asked.model.draft else None,
        break_even=None if break_even is None else float(break_even),
        draft_ms=float(drafting_ms(asked.batch)) if drafted and asked.model.draft else None,
    )


def _room(asked: Deployment, speculation: bool) -> Room:
    try:
        found = capacity(
            asked.model,
            asked.hardware,
            asked.layout,
            asked.context,
            memory_fraction=asked.memory_fraction,
            speculation=speculation,
            shared_prefix=asked.shared_prefix or 0.0,
            kv_dtype_k=asked.kv_dtype,
            kv_dtype_v=asked.kv_dtype,
        )
    except InputError as error:
        return Room(None, str(error), None if asked.hardware.memory_bytes is None else 0)
    return Room(found, None, math.inf if found.max_batch is None else found.max_batch)
