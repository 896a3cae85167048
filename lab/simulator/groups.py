"""The parts of a truth that describe a healthy server: speculation, answers, noise, warm-up, graphs, the model.

Without them apart from `truth`, the one page that lists everything could not be read. Times are server seconds or
milliseconds.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from lab.strict import Strict


class Speculation(Strict):
    """Drafted tokens that one verification step may accept; `tokens` 0: none."""

    tokens: int = Field(0, ge=0, le=64)
    """Draft tokens in a verification step."""
    acceptance: list[float] = []
    """Share of verification steps whose draft at this position is accepted, by position; never rising."""
    synthetic_acceptance: list[float] | None = None
    """The same for prompts of random tokens (ids, no punctuation); null: as `acceptance`."""
    step_cost: float = Field(1.0, gt=0)
    """Factor on the decode part of a step, for drafting and verifying."""
    kv_tokens_taken: int = Field(0, ge=0)
    """Tokens that the draft model takes from the cache of each rank."""
    running_limit: int | None = Field(None, ge=1)
    """Limit of running requests that speculation sets on each rank by itself (SGLang: 48); null: none."""
    method: str = "mtp"
    """The method's name in the engine's answers."""
    synthetic: bool = False
    """Whether the engine is told to make acceptance up, and says so (vLLM's `rejection_sample_method: synthetic`)."""

    @model_validator(mode="after")
    def _rates(self) -> Speculation:
        for name in ("acceptance", "synthetic_acceptance"):
            rates = getattr(self, name)
            if rates is None:
                continue
            if len(rates) != self.tokens:
                raise ValueError(f"{name} has {len(rates)} rates for {self.tokens} draft tokens; give one for each")
            if any(not 0 <= rate <= 1 for rate in rates) or sorted(rates, reverse=True) != rates:
                raise ValueError(f"{name} must be shares from 0 to 1 that never rise with the position")
        return self


class Output(Strict):
    """What answers look like and how their tokens are counted and sent."""

    stop_early_share: float = Field(0.0, ge=0, le=1)
    """Share of prompts whose answer ends by itself (finish reason stop); always the same prompts."""
    stop_early_factor: float = Field(0.5, gt=0, le=1)
    """Length of such an answer as a share of max_tokens."""
    ignores_ignore_eos: bool = False
    """`ignore_eos` is accepted and has no effect."""
    repeats: float = Field(0.0, ge=0, le=1)
    """Share of prompts whose answer ends in a loop of two words."""
    usage_surplus_per_chunk: int = Field(0, ge=0)
    """Tokens counted too many in `usage` for each chunk sent; the counters stay right."""
    reasoning_tokens: int = Field(0, ge=0)
    """First tokens of an answer that are reasoning."""
    reasoning_field: Literal["reasoning_content", "reasoning", "hidden"] = "reasoning_content"
    """Where a chat stream carries them; hidden: nowhere, only `usage` tells."""
    corrupt_share: float = Field(0.0, ge=0, le=1)
    """Share of the prompts `What is A + B?` that are answered with a wrong sum; always the same prompts."""


class Slowdown(Strict):
    """A ramp to a slower level, once."""

    start_s: float = Field(0.0, ge=0)
    """Server seconds after the first request when the ramp begins."""
    span_s: float = Field(60.0, gt=0)
    """Server seconds until the new level is reached."""
    by_pct: float = 0.0
    """Steps then take this many percent longer."""


class Noise(Strict):
    """What makes step times vary."""

    step_cv_pct: float = Field(0.0, ge=0, le=30)
    """Coefficient of variation of single steps, percent; the mean stays."""
    launch_cv_pct: float = Field(0.0, ge=0, le=30)
    """Coefficient of variation between launches, percent: one factor for the life of a process."""
    launch_drift_pct: float = 0.0
    """Every launch is slower than the one numbered before it by this many percent."""
    tail_share: float = Field(0.0, ge=0, le=1)
    """Share of requests that wait `tail_ms` before they are queued."""
    tail_ms: float = Field(0.0, ge=0)
    """Milliseconds of that wait, on average (exponentially distributed)."""


class Cold(Strict):
    """First requests that are slow."""

    requests: int = Field(0, ge=0)
    """Steps that hold one of the first so many requests are slow."""
    factor: float = Field(10.0, gt=0)
    """How many times longer such a step takes."""
    log_line: bool = False
    """Whether the engine's compile line is written at the first slow step."""


class Graphs(Strict):
    """Captured graphs: batches above the largest run without."""

    max_batch: int | None = Field(None, ge=0)
    """Largest batch (requests) with a graph; 0: graphs off; null: graphs for every batch."""
    eager_cost: float = Field(1.0, gt=0)
    """Factor on the decode part of a step without a graph."""
    shown: bool = True
    """Whether endpoints, log lines and counters tell of graphs."""


class Weights(Strict):
    """The model that is said to be served, for the roofline; without influence on the server. Default: 8B, 16 bits."""

    format: str = "BF16"
    """Tensor type of most parameters."""
    layers: int = Field(32, ge=1)
    """Layers."""
    heads: int = Field(32, ge=1)
    """Attention heads."""
    kv_heads: int = Field(8, ge=1)
    """Heads of keys and values."""
    head_dim: int = Field(128, ge=1)
    """Width of a head."""
    vocab: int = Field(131_072, ge=1)
    """Entries of the vocabulary."""
    params: int = Field(8_030_000_000, ge=1)
    """Parameters."""
    bytes: int = Field(16_060_000_000, ge=1)
    """Bytes of all tensors."""
    bytes_per_step: int = Field(15_010_000_000, ge=1)
    """Bytes that each decode step reads."""
