"""vLLM: how to recognise and talk to a running server. The lab does not start one yet, so it is no engine of a
campaign."""

from __future__ import annotations

from typing import Any, ClassVar

from lab.engines._vllm_reader import VllmServer
from lab.engines.base import Reader, register_reader


@register_reader
class Vllm(Reader):
    """Running vLLM servers."""

    name = "vllm"
    server = VllmServer
    metrics_prefix = "vllm:"
    owned_by = "vllm"
    own_page = ("/server_info?config_format=json", "vllm_config")
    chunk_tokens_path = ("usage", "completion_tokens")
    window_tokens_source = "usage.completion_tokens of each chunk (continuous_usage_stats)"
    live_counters: ClassVar[frozenset[str]] = frozenset(
        {
            *("prompt_tokens", "cached_tokens", "output_tokens", "decode_steps", "prefix_queries", "prefix_hits"),
            *("preemptions", "drafts", "draft_tokens", "draft_accepted"),
        }
    )

    def request_extras(self, api: str = "chat") -> dict[str, Any]:
        """A running count in every chunk."""
        return {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
