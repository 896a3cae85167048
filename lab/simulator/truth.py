"""What a simulated server really is: every property of it, with its unit.

Without one strict description of the truth, a test would compare a measurement with what the test's author
believes the server does. Times are server seconds or milliseconds: `time_factor` of them pass in one real second.
Unknown fields are errors. Fields under a group are dotted in flags: `speculation.tokens`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo

from lab.errors import InputError
from lab.files import suggest
from lab.simulator.faults import Faults, Foreign, Lies, Metrics
from lab.simulator.groups import Cold, Graphs, Noise, Output, Slowdown, Speculation, Weights
from lab.strict import Strict

__all__ = ["Truth", "described", "flag_names", "flat", "from_flags", "parsed"]


class Truth(Strict):
    """Everything a simulated server is. Durations: server milliseconds or seconds; limits: for each rank."""

    dialect: Literal["sglang", "vllm", "llamacpp"] = "vllm"
    """Whose endpoints, metrics and log lines it speaks."""
    model: str = "simulated-model"
    """The name its API answers to."""
    seed: int = 0
    """Everything random follows from it (and from the launch number)."""
    time_factor: float = Field(1.0, ge=1, le=1000)
    """Server seconds in one real second."""
    step_ms: float = Field(20.0, gt=0)
    """Milliseconds of a step, whatever is in it."""
    step_ms_per_running: float = Field(0.1, ge=0)
    """Milliseconds more for each running request in the step."""
    step_ms_per_context_token: float = Field(0.0, ge=0)
    """Milliseconds more for each token of context of the requests that decode in the step."""
    prefill_ms_per_token: float = Field(0.02, ge=0)
    """Milliseconds more for each prompt token computed in the step; cached ones cost nothing."""
    prefill_chunk_tokens: int = Field(2048, ge=1)
    """Prompt tokens that one step computes at most."""
    overhead_ms: float = Field(2.0, ge=0)
    """Milliseconds between a request's arrival and its place in the queue."""
    max_running: int = Field(64, ge=1)
    """Requests that each rank runs at once: the limit that really holds."""
    echoed_max_running: int | None = Field(None, ge=1)
    """The limit that the server claims; null: the true one. For what the server would be asked for, see `flags`."""
    whole_batches: bool = False
    """Waiting requests are admitted only when none runs any more (static batching)."""
    kv_tokens: int = Field(262144, ge=16)
    """Tokens in each rank's cache, before speculation takes its part."""
    block_tokens: int = Field(16, ge=1)
    """Tokens in a cache block, the unit of prefix hits."""
    kv_reserve_output: bool = False
    """A request is admitted only when its whole answer fits the cache, so nothing is ever preempted."""
    context_tokens: int = Field(8192, ge=16)
    """Longest request, prompt and answer together. llama.cpp: what the model was trained for; a slot's share of the
    cache is its limit."""
    kv_dtype: str = "bfloat16"
    """Type of the cache in the engine's answers."""
    ranks: int = Field(1, ge=1, le=64)
    """Data-parallel ranks, each a scheduler of its own."""
    router: Literal["even", "first"] = "even"
    """Where requests go: to the rank with the fewest, or all to rank 0."""
    speculation: Speculation = Speculation()
    prefix_cache: bool = False
    """Whether blocks of earlier prompts are found again."""
    prompt_tokens_factor: float = Field(1.0, gt=0)
    """Prompt tokens counted (and computed) for each token of the text."""
    usage: Literal["continuous", "final", "none"] = "continuous"
    """What token counts a stream carries when asked: in each chunk, at its end, or never."""
    tokens_per_chunk: int = Field(1, ge=1)
    """Tokens that are gathered before a chunk is sent (stream interval)."""
    one_chunk: bool = False
    """The whole answer is sent in one chunk when it is complete."""
    role_chunk_ms: float | None = Field(None, ge=0)
    """Milliseconds after arrival when an event without text opens a chat stream; null: with the first token."""
    output: Output = Output()
    noise: Noise = Noise()
    drift_pct_per_minute: float = 0.0
    """Steps get this many percent longer in each server minute after the first request."""
    slowdown: Slowdown = Slowdown()
    cold: Cold = Cold()
    compile_at_s: float | None = Field(None, ge=0)
    """Server seconds after the first request when the engine pauses to compile; null: never."""
    compile_s: float = Field(5.0, ge=0)
    """Server seconds of that pause."""
    compile_log_line: bool = True
    """Whether the engine's compile line is written then."""
    graphs: Graphs = Graphs()
    foreign: Foreign = Foreign()
    hold_beyond: int | None = Field(None, ge=1)
    """Requests in flight beyond this number wait where no gauge sees them, as behind a proxy; null: none do."""
    metrics: Metrics = Metrics()
    faults: Faults = Faults()
    extra_start_s: float = Field(0.0, ge=0)
    """Server seconds of loading before the server listens."""
    port: int = Field(0, ge=0, le=65_535)
    """Port that it listens on; 0: a free one."""
    ignored_flags: list[str] = []
    """Fields or groups above that are accepted and have no effect: the server keeps their defaults and says so."""
    lies: Lies = Lies()
    weights: Weights = Weights()

    def resolved(self) -> Truth:
        """The truth that holds once `ignored_flags` have been dropped."""
        kept = self.model_dump()
        for name in self.ignored_flags:
            *groups, leaf = name.split(".")
            holder = kept
            for group in groups:
                holder = holder[group]
            del holder[leaf]
        return Truth.model_validate(kept)

    @property
    def cap(self) -> int:
        """Requests that each rank really runs at once."""
        limit = self.speculation.running_limit if self.speculation.tokens else None
        return self.max_running if limit is None else min(self.max_running, limit)

    @property
    def cache_tokens(self) -> int:
        """Tokens of each rank's cache that requests can use."""
        return self.kv_tokens - (self.speculation.kv_tokens_taken if self.speculation.tokens else 0)

    @model_validator(mode="after")
    def _whole(self) -> Truth:
        for name in self.ignored_flags:
            if name not in (known := flag_names(groups=True)) or name in ("dialect", "time_factor", "ignored_flags"):
                raise ValueError(f"ignored_flags: '{name}' is no flag that can be ignored{suggest(name, known)}")
        if self.dialect == "llamacpp" and self.ranks > 1:
            raise ValueError("ranks: llama.cpp has no data parallelism; leave it at 1")
        if self.cache_tokens < self.block_tokens:
            raise ValueError("speculation.kv_tokens_taken leaves no cache; lower it or raise kv_tokens")
        return self


