"""One request as the simulated engine sees it.

Without one object for it, the scheduler, the stream and the journal would each keep their own account of the
same request.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

NEVER = float("nan")


@dataclass(slots=True, eq=False)
class Request:
    """A generation request. Times are server seconds; NaN: not yet.

    number: order of arrival; ready_s: when it may be queued; length: tokens of its answer; blocks: names of the
    prompt's blocks; synthetic: a prompt of random tokens; pinned: never ends (idle running); sink: who is told;
    slot: its place in the batch; accepted_at: accepted drafts by position.
    """

    number: int
    arrival_s: float
    ready_s: float
    prompt_tokens: int
    max_tokens: int
    length: int
    blocks: list[int] = field(default_factory=list)
    synthetic: bool = False
    foreign: bool = False
    pinned: bool = False
    sink: Any = None
    rank: int = 0
    slot: int = 0
    computed: int = 0
    generated: int = 0
    cached_tokens: int = 0
    kv_tokens: int = 0
    preemptions: int = 0
    drafts: int = 0
    accepted: int = 0
    accepted_at: list[int] = field(default_factory=list)
    fresh: bool = True
    draw: float = 0.0
    admitted_s: float = NEVER
    first_token_s: float = NEVER
    finished_s: float = NEVER
    finish_reason: str = ""

    @property
    def to_compute(self) -> int:
        """Tokens that must be in the cache before the next token: the prompt, and after a preemption the answer too."""
        return self.prompt_tokens + self.generated
