"""The bound of a server by what it says of itself: one translation of its facts into the roofline's inputs.

Without it a check and a campaign would read the same server differently, and a cache type that was only asked for
would pass for a proven one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lab.errors import LabError
from lab.roofline.hardware import Hardware
from lab.roofline.model import Model
from lab.roofline.step import Bound, bound
from lab.roofline.traffic import usual_kv_dtype
from lab.served import layout_of

ASKED, NOT_SHOWN = "asked, not proven", "not shown"


@dataclass(frozen=True)
class CacheTypes:
    """Types of keys and values as the nominal bound takes them (None: what the model's servers use when told nothing),
    and how they are known: empty where the server proves them, else ASKED or NOT_SHOWN."""

    key: str | None
    value: str | None
    doubt: str = ""

    def words(self, model: Model) -> str:
        """`fp8 (asked, not proven)`; both types where they differ."""
        key, value = (kind or usual_kv_dtype(model) for kind in (self.key, self.value))
        return (key if key == value else f"{key}/{value}") + (f" ({self.doubt})" if self.doubt else "")


def cache_types(facts: Mapping[str, Any]) -> CacheTypes:
    """What a server with these facts caches: what it proves, else what it was asked for, else the usual type."""
    key, value, asked = (facts.get(name) for name in ("kv_dtype_k", "kv_dtype_v", "kv_dtype_asked"))
    if key is not None and value is not None:
        return CacheTypes(key, value)
    if asked in (None, "auto"):
        return CacheTypes(None, None, NOT_SHOWN)
    return CacheTypes(asked, asked, ASKED)


def served_bound(
    facts: Mapping[str, Any],
    model: Model,
    hardware: Hardware,
    batch: float,
    context: float,
    *,
    proven: bool = False,
    tokens_per_step: float = 1.0,
    draft_tokens: float = 0.0,
) -> Bound:
    """The bound of a server with these facts at any batch and context; no prefix is taken for shared.

    proven   take only cache types that the server proves, so that the hard bound counts the smallest that any engine
             could hold where it proves none; else as `cache_types`
    tokens_per_step, draft_tokens   tokens that a sequence gains in a step, and drafted ones that it has verified

    Raises LabError where the layout is not shown or not modelled, or this hardware could not serve it so.
    """
    layout = layout_of(facts, mixture=model.experts is not None)
    if layout is None:
        raise LabError("how the server is spread over its GPUs is not shown, or not modelled")
    cache = cache_types(facts)
    if proven and cache.doubt:
        cache = CacheTypes(None, None, NOT_SHOWN)
    return bound(
        model,
        hardware,
        layout,
        batch,
        context,
        kv_dtype_k=cache.key,
        kv_dtype_v=cache.value,
        shared_prefix=0.0,
        tokens_per_step=tokens_per_step,
        draft_tokens=draft_tokens,
    )
