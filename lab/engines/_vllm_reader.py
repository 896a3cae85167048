"""A running vLLM server's account of itself: what runs now, what it has counted, what its front end resolved.

Without it cached prompt tokens count as computed ones, `…_waiting_by_reason` is read for `…_waiting`, and one
data-parallel rank of several passes for the server.

Read from vLLM 0.32.0 (pages and answers of a real server).
"""

from __future__ import annotations

import requests

from lab.engines import _prometheus, _vllm_facts, _vllm_failures
from lab.engines._prometheus import Page
from lab.engines._python_engine import PackagedServer
from lab.engines._vllm_facts import INFO_SHAPE, MODELS, VERSION
from lab.engines.server import Fact, Sample
from lab.secrets import redacted

INFO = "/server_info?config_format=json"
DEV_MODE = "start vLLM with VLLM_SERVER_DEV_MODE=1"
_RUNNING = "vllm:num_requests_running"
_WAITING = "vllm:num_requests_waiting"
_USAGE = "vllm:kv_cache_usage_perc"  # 0 to 1 in spite of its name
_PROMPT = "vllm:prompt_tokens_total"
_BY_SOURCE = "vllm:prompt_tokens_by_source_total"
_CACHED = "vllm:prompt_tokens_cached_total"
_SUCCESS = "vllm:request_success_total"
_ACCEPTED_AT = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
_COUNTERS = {
    "output_tokens": "vllm:generation_tokens_total",
    "decode_steps": "vllm:iteration_tokens_total_count",  # a histogram in spite of its name: one entry a step
    "drafts": "vllm:spec_decode_num_drafts_total",
    "draft_tokens": "vllm:spec_decode_num_draft_tokens_total",
    "draft_accepted": "vllm:spec_decode_num_accepted_tokens_total",
    "prefix_queries": "vllm:prefix_cache_queries_total",
    "prefix_hits": "vllm:prefix_cache_hits_total",
    "preemptions": "vllm:num_preemptions_total",
    # with --enable-mfu-metrics: by vLLM's own model of the step, 0 without
    "estimated_flops": "vllm:estimated_flops_per_gpu_total",
    "estimated_read_bytes": "vllm:estimated_read_bytes_per_gpu_total",
    "estimated_write_bytes": "vllm:estimated_write_bytes_per_gpu_total",
}
_SAMPLED = frozenset(
    {_RUNNING, _WAITING, _USAGE, _PROMPT, _BY_SOURCE, _CACHED, _SUCCESS, _ACCEPTED_AT, *_COUNTERS.values()}
)


class VllmServer(PackagedServer):
    """One vLLM server; `/server_info` only in its developer mode."""

    engine = "vllm"
    _has_metrics = True

    def look(self) -> tuple[str, ...]:
        """See `Server.look`; raises requests.RequestException without an answer."""
        answer = self.control.get("/metrics")
        self._has_metrics = answer.status_code == requests.codes.ok
        missing = []
        if not self._has_metrics:
            missing.append(
                f"gauges and counters (/metrics answers {answer.status_code}): give the address of vLLM itself; "
                "a proxy before it hides /metrics"
            )
        elif not self._page(_SAMPLED).metrics:
            missing.append("gauges and counters: start vLLM without --disable-log-stats")
        if self.control.shown(INFO, INFO_SHAPE) is None:
            missing.append(f"the running limit and the rest of the configuration: {DEV_MODE}")
        return tuple(missing)

    def sample(self) -> Sample:
        """One scrape of /metrics; raises requests.RequestException without an answer or when it is no metrics page.

        The label `engine` is the data-parallel rank: requests and counters are added up, of the cache's use the fullest
        rank counts. Gauges are as of the last engine step.
        """
        page = self._page(_SAMPLED)
        by_rank = _prometheus.by_label(page.series(_RUNNING), "engine")
        return Sample(
            running=page.total(_RUNNING),
            waiting=page.total(_WAITING),
            kv_usage=page.largest(_USAGE),
            counters=counters(page),
            running_by_rank=tuple(by_rank[rank] for rank in sorted(by_rank, key=_as_number))
            if len(by_rank) > 1
            else (),
        )

    def describe(self) -> dict[str, Fact]:
        """Effective state from /server_info, /metrics, /v1/models, /version and, where the lab has it, the log."""
        models, _ = self.control.offered({"/v1/models": MODELS})
        version, _ = self.control.offered({"/version": VERSION})
        found = _vllm_facts.facts(
            info=redacted(self.control.shown(INFO, INFO_SHAPE) or {}),
            model=next((one for one in (models or {}).get("data") or [] if one.get("id") == self.model), {}),
            version=(version or {}).get("version"),
            page=self._page(_vllm_facts.METRICS),
            log=self.log_text(),
        )
        return {**found, **self.own_facts()}

    def alive(self) -> bool:
        """See `Server.alive`; the front end outlives its engine by seconds, and then ends with exit code 0."""
        return super().alive() and not _vllm_failures.engine_died(self.log_text())

    def reset_cache(self) -> bool:
        """See `Server.reset_cache`; only in developer mode."""
        answer = self.control.post("/reset_prefix_cache")
        return answer.status_code == requests.codes.ok and '"success":false' not in answer.text.replace(" ", "")

    def _page(self, names: frozenset[str]) -> Page:
        if not self._has_metrics:
            return Page({})
        return _prometheus.scrape(self.control, names)


def counters(page: Page) -> dict[str, float]:
    """Counters under the lab's names; what this page does not have is no key.

    `vllm:prompt_tokens_total` counts cached tokens too (a captured page: 2696 = 904 computed + 1792 hit), so
    `prompt_tokens` is the source local_compute, else the total less the cached ones. `requests_finished` and
    `requests_aborted` move when a request ends, the others at every step or when a prompt is done.
    """
    counted = {name: value for name, metric in _COUNTERS.items() if (value := page.total(metric)) is not None}
    total, cached = page.total(_PROMPT), page.total(_CACHED)
    computed = page.total(_BY_SOURCE, source="local_compute")
    if computed is None and total is not None and cached is not None:
        computed = total - cached
    if computed is not None:
        counted["prompt_tokens"] = computed
    if cached is not None:
        counted["cached_tokens"] = cached
    ended = page.series(_SUCCESS)
    if ended:
        aborted = page.total(_SUCCESS, finished_reason="abort") or 0.0
        counted["requests_aborted"] = aborted
        counted["requests_finished"] = sum(one.value for one in ended) - aborted
    for position, value in _prometheus.by_label(page.series(_ACCEPTED_AT), "position").items():
        counted[f"draft_accepted_at_{position}"] = value
    return counted


def _as_number(rank: str) -> tuple[int, str]:
    return (int(rank) if rank.isdigit() else 0, rank)
