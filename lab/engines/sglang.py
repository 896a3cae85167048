"""SGLang: check an arm against its own build, start its server, wait until it really answers.

Without it a flag that moved between releases is taken for another by its abbreviation, and the running limit that a
server sets for itself is measured as the one that was asked.

Flags are SGLang's own with underscores: `max_running_requests: 16`, `chunked_prefill_size: 2048`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from lab.engines import _sglang_failures, _sglang_flags
from lab.engines._options import Command, Options
from lab.engines._python_engine import PythonEngine
from lab.engines._runtime import Packaged
from lab.engines._sglang_reader import SglangServer
from lab.engines.base import Failure, register
from lab.errors import InputError


@register
class Sglang(PythonEngine):
    """SGLang's server from the package under `runtime.python`; running ones are read since 0.4.6."""

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
    packaged = Packaged(
        engine="sglang",
        package="sglang",
        distributions=("sglang",),
        related=("torch", "triton", "flashinfer-python", "sgl-kernel", "sglang-kernel", "transformers"),
        folder_variable="LAB_SGLANG_DIR",
    )
    command = Command(
        module="sglang.launch_server",
        anchor="--model-path",
        variables="",
        arguments=("--model-path", "model"),
    )
    refused = _sglang_flags.REFUSED
    renamed = _sglang_flags.RENAMED
    pinned = _sglang_flags.PINNED
    needed = _sglang_flags.NEEDED
    listens = ("The server is fired up and ready to roll!",)  # after its own warm-up request, which it counts
    shown_by = _sglang_flags.SHOWN_BY
    speculative_methods = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM")
    kv_dtypes = ("auto", "bf16", "bfloat16", "fp8_e4m3", "fp8_e5m2", "nvfp4")

    def request_extras(self, api: str = "chat") -> dict[str, Any]:
        """A running count in every chunk; /generate gives one unasked, releases before 0.5.5 ignore the wish."""
        return {} if api == "generate" else {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}

    def serving(self, checkpoint: str, name: str, port: int) -> tuple[list[str], dict[str, Any]]:
        """See `PythonEngine.serving`."""
        return [], {"model_path": checkpoint, "host": "127.0.0.1", "port": port, "served_model_name": name}

    def check_environment(self, env: Mapping[str, str], options: Options) -> None:
        """Refuse variables that would hide what the lab reads."""
        for name in env:
            if why := _sglang_flags.REFUSED_VARIABLES.get(name):
                raise InputError(f"variable {name} is refused: {why}")

    def failure(self, log: str, code: int | None) -> Failure:
        """See `Engine.failure`: the exception that ended the scheduler, above the generic last line."""
        return _sglang_failures.failure(log, code)
