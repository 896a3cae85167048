"""vLLM's /metrics page, from the simulator's counters (families and labels as in captures of 0.32.0).

Without the real names and labels the lab's reader would be tested on a page that no vLLM prints.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lab.simulator.page import Page, Sample, histogram
from lab.simulator.tally import Gauges, Tally

if TYPE_CHECKING:
    from lab.simulator.dialects.vllm import VLLM

_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
_TTFT = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
)  # fmt: skip
_GAP = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
_LONG = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
)  # fmt: skip
BOUNDS: dict[str, tuple[float, ...]] = {
    "prompt_tokens": _TOKENS,
    "output_tokens": _TOKENS,
    "max_tokens": _TOKENS,
    "iteration_tokens": (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384),
    "n": (1, 2, 5, 10, 20),
    "ttft": _TTFT,
    "inter_token": _GAP,
    "time_per_token": _GAP,
    "e2e": _LONG,
    "queue": _LONG,
    "inference": _LONG,
    "prefill": _LONG,
    "decode": _LONG,
    "preemptions": (1, 2, 3, 4, 5, 10, 20),
}
_WAITING = (
    "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; 'deferred' = "
    "deferred by transient constraints (LoRA budget, KV transfer, blocked status). Sum of all reasons equals "
    "vllm:num_requests_waiting."
)
_HISTOGRAMS = (
    ("request_prompt_tokens", "prompt_tokens", "Number of prefill tokens processed."),
    ("request_generation_tokens", "output_tokens", "Number of generation tokens processed."),
    ("iteration_tokens_total", "iteration_tokens", "Histogram of number of tokens per engine_step."),
    ("request_params_n", "n", "Histogram of the n request parameter."),
    ("request_params_max_tokens", "max_tokens", "Histogram of the max_tokens request parameter."),
    ("time_to_first_token_seconds", "ttft", "Histogram of time to first token in seconds."),
    ("inter_token_latency_seconds", "inter_token", "Histogram of inter-token latency in seconds."),
    (
        "request_time_per_output_token_seconds",
        "time_per_token",
        "Histogram of time_per_output_token_seconds per request.",
    ),
    ("e2e_request_latency_seconds", "e2e", "Histogram of e2e request latency in seconds."),
    ("request_queue_time_seconds", "queue", "Histogram of time spent in WAITING phase for request."),
    ("request_inference_time_seconds", "inference", "Histogram of time spent in RUNNING phase for request."),
    ("request_prefill_time_seconds", "prefill", "Histogram of time spent in PREFILL phase for request."),
    ("request_decode_time_seconds", "decode", "Histogram of time spent in DECODE phase for request."),
    ("request_num_preemptions", "preemptions", "Histogram of the number of times a request was preempted."),
)
_REASONS = ("stop", "length", "abort", "error", "repetition")


def page(dialect: VLLM) -> bytes:
    """The whole page."""
    out = Page(dialect.truth)
    service = dialect.service
    gauges = [service.gauges(index) for index in range(len(service.ranks))]
    tallies = service.tallies
    model = {"model_name": dialect.claims.model}

    def counter(name: str, text: str, value: str) -> None:
        samples = [("", {"engine": str(i), **model}, getattr(tally, value)) for i, tally in enumerate(tallies)]
        out.family(f"vllm:{name}_total", "counter", text, samples)

    def gauge(name: str, text: str, values: Iterable[float]) -> None:
        samples = [("", {"engine": str(i), **model}, value) for i, value in enumerate(values)]
        out.family(f"vllm:{name}", "gauge", text, samples)

    if dialect.claims.speculative_tokens:
        _speculation(out, tallies, model)
    gauge("num_requests_running", "Number of requests in model execution batches.", (g.running for g in gauges))
    gauge("num_requests_waiting", "Number of requests waiting to be processed.", (g.waiting for g in gauges))
    out.family("vllm:num_requests_waiting_by_reason", "gauge", _WAITING, _by_reason(gauges, model))
    capacity = dialect.truth.cache_tokens
    usage = (g.kv_tokens / capacity for g in gauges)
    gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", usage)
    text = "Prefix cache queries, in terms of number of queried tokens."
    counter("prefix_cache_queries", text, "prefix_queries")
    counter("prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.", "prefix_hits")
    counter("num_preemptions", "Cumulative number of preemption from the engine.", "preemptions")
    _tokens(out, tallies, model)
    counter("generation_tokens", "Number of generation tokens processed.", "output")
    _outcomes(out, tallies, model)
    for name, key, text in _HISTOGRAMS:
        samples: list[Sample] = []
        for index, tally in enumerate(tallies):
            samples += histogram(tally.histograms[key], {"engine": str(index), **model}, sort=True)
        out.family(f"vllm:{name}", "histogram", text, samples)
    _cache_config(out, dialect)
    text = "Start time of the process since unix epoch in seconds."
    out.family(
        "process_start_time_seconds", "gauge", text, [("", {}, service.started_unix_s - dialect.truth.metrics.age_s)]
    )
    return out.text()


def _speculation(out: Page, tallies: list[Tally], model: dict[str, str]) -> None:
    for name, key, text in (
        ("num_drafts", "drafts", "Number of spec decoding drafts."),
        ("num_draft_tokens", "draft_tokens", "Number of draft tokens."),
        ("num_accepted_tokens", "accepted", "Number of accepted tokens."),
    ):
        samples = [("", {"engine": str(i), **model}, getattr(tally, key)) for i, tally in enumerate(tallies)]
        out.family(f"vllm:spec_decode_{name}_total", "counter", text, samples)
    out.family(
        "vllm:spec_decode_num_accepted_tokens_per_pos_total",
        "counter",
        "Accepted tokens per draft position.",
        [
            ("", {"engine": str(i), **model, "position": str(position)}, count)
            for i, tally in enumerate(tallies)
            for position, count in enumerate(tally.accepted_at)
        ],
    )


def _by_reason(gauges: list[Gauges], model: dict[str, str]) -> list[Sample]:
    return [
        ("", {"engine": str(i), **model, "reason": reason}, gauge.waiting if reason == "capacity" else 0)
        for i, gauge in enumerate(gauges)
        for reason in ("capacity", "deferred")
    ]


def _tokens(out: Page, tallies: list[Tally], model: dict[str, str]) -> None:
    whole = [("", {"engine": str(i), **model}, t.prompt_computed + t.prompt_cached) for i, t in enumerate(tallies)]
    out.family("vllm:prompt_tokens_total", "counter", "Number of prefill tokens processed.", whole)
    by_source = [
        ("", {"engine": str(i), **model, "source": source}, value)
        for i, tally in enumerate(tallies)
        for source, value in (
            ("local_compute", tally.prompt_computed),
            ("local_cache_hit", tally.prompt_cached),
            ("external_kv_transfer", 0),
        )
    ]
    out.family("vllm:prompt_tokens_by_source_total", "counter", "Number of prompt tokens by source.", by_source)
    cached = [("", {"engine": str(i), **model}, tally.prompt_cached) for i, tally in enumerate(tallies)]
    text = "Number of cached prompt tokens (local + external)."
    out.family("vllm:prompt_tokens_cached_total", "counter", text, cached)


def _outcomes(out: Page, tallies: list[Tally], model: dict[str, str]) -> None:
    samples = [
        ("", {"engine": str(i), "finished_reason": reason, **model}, tally.finished[reason])
        for i, tally in enumerate(tallies)
        for reason in _REASONS
    ]
    text = "Count of successfully processed requests."
    out.family("vllm:request_success_total", "counter", text, samples)


def _cache_config(out: Page, dialect: VLLM) -> None:
    said = dialect.claims
    labels = {
        "block_size": said.block_tokens,
        "cache_dtype": "auto" if said.kv_dtype == "bfloat16" else said.kv_dtype,
        "enable_prefix_caching": said.prefix_cache,
        "engine": 0,
        "kv_cache_max_concurrency": said.kv_tokens / said.context_tokens,
        "kv_cache_size_tokens": said.kv_tokens,
        "num_gpu_blocks": said.kv_tokens // said.block_tokens,
    }
    samples = [("", {k: str(v) for k, v in {**labels, "engine": i}.items()}, 1.0) for i in range(dialect.truth.ranks)]
    out.family("vllm:cache_config_info", "gauge", "Information of the LLMEngine CacheConfig", samples)
