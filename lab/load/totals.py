"""What a server says of a whole request: counts and times that come with a stream, mostly in its last chunks.

Without one translation the same fact has four names, and a cached prompt or a rejected draft is missed on the
engine whose name was forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Section = Mapping[str, Any]
MOST = 2**31 - 1
"""A count beyond is none: the table of requests holds 32 bits, and no request has so many tokens."""


@dataclass(slots=True)
class Totals:
    """The server's own account of one request; None is not said. Later chunks overrule earlier ones.

    prompt_tokens include cached_tokens. draft_tokens were proposed by speculation, draft_accepted of them kept.
    server_*_s are seconds; server_started_s (first forward pass) and server_finished_s are on the server's clock,
    unix seconds.
    """

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    draft_tokens: int | None = None
    draft_accepted: int | None = None
    server_queue_s: float | None = None
    server_prefill_s: float | None = None
    server_decode_s: float | None = None
    server_e2e_s: float | None = None
    server_started_s: float | None = None
    server_finished_s: float | None = None

    def read(self, chunk: Section, final: bool = True) -> None:
        """Take over what a chunk says; sections of an unknown shape are passed over.

        What a chunk that is not `final` says of the output is left out: of an answer that is then cut off it would
        stay, and be believed.
        """
        if not final:
            begun = Totals()
            begun.read(chunk)
            self._keep(prompt_tokens=begun.prompt_tokens, cached_tokens=begun.cached_tokens)
            self._keep_seconds(**{name: getattr(begun, name) for name in _BEFORE_THE_OUTPUT})
            return
        for name, take in _SECTIONS:
            section = chunk.get(name)
            if section and isinstance(section, Mapping):
                take(self, section)
        if "tokens_evaluated" in chunk:
            self._keep(prompt_tokens=chunk["tokens_evaluated"], output_tokens=chunk.get("tokens_predicted"))

    def _usage(self, usage: Section) -> None:
        """OpenAI's `usage`; SGLang has `reasoning_tokens` beside the details as well."""
        details, prompt = _part(usage, "completion_tokens_details"), _part(usage, "prompt_tokens_details")
        reasoning = details.get("reasoning_tokens")
        self._keep(
            prompt_tokens=usage.get("prompt_tokens"),
            cached_tokens=prompt.get("cached_tokens"),
            output_tokens=usage.get("completion_tokens"),
            reasoning_tokens=usage.get("reasoning_tokens") if reasoning is None else reasoning,
        )
        accepted, rejected = (_count(details.get(f"{kind}_prediction_tokens")) for kind in ("accepted", "rejected"))
        if accepted is not None and rejected is not None and accepted + rejected > 0:
            self._keep(draft_tokens=accepted + rejected, draft_accepted=accepted)

    def _timings(self, timings: Section) -> None:
        """llama.cpp's `timings`: prompt_n leaves out the cache_n tokens that were cached."""
        computed, cached = _count(timings.get("prompt_n")), _count(timings.get("cache_n"))
        self._keep(
            prompt_tokens=None if computed is None else computed + (cached or 0),
            cached_tokens=cached,
            output_tokens=timings.get("predicted_n"),
            draft_tokens=timings.get("draft_n"),
            draft_accepted=timings.get("draft_n_accepted"),
        )
        self._keep_seconds(
            server_prefill_s=_scaled(timings.get("prompt_ms"), 1e-3),
            server_decode_s=_scaled(timings.get("predicted_ms"), 1e-3),
        )

    def _meta_info(self, meta: Section) -> None:
        """SGLang's `meta_info` of /generate; times need --enable-metrics."""
        self._keep(
            prompt_tokens=meta.get("prompt_tokens"),
            cached_tokens=meta.get("cached_tokens"),
            output_tokens=meta.get("completion_tokens"),
            reasoning_tokens=meta.get("reasoning_tokens"),
            draft_tokens=meta.get("spec_num_proposed_drafts"),
            draft_accepted=meta.get("spec_num_correct_drafts"),
        )
        self._keep_seconds(
            server_queue_s=_scaled(meta.get("queue_time")),
            server_prefill_s=_difference(meta.get("prefill_finished_time"), meta.get("forward_entry_time")),
            server_decode_s=_difference(meta.get("e2e_latency"), meta.get("first_token_latency")),
            server_e2e_s=_scaled(meta.get("e2e_latency")),
            server_started_s=_scaled(meta.get("forward_entry_time")),
            server_finished_s=_scaled(meta.get("request_finished_ts")),
        )

    def _metrics(self, metrics: Section) -> None:
        """vLLM's `metrics` with --per-request-spec-decode-metrics."""
        spec = _part(metrics, "speculative_decoding")
        self._keep(
            draft_tokens=spec.get("num_draft_tokens"),
            draft_accepted=spec.get("num_accepted_draft_tokens"),
        )

    def _keep(self, **counts: Any) -> None:
        for name, value in counts.items():
            if _count(value) is not None:
                setattr(self, name, value)

    def _keep_seconds(self, **seconds: float | None) -> None:
        for name, value in seconds.items():
            if value is not None:
                setattr(self, name, value)


_BEFORE_THE_OUTPUT = ("server_queue_s", "server_prefill_s", "server_started_s")
_SECTIONS = (
    ("usage", Totals._usage),
    ("timings", Totals._timings),
    ("meta_info", Totals._meta_info),
    ("metrics", Totals._metrics),
)


def _part(section: Section, name: str) -> Section:
    part = section.get(name)
    return part if isinstance(part, Mapping) else {}


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= MOST else None


def _scaled(value: Any, factor: float = 1.0) -> float | None:
    return value * factor if type(value) in (int, float) else None


def _difference(later: Any, earlier: Any) -> float | None:
    return None if _scaled(later) is None or _scaled(earlier) is None else later - earlier
