"""A running SGLang server's account of itself: what runs now, what it has counted, what it resolved.

Without it "16 clients" is read as a batch of 16 while a limit of 48, 8 or 4 that nobody typed is in force, and its
counters are added up wrongly: tensor-parallel ranks repeat one number, some totals move only when a request ends.

Read from SGLang 0.5.23 (metrics of a real server, package source); older names are noted where they are tried.
"""

from __future__ import annotations

from typing import ClassVar

import requests

from lab.engines import _prometheus, _sglang_facts
from lab.engines._prometheus import Page, Series
from lab.engines._python_engine import PackagedServer
from lab.engines._sglang_facts import INFO, LOADS, MODELS
from lab.engines.server import Fact, Sample
from lab.secrets import redacted

_COPIES = ("tp_rank", "pp_rank", "moe_ep_rank")
_TOKENS = "sglang:realtime_tokens_total"
_PASSES = "sglang:cuda_graph_passes_total"
_FIRST_TOKENS = "sglang:time_to_first_token_seconds_count"
_FINISHED = {
    "requests_finished": "sglang:num_requests_total",
    "requests_aborted": "sglang:num_aborted_requests_total",
    "output_tokens_finished": "sglang:generation_tokens_total",
    "drafts": "sglang:spec_verify_calls_total",
}
_PREEMPTIONS = "sglang:num_retracted_requests_total"
_GAUGES = ("sglang:num_running_reqs", "sglang:num_queue_reqs", "sglang:token_usage")
_SAMPLED = frozenset({_TOKENS, _PASSES, _FIRST_TOKENS, _PREEMPTIONS, *_FINISHED.values(), *_GAUGES})


class SglangServer(PackagedServer):
    """One SGLang server; what it lacks without `--enable-metrics` is absent."""

    engine = "sglang"
    health_path: ClassVar[str] = "/ready"  # /health makes an idle server generate a token
    _has_metrics = True

    def look(self) -> tuple[str, ...]:
        """See `Server.look`; raises requests.RequestException without an answer."""
        self._has_metrics = self.control.get("/metrics").status_code == requests.codes.ok
        return () if self._has_metrics else ("token and request counters: start SGLang with --enable-metrics",)

    def alive(self) -> bool:
        """See `Server.alive`; before 0.5.20 there is no /ready, then a list of models is the sign of life."""
        if self._process:
            return self._process.alive()
        try:
            answer = self.control.get(self.health_path)
            if answer.status_code == requests.codes.not_found:
                answer = self.control.get("/v1/models")
        except requests.RequestException:
            return False
        return answer.status_code == requests.codes.ok

    def sample(self) -> Sample:
        """One reading of /metrics and /v1/loads; raises requests.RequestException without an answer.

        running, waiting and kv_usage are the schedulers' own snapshots (/v1/loads: renewed at every prefill, when idle,
        and every 15 decode steps), else the gauges, which are renewed every `--decode-log-interval` (40) steps and lag
        by seconds. See `counters` for what moves when.
        """
        page = self._page(_SAMPLED)
        loads, _ = self.control.offered(LOADS)
        ranks = _sglang_facts.loads_of(loads)
        counted = counters(page)
        if ranks and all(rank.running is not None for rank in ranks):
            running = [rank.running or 0.0 for rank in ranks]
            waiting = [rank.waiting for rank in ranks if rank.waiting is not None]
            usage = [rank.usage for rank in ranks if rank.usage is not None]
            return Sample(
                running=sum(running),
                waiting=sum(waiting) if waiting else None,
                kv_usage=max(usage) if usage else page.largest("sglang:token_usage"),
                counters=counted,
                running_by_rank=tuple(running) if len(running) > 1 else (),
            )
        by_rank = _prometheus.by_label(_gauge(page, "sglang:num_running_reqs"), "dp_rank")
        waiting_now = [one.value for one in _gauge(page, "sglang:num_queue_reqs")]
        return Sample(
            running=sum(by_rank.values()) if by_rank else None,
            waiting=sum(waiting_now) if waiting_now else None,
            kv_usage=page.largest("sglang:token_usage"),
            counters=counted,
            running_by_rank=tuple(by_rank[rank] for rank in sorted(by_rank)) if len(by_rank) > 1 else (),
        )

    def describe(self) -> dict[str, Fact]:
        """Effective state from /server_info, /v1/loads, /v1/models, /metrics and, where the lab has it, the log."""
        info, info_path = self.control.offered(INFO)
        loads, loads_path = self.control.offered(LOADS)
        models, _ = self.control.offered({"/v1/models": MODELS})
        found = _sglang_facts.facts(
            info=redacted(info or {}),
            info_path=info_path or next(iter(INFO)),
            loads=_sglang_facts.loads_of(loads),
            loads_path=loads_path,
            model=next((one for one in (models or {}).get("data") or [] if one.get("id") == self.model), {}),
            page=self._page(_sglang_facts.METRICS),
            log=self.log_text(),
            env=self.env,
        )
        return {**found, **self.own_facts()}

    def reset_cache(self) -> bool:
        """See `Server.reset_cache`; also resets the lifetime acceptance length, no counter of /metrics."""
        return self.control.post("/flush_cache").status_code == requests.codes.ok

    def _page(self, names: frozenset[str]) -> Page:
        if not self._has_metrics:
            return Page({})
        return _prometheus.scrape(self.control, names)


