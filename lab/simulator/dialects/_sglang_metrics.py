"""SGLang's /metrics page, from the simulator's counters (families and labels as in captures of 0.5.23).

Without the real names and labels the lab's reader would be tested on a page that no SGLang prints. As on the real
page, totals of prompt and answer tokens and of requests move only when a request ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from lab.simulator.dialects import _sglang_log
from lab.simulator.page import Page, Sample, histogram
from lab.simulator.tally import Histogram, Tally

if TYPE_CHECKING:
    from lab.simulator.dialects.sglang import SGLang

_GIB = 2**30
_GAP = (
    0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0,
    2.0, 4.0, 6.0, 8.0,
)  # fmt: skip
_LONG = (
    0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0,
)  # fmt: skip
_QUEUE = (
    0.0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0,
    70.0, 80.0, 90.0, 100.0, 200.0, 300.0, 400.0, 500.0, 600.0, 700.0, 800.0, 900.0, 1000.0, 1200.0, 1400.0, 1600.0,
    1800.0, 2000.0, 2500.0, 3000.0,
)  # fmt: skip
BOUNDS: dict[str, tuple[float, ...]] = {
    "ttft": _LONG,
    "e2e": (*_LONG, 600.0, 1200.0, 1800.0, 2400.0),
    "inter_token": _GAP,
    "time_per_token": _GAP,
    "queue": _QUEUE,
}
_TIME_PER_TOKEN = "Per-request TPOT in seconds: (finished_time - first_token_time) / (completion_tokens - 1)."
_ACCEPT = "Mean acceptance length of speculative decoding (accepted drafts + bonus token per forward)."
_RATE = "Speculative acceptance rate (`accepted drafts / proposed drafts` in batch)."


class _Writer:
    """Families of schedulers (one series a rank) and of requests (one for all)."""

    def __init__(self, dialect: SGLang) -> None:
        self.page = Page(dialect.truth)
        service = dialect.service
        base = {"engine_type": "unified", "model_name": dialect.claims.model}
        ranks = len(service.ranks)
        place = {"moe_ep_rank": "0", "pp_rank": "0", "tp_rank": "0"}
        self.ranks = [{**({"dp_rank": str(i)} if ranks > 1 else {}), **base, **place} for i in range(ranks)]
        self.requests = {"engine_type": "unified", "is_streaming": "true", "model_name": dialect.claims.model}
        self.base = base
        self.tallies: list[Tally] = service.tallies

    def gauge(self, name: str, text: str, values: Iterable[float]) -> None:
        samples = [("", labels, value) for labels, value in zip(self.ranks, values, strict=True)]
        self.page.family(f"sglang:{name}", "gauge", text, samples)

    def modes(self, name: str, text: str, modes: dict[str, Callable[[Tally], float]]) -> None:
        samples: list[Sample] = [
            ("", dict(sorted({**labels, "mode": mode}.items())), value(tally))
            for labels, tally in zip(self.ranks, self.tallies, strict=True)
            for mode, value in modes.items()
        ]
        self.page.family(f"sglang:{name}", "counter", text, samples)

    def counter(self, name: str, text: str, value: Callable[[Tally], float]) -> None:
        total = sum(value(tally) for tally in self.tallies)
        self.page.family(f"sglang:{name}", "counter", text, [("", self.requests, total)])

    def rare(self, name: str, text: str, value: Callable[[Tally], float]) -> None:
        """A counter that is not on the page before it has counted something."""
        if any(value(tally) for tally in self.tallies):
            samples = [("", labels, value(tally)) for labels, tally in zip(self.ranks, self.tallies, strict=True)]
            self.page.family(f"sglang:{name}", "counter", text, samples)

    def histogram(self, name: str, key: str, text: str, labels: dict[str, str]) -> None:
        merged = Histogram(BOUNDS[key])
        for tally in self.tallies:
            part = tally.histograms[key]
            merged.counts = [a + b for a, b in zip(merged.counts, part.counts, strict=True)]
            merged.sum += part.sum
        self.page.family(f"sglang:{name}", "histogram", text, histogram(merged, labels, sort=True))


def page(dialect: SGLang) -> bytes:
    """The whole page."""
    out = _Writer(dialect)
    said, truth, service = dialect.claims, dialect.truth, dialect.service
    gauges = [service.gauges(index) for index in range(len(service.ranks))]
    if said.graphs_max_batch is not None:
        on = said.graphs_max_batch > 0
        out.modes(
            "cuda_graph_passes_total",
            "Total number of forward passes categorized by CUDA graph.",
            {
                "prefill_none": lambda t: t.prefill_steps,
                "decode_none": lambda t: t.eager_decode_steps if on else t.decode_steps,
                **({"decode_cuda_graph": lambda t: t.decode_steps - t.eager_decode_steps} if on else {}),
            },
        )
    text = (
        "Total number of tokens processed (updated on each log interval). mode: prefill_compute, prefill_cache, decode."
    )
    out.modes(
        "realtime_tokens_total",
        text,
        {
            "prefill_compute": lambda t: t.prompt_computed,
            "decode": lambda t: t.output - t.first_tokens,
            "prefill_cache": lambda t: t.prompt_cached,
        },
    )
    out.counter("prompt_tokens_total", "Number of prefill tokens processed.", lambda t: t.prompt_finished)
    out.counter("generation_tokens_total", "Number of generation tokens processed.", lambda t: t.output_finished)
    out.counter("num_requests_total", "Number of requests processed.", _requests)
    out.rare("num_aborted_requests_total", "Number of requests aborted.", lambda t: t.finished["abort"])
    out.rare("num_retracted_requests_total", "Number of retracted requests.", lambda t: t.preemptions)
    if said.speculative_tokens:
        out.rare("spec_verify_calls_total", "Number of speculative verification steps.", lambda t: t.drafts)
    out.histogram("queue_time_seconds", "queue", "Histogram of queueing time in seconds.", out.ranks[0])
    _sizes(out, dialect)
    out.gauge("num_running_reqs", "The number of running requests.", [g.running for g in gauges])
    out.gauge("num_queue_reqs", "The number of requests in the waiting queue.", [g.waiting for g in gauges])
    out.gauge("gen_throughput", "The generation throughput (token/s).", dialect.throughput)
    rates = [t.prefix_hits / t.prefix_queries if t.prefix_queries else 0.0 for t in out.tallies]
    out.gauge("cache_hit_rate", "The prefix cache hit rate.", rates)
    out.gauge("token_usage", "The token usage.", [g.kv_tokens / truth.cache_tokens for g in gauges])
    out.gauge("num_used_tokens", "The number of used tokens.", [g.kv_tokens for g in gauges])
    lengths = [truth.metrics.accept_length or length for length in dialect.accept_length]
    out.gauge("spec_accept_length", _ACCEPT, lengths)
    drafted = max(1, truth.speculation.tokens)
    out.gauge("spec_accept_rate", _RATE, [max(0.0, length - 1) / drafted for length in lengths])
    labels = out.requests
    out.histogram("time_to_first_token_seconds", "ttft", "Histogram of time to first token in seconds.", labels)
    out.histogram("e2e_request_latency_seconds", "e2e", "Histogram of End-to-end request latency in seconds", labels)
    out.histogram("request_time_per_output_token_seconds", "time_per_token", _TIME_PER_TOKEN, labels)
    text = "Histogram of inter-token latency in seconds."
    out.histogram("inter_token_latency_seconds", "inter_token", text, out.base)
    return out.page.text()


def _requests(tally: Tally) -> float:
    """As SGLang counts: one that was aborted while it ran is a request processed."""
    return tally.finished["stop"] + tally.finished["length"] + tally.aborted_running


def _sizes(out: _Writer, dialect: SGLang) -> None:
    """The constants: cache, pages, context."""
    said, ranks = dialect.claims, len(out.ranks)
    text = "Maximum total number of tokens in the KV cache pool."
    out.gauge("max_total_num_tokens", text, [said.kv_tokens] * ranks)
    gib = _sglang_log.cache_bytes(dialect) / _GIB
    out.gauge("kv_cache_memory_usage_gb", "Memory used by the KV cache pools in GB.", [gib] * ranks)
    out.gauge("page_size", "KV cache page size in tokens.", [said.block_tokens] * ranks)
    out.gauge("num_pages", "Number of KV cache pages.", [said.kv_tokens // said.block_tokens] * ranks)
    out.gauge("context_len", "Maximum context length.", [said.context_tokens] * ranks)
