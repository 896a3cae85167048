"""SGLang: how to recognise and talk to a running server. The lab does not start one yet, so it is no engine of a
campaign."""

from __future__ import annotations

from typing import Any, ClassVar

from lab.engines._sglang_reader import SglangServer
from lab.engines.base import Reader, register_reader


@register_reader
class Sglang(Reader):
    """Running SGLang servers, 0.4.6 and later."""

    name = "sglang"
    server = SglangServer
    metrics_prefix = "sglang:"
    owned_by = "sglang"
    own_page = ("/server_info", "internal_states")
    apis = ("chat", "completions", "generate")
    chunk_tokens_path = ("usage", "completion_tokens")
    window_tokens_source = (
        "usage.completion_tokens of each chunk since SGLang 0.5.5, before it one token a chunk corrected by the final "
        "usage; /generate: meta_info.completion_tokens of each chunk"
    )
    live_counters: ClassVar[frozenset[str]] = frozenset(
        {
            *("prompt_tokens", "cached_tokens", "output_tokens", "decode_steps", "graph_steps", "eager_steps"),
            *("prefix_queries", "prefix_hits", "preemptions"),
        }
    )

    def request_extras(self, api: str = "chat") -> dict[str, Any]:
        """A running count in every chunk; /generate gives one unasked, releases before 0.5.5 ignore the wish."""
        return {} if api == "generate" else {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