def counters(page: Page) -> dict[str, float]:
    """Counters under the lab's names; what this page does not have is no key.

    Every step moves: `output_tokens` (tokens of decode steps, plus one for each first token, which the prefill makes
    and the decode count leaves out: in a captured page 998 = 7 + 31 + 16 · 60 for answers of 8, 32 and sixteen of 61
    tokens so far), `prompt_tokens` and `cached_tokens` (when a prefill is scheduled; a retracted request counts again),
    decode steps with and without graphs, `preemptions`. One more token than the client got is counted for a request
    that ends by itself under overlap scheduling (its last step was already under way), so `output_tokens` may lie up to
    one token a request too high. Only when a request ends move: `requests_finished` (aborted while running: counted
    too), `requests_aborted`, `drafts`, and `output_tokens_finished`, which is exact once nothing runs.

    The spec_* gauges are snapshots of the last interval and never counters. A mode that has not happened yet is not on
    the page, while its metric is: it is 0.
    """
    counted: dict[str, float] = {}
    computed, cached, decoded = _modes(page, _TOKENS, "prefill_compute", "prefill_cache", "decode")
    if computed is not None and cached is not None:
        counted |= {"prompt_tokens": computed, "cached_tokens": cached}
        counted |= {"prefix_queries": computed + cached, "prefix_hits": cached}
    first = _total(page, _FIRST_TOKENS)
    if decoded is not None and first is not None:
        counted["output_tokens"] = decoded + first
    graph, eager = _modes(page, _PASSES, "decode_cuda_graph", "decode_none")
    if graph is not None and eager is not None:
        counted |= {"decode_steps": graph + eager, "graph_steps": graph, "eager_steps": eager}
    for name, metric in [*_FINISHED.items(), ("preemptions", _PREEMPTIONS)]:
        value = _total(page, metric)
        if value is not None:
            counted[name] = value
    return counted


def _target(page: Page, name: str, **labels: str) -> list[Series]:
    """One series for each data-parallel rank of the target model: a draft model's own is apart."""
    series = [one for one in page.series(name, **labels) if one.labels.get("engine_type") != "draft"]
    return _prometheus.largest_of_copies(series, _COPIES)


def _gauge(page: Page, name: str) -> list[Series]:
    """As `_target`; with priority scheduling the series of the empty priority is the sum of the others."""
    return [one for one in _target(page, name) if not one.labels.get("priority")]


def _total(page: Page, name: str, **labels: str) -> float | None:
    series = _target(page, name, **labels)
    return sum(one.value for one in series) if series else None


def _modes(page: Page, name: str, *modes: str) -> list[float | None]:
    """The totals of a metric's modes; all None when the page has the metric in no mode."""
    if not page.series(name):
        return [None] * len(modes)
    return [_total(page, name, mode=mode) or 0.0 for mode in modes]
