"""One trial on a running server, whoever started it: prompts, load, the server's and the machine's account.

Without one way to do it, a campaign and `lab check` would ask different questions of the same server, and their figures
could not be set side by side.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab import load
from lab.engines import readers
from lab.files import make_folder
from lab.load import kinds, tokenizer

if TYPE_CHECKING:
    from lab.engines.server import Server
    from lab.observe.gpus import Gpus
    from lab.observe.timeline import IdleLook
    from lab.workloads import Workload

ANSWER_TOKENS = 1024
"""Room left for an answer where neither the workload nor its lines name a cap."""
ARRIVALS_MARGIN = 1.5
"""Poisson arrivals come in other numbers than their mean."""
MOST_PROMPTS = 1_000_000


def measure_trial(
    server: Server,
    workload: Workload,
    concurrency: int,
    *,
    salt: str,
    window: Any,
    limits: Any,
    folder: Path,
    workload_folder: Path,
    facts: dict[str, Any],
    context_tokens: int | None,
    idle: IdleLook | None,
    gpus: Gpus | None,
    on_progress: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """The measured sections of trial.json (`lab.load.Measured`); the tables go to `folder`.

    facts: what the server said of itself (values of `describe()`); context_tokens: the longest request that every arm
    of the comparison takes, since all of them must get the same prompts; workload_folder: where the workload's relative
    paths start; gpus: those the server uses. Raises as `lab.load.drive` does.
    """
    make_folder(folder)
    reader = readers()[server.engine]
    cap_tokens = workload.output_tokens or ANSWER_TOKENS
    prompts = load.build(
        workload,
        salt,
        _count(workload, concurrency, window),
        tokenizer=tokenizer.find(server.url, server.model, server.headers)
        if kinds.get(workload.kind).synthesises
        else None,
        folder=workload_folder,
        max_prompt_tokens=None if context_tokens is None else max(1, context_tokens - cap_tokens),
    )
    target = load.Target(
        url=server.url,
        model=server.model,
        sample=server.sample,
        extras=reader.request_extras(prompts.api),
        tokens_path=reader.chunk_tokens_path,
        tokens_source=reader.window_tokens_source or None,
        headers=server.headers,
        pid=server.pid,
        log=server.log,
        gpus=gpus,
        time_factor=server.time_factor,
        live_counters=reader.live_counters,
        ranks=facts.get("ranks"),
    )
    measured = load.drive(
        target,
        prompts,
        concurrency=concurrency,
        output_tokens=workload.output_tokens,
        window=window,
        limits=limits,
        folder=folder,
        on_progress=on_progress,
        idle=idle,
    )
    return asdict(measured)


def _count(workload: Workload, concurrency: int, window: Any) -> int:
    """Prompts enough that few trials send one twice; a trace brings its own number."""
    if workload.arrivals == "trace":
        return MOST_PROMPTS
    due = (workload.rate_rps or 0) * (window.warmup_seconds + window.seconds) * ARRIVALS_MARGIN
    return max(load.PROMPT_COUNT, 8 * concurrency, math.ceil(due))
