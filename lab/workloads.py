"""A workload of the campaign file: what clients ask, how much, and how it arrives.

Without a check against the kind's own list of fields, an `input_tokens` given to a kind that has no use for it
is silently ignored, and the trial measures other prompts than its owner believes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from lab.strict import Strict

MOST_CLIENTS = 16_384
MOST_TOKENS = 1_000_000
Api = Literal["chat", "completions", "generate", "llamacpp"]
Arrivals = Literal["closed", "poisson", "constant", "trace"]
RATED = ("poisson", "constant")


def _switch_as_word(value: Any) -> Any:
    """YAML reads a bare on and off as truth values."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


class Slo(Strict):
    """What a request must keep to count as goodput, in milliseconds; at least one of them.

    ttft_ms: first token; tpot_ms: time per token after it; e2e_ms: the whole answer.
    """

    ttft_ms: float | None = Field(None, gt=0)
    tpot_ms: float | None = Field(None, gt=0)
    e2e_ms: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _one(self) -> Slo:
        if not self.limits():
            raise ValueError(f"give at least one of {', '.join(type(self).model_fields)}")
        return self

    def limits(self) -> dict[str, float]:
        """Those that were given."""
        return self.model_dump(exclude_none=True)


class Workload(Strict):
    """What clients ask: the kind of prompts, a cap on output tokens, and the levels of concurrency.

    kind: a module of `lab.load.kinds`; output_tokens: cap per request, optional where a file brings one per line;
    concurrency: client slots; api: what the requests go to (None: the lines of the file decide); arrivals: `closed`
    (each slot sends when it is free), `poisson` or `constant` at `rate_rps` requests per second, `trace` (the file's
    own times); temperature: 0 is greedy; ignore_eos: answers run to their cap (None: where the prompts are synthetic);
    slo: limits of goodput; thinking: what the chat template is told about reasoning. The other fields belong to kinds.
    """

    kind: str
    output_tokens: int | None = Field(None, gt=1, le=MOST_TOKENS)
    concurrency: list[int] = Field(min_length=1)
    api: Api | None = None
    arrivals: Arrivals | None = None
    rate_rps: float | None = Field(None, gt=0, le=MOST_TOKENS)
    temperature: float = Field(0, ge=0, le=2)
    ignore_eos: bool | None = None
    slo: Slo | None = None
    thinking: Annotated[Literal["default", "on", "off"] | None, BeforeValidator(_switch_as_word)] = None
    input_tokens: int | None = Field(None, ge=1, le=10 * MOST_TOKENS)
    prefix_tokens: int | None = Field(None, ge=1, le=10 * MOST_TOKENS)
    prefixes: int | None = Field(None, ge=1, le=100_000)
    path: str | None = Field(None, min_length=1)
    speed: float | None = Field(None, gt=0, le=MOST_TOKENS)

    @field_validator("kind")
    @classmethod
    def _known(cls, name: str) -> str:
        from lab.files import suggest
        from lab.load import kinds

        if name not in kinds.names():
            raise ValueError(f"unknown kind '{name}'{suggest(name, kinds.names())}")
        return name

    @field_validator("concurrency")
    @classmethod
    def _levels(cls, levels: list[int]) -> list[int]:
        if any(not 1 <= level <= MOST_CLIENTS for level in levels) or len(set(levels)) != len(levels):
            raise ValueError(f"levels must be distinct whole numbers from 1 to {MOST_CLIENTS}")
        return levels

    @field_validator("api")
    @classmethod
    def _api(cls, value: str | None, info: ValidationInfo) -> str | None:
        kind = _kind(info)
        return value or (kind.api if kind else None)

    @field_validator("arrivals")
    @classmethod
    def _arrivals(cls, value: str | None, info: ValidationInfo) -> str | None:
        kind = _kind(info)
        if not kind:
            return value
        if kind.brings_arrivals:
            if value not in (None, "trace"):
                raise ValueError(f"kind '{kind.name}' brings its own times; remove '{value}'")
            return "trace"
        if value == "trace":
            raise ValueError(f"kind '{kind.name}' brings no times; use closed, poisson or constant, or the kind trace")
        return value or "closed"

    @field_validator("rate_rps")
    @classmethod
    def _rate(cls, value: float | None, info: ValidationInfo) -> float | None:
        arrivals = info.data.get("arrivals")
        if value is not None and arrivals is not None and arrivals not in RATED:
            raise ValueError(f"has no use with arrivals '{arrivals}'; remove it, or choose poisson or constant")
        return value

    @field_validator("thinking", "input_tokens", "prefix_tokens", "prefixes", "path", "speed")
    @classmethod
    def _of_kind(cls, value: Any, info: ValidationInfo) -> Any:
        kind, field = _kind(info), info.field_name
        if not kind:
            return value
        if value is not None and field not in kind.needs | kind.takes:
            raise ValueError(f"is not used by kind '{kind.name}'; remove it")
        if field == "thinking" and value in ("on", "off") and info.data.get("api") not in (None, "chat"):
            raise ValueError(f"needs the chat template, which api '{info.data['api']}' does not apply")
        return value

    @model_validator(mode="after")
    def _complete(self) -> Workload:
        from lab.load import kinds

        kind = kinds.get(self.kind)
        needed = [*sorted(kind.needs), *([] if kind.brings_output_tokens else ["output_tokens"])]
        for field in needed:
            if getattr(self, field) is None:
                raise ValueError(f"kind '{kind.name}' needs {field}; add it")
        if self.arrivals in RATED and self.rate_rps is None:
            raise ValueError(f"arrivals '{self.arrivals}' need rate_rps, requests per second; add it")
        return self

    def check(self, folder: Path, seconds: float) -> None:
        """Raise InputError for what is wrong in the files that the workload names, or too little for a trial.

        folder: the campaign file's; seconds: warm-up and window together.
        """
        from lab.load import kinds

        kinds.get(self.kind).check(self, folder, seconds)


def _kind(info: ValidationInfo) -> Any:
    """The workload's kind; None when its name did not pass, which is then the error to show."""
    from lab.load import kinds

    return kinds.get(info.data["kind"]) if "kind" in info.data else None