def flat(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested document as flags with dotted names."""
    flags: dict[str, Any] = {}
    for name, value in document.items():
        flags |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return flags


def flag_names(groups: bool = False) -> list[str]:
    """Every field as a flag spells it, dotted within groups; with `groups` the groups themselves too."""
    return [name for name, field in _walk(Truth, "") if groups or not _is_group(field)]


def described() -> list[tuple[str, Any, str]]:
    """Every flag with its default and its meaning."""
    return [(name, field.default, field.description or "") for name, field in _walk(Truth, "") if not _is_group(field)]


def _is_group(field: FieldInfo) -> bool:
    return isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)


def _walk(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, FieldInfo]]:
    for name, field in model.model_fields.items():
        yield prefix + name, field
        if _is_group(field):
            yield from _walk(field.annotation, f"{prefix}{name}.")  # type: ignore[arg-type]


def from_flags(flags: dict[str, Any]) -> Truth:
    """Flags with dotted names → Truth; raises InputError that names the flag and what fits."""
    nested: dict[str, Any] = {}
    known = flag_names()
    for name, value in flags.items():
        if name not in known:
            raise InputError(f"flag '{name}' is unknown to the simulated server{suggest(name, known)}")
        *groups, leaf = name.split(".")
        holder = nested
        for group in groups:
            holder = holder.setdefault(group, {})
        holder[leaf] = value
    return parsed(nested)


def parsed(document: dict[str, Any]) -> Truth:
    """A nested document → Truth; raises InputError for the first field that does not fit."""
    try:
        return Truth.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        text = first["msg"].removeprefix("Value error, ")
        hint = suggest(where, flag_names()) if first["type"] == "extra_forbidden" else ""
        raise InputError(f"flag {where}: {text}{hint}" if where else f"flags: {text}") from None
