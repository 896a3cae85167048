"""What the server says it is: the truth, or the lie that was ordered.

Without one place, a lie would show on one endpoint and the truth on the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lab.simulator.truth import Truth

_ALL_GRAPHS = 512


@dataclass(frozen=True)
class Claims:
    """The claims of one server; limits are those of each rank.

    graphs_max_batch: 0: no graphs; None: nothing is said.
    """

    model: str
    version: str
    cap: int
    kv_tokens: int
    context_tokens: int
    block_tokens: int
    kv_dtype: str
    ranks: int
    speculative_tokens: int
    speculative_method: str
    graphs_max_batch: int | None
    prefix_cache: bool


def claims(truth: Truth, version: str) -> Claims:
    """What a server of that truth says; `version`: of the engine that it plays."""
    lies = truth.lies

    def said(lie: Any, true: Any) -> Any:
        return true if lie is None else lie

    graphs = min(truth.cap, _ALL_GRAPHS) if truth.graphs.max_batch is None else truth.graphs.max_batch
    return Claims(
        model=said(lies.model, truth.model),
        version=said(lies.version, version),
        cap=said(truth.echoed_max_running, truth.cap),
        kv_tokens=said(lies.kv_tokens, truth.cache_tokens),
        context_tokens=said(lies.context_tokens, truth.context_tokens),
        block_tokens=truth.block_tokens,
        kv_dtype=said(lies.kv_dtype, truth.kv_dtype),
        ranks=said(lies.ranks, truth.ranks),
        speculative_tokens=said(lies.speculative_tokens, truth.speculation.tokens),
        speculative_method=truth.speculation.method,
        graphs_max_batch=said(lies.graphs_max_batch, graphs) if truth.graphs.shown else None,
        prefix_cache=said(lies.prefix_cache, truth.prefix_cache),
    )
