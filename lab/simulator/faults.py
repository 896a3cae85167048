"""How a simulated server misbehaves: faults, lies, missing metrics, somebody else's requests.

Without faults on order, an alarm is only ever shown not to ring. Part of `truth.Truth`; times are server seconds.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lab.strict import Strict


class Foreign(Strict):
    """Requests of somebody else, counted by the server and unknown to the lab's client."""

    start_s: float = Field(0.0, ge=0)
    """Server seconds after the first request when they arrive, all at once."""
    requests: int = Field(0, ge=0)
    """How many."""
    prompt_tokens: int = Field(64, ge=1)
    """Prompt tokens of each."""
    output_tokens: int = Field(64, ge=1)
    """Tokens of each answer."""
    idle_running: int = Field(0, ge=0)
    """Requests that run for the whole life of the server, from its start."""


class Metrics(Strict):
    """What is wrong with the server's own account. Names: metric families as the page spells them."""

    absent: list[str] = []
    """Families missing on /metrics, and keys missing in SGLang's /v1/loads and llama.cpp's /slots."""
    zero: list[str] = []
    """Families and keys that are there and always 0."""
    refresh_steps: int = Field(1, ge=1)
    """Gauges of running, waiting and cache show the state of the last step whose number this divides."""
    reset_at_s: float | None = Field(None, ge=0)
    """Server seconds after the first request when every counter falls to 0, once; null: never."""
    requests_before: int = Field(0, ge=0)
    """Requests (of 100 prompt and 100 output tokens) that the counters show at the start: an old server."""
    age_s: float = Field(0.0, ge=0)
    """Real seconds by which the start time on vLLM's page lies further back: an old server."""
    off: bool = False
    """/metrics answers as where it is switched off (404; llama.cpp 501)."""
    accept_length: float | None = Field(None, ge=1)
    """SGLang's gauge of the acceptance length shows this; null: that of the last interval."""


class Faults(Strict):
    """Failures. `…_every` n: each n-th generation request of the process; 0: none."""

    fail_every: int = Field(0, ge=0)
    """Requests answered with `fail_status`."""
    fail_status: int = Field(500, ge=400, le=599)
    """HTTP status of failed requests."""
    fail_all: bool = False
    """Every request fails."""
    spare_requests: int = Field(0, ge=0)
    """The first so many requests of the process meet none of these faults (the lab's readiness check is one)."""
    cut_every: int = Field(0, ge=0)
    """Streams whose connection is cut."""
    cut_after_tokens: int = Field(8, ge=1)
    """Tokens sent before the cut."""
    stall_every: int = Field(0, ge=0)
    """Streams that stop without an end."""
    stall_after_tokens: int = Field(10, ge=0)
    """Tokens sent before that."""
    error_event_every: int = Field(0, ge=0)
    """Streams that carry the engine's error event after 4 tokens and end there."""
    invalid_sse_every: int = Field(0, ge=0)
    """Streams whose third chunk is no JSON."""
    unavailable_share: float = Field(0.0, ge=0, le=1)
    """Share of requests refused with 503 and Retry-After."""
    retry_after_s: float = Field(1.0, ge=0)
    """Seconds in that header."""
    false_ready: bool = False
    """/health is fine, every completion answers 500."""
    crash_at_s: float | None = Field(None, ge=0)
    """Server seconds after the first request when the process dies without a farewell; null: never."""
    crash_after_requests: int | None = Field(None, ge=1)
    """The process dies when this many requests have finished; null: never."""
    crash_code: int = Field(1, ge=0, le=255)
    """Its exit code."""
    exit_with_oom_log: bool = False
    """The process ends at start with the engine's words for memory that ran out."""
    orphan_s: float = Field(0.0, ge=0, le=120)
    """Real seconds that a child process outlives its parent's end; 0: no child."""


class Lies(Strict):
    """What endpoints and log lines claim instead of the truth; null: the truth."""

    kv_tokens: int | None = None
    """Tokens of each rank's cache."""
    context_tokens: int | None = None
    """Tokens of a request."""
    speculative_tokens: int | None = None
    """Draft tokens of a step; 0: none."""
    graphs_max_batch: int | None = None
    """Largest batch with a graph; 0: graphs off."""
    prefix_cache: bool | None = None
    """Whether prefixes are cached."""
    ranks: int | None = None
    """Data-parallel ranks (information endpoints only)."""
    kv_dtype: str | None = None
    """Type of the cache."""
    version: str | None = None
    """Version of the engine."""
    model: str | None = None
    """Name of the model in /v1/models and in answers."""
    finish_reason: Literal["stop", "length"] | None = None
    """Reason given at the end of every answer."""
