"""llama.cpp: check an arm, start its server, wait until it really answers.

Without it the lab could not run end to end on a machine without an accelerator.

Flags are attribute paths of the engine's `CommonParams` (`n_ubatch`, `speculative.ngram_simple.size_n`) plus
the friendly names in `_llamacpp_flags.FRIENDLY`; enum-valued ones take plain words (`cache_type_k: q8_0`,
`flash_attn: off`).
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from lab import checkpoints
from lab.engines import _llamacpp_flags as flags_of
from lab.engines import _llamacpp_log as log_lines
from lab.engines._llamacpp_facts import LlamaCppServer
from lab.engines._readiness import Start, no_completion
from lab.engines.base import Capabilities, Engine, Failure, register
from lab.errors import InputError
from lab.hosts import LocalHost
from lab.secrets import redacted

if TYPE_CHECKING:
    from lab.campaign import Arm, Limits

_ask = partial(no_completion, fields={"temperature": 0, "cache_prompt": False})


@register
class LlamaCpp(Engine):
    """llama.cpp's HTTP server from the xllamacpp wheel, under `runtime.python` (default: this Python)."""

    name = "llamacpp"
    server = LlamaCppServer
    metrics_prefix = "llamacpp:"
    owned_by = "llamacpp"
    own_page = ("/props", "default_generation_settings")
    apis = ("chat", "completions", "llamacpp")
    leaves_gpus_alone: ClassVar[bool] = True
    chunk_tokens_path = ("timings", "predicted_n")
    window_tokens_source = "timings.predicted_n of each chunk"
    live_counters: ClassVar[frozenset[str]] = frozenset(
        {"prompt_tokens", "cached_tokens", "prefix_queries", "prefix_hits", "decode_steps"}
    )
    shown_by: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "n_parallel": ("n_slots",),
        "n_ctx": ("kv_tokens", "n_ctx_per_slot"),
        "n_threads": ("n_threads", "n_threads_batch"),
        "cpuparams.n_threads": ("n_threads",),
        "cpuparams_batch.n_threads": ("n_threads_batch",),
        "n_batch": ("n_batch",),
        "n_ubatch": ("n_ubatch",),
        "cache_type_k": ("kv_dtype_k",),
        "cache_type_v": ("kv_dtype_v",),
        "kv_unified": ("kv_unified",),
        "flash_attn": ("flash_attention",),
        "flash_attn_type": ("flash_attention",),
        "load_mode": ("load_mode",),
        "no_extra_bufts": ("repacked_bytes",),
        "speculative": ("speculative_types",),
        "speculative.types": ("speculative_types",),
        "checkpoint": ("checkpoint_format", "weight_bytes"),
        "LLAMA_GRAPH_REUSE_DISABLE": ("graph_reuse",),
        "OMP_WAIT_POLICY": ("omp_wait_policy",),
    }

    def capabilities(self) -> Capabilities:
        """The CPU build: one device, no collectives."""
        return Capabilities(
            devices=1,
            collectives=False,
            graph_mechanism="compute-graph reuse",
            speculative_methods=("ngram_simple", "ngram_map_k", "ngram_map_k4v", "ngram_mod", "ngram_cache"),
            kv_dtypes=("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"),
        )

    def failure(self, log: str, code: int | None) -> Failure:
        """See `Engine.failure`: the `E` lines above the generic last one."""
        return log_lines.failure(log, code)

    def request_extras(self, api: str = "chat") -> dict[str, Any]:
        """No prompt cache; token counts and timings in every chunk."""
        return {"cache_prompt": False, "timings_per_token": True}

    def check(self, arm: Arm) -> None:
        """See `check_all`."""
        self.check_all([arm])

    def check_all(self, arms: Iterable[Arm]) -> None:
        """Check checkpoint, runtime, port and every flag; one start of each Python, no server.

        Raises InputError for the first thing wrong: arm, flag, what is expected.
        """
        arms = list(arms)
        by_python: dict[str, list[Arm]] = {}
        for arm in arms:
            flags_of.check_values(arm)
            checkpoints.check(arm.checkpoint, Path.cwd())
            by_python.setdefault(flags_of.python_of(arm), []).append(arm)
        for python, group in by_python.items():
            for arm, problem in zip(
                group, flags_of.ask(python, [flags_of.attributes(arm) for arm in group]), strict=True
            ):
                if problem:
                    raise InputError(flags_of.explain(arm, problem))

    def build(self, arm: Arm) -> str:
        """The xllamacpp release of the Python that would serve; its last part is llama.cpp's build number."""
        return f"xllamacpp {_release(flags_of.python_of(arm))}"

    def launch(self, arm: Arm, folder: Path, limits: Limits, marker: str) -> LlamaCppServer:
        """Start a server and wait for a completion from it; see `Engine.launch`."""
        flags_of.check_values(arm)
        path = checkpoints.resolve(arm.checkpoint, Path.cwd())
        alias = checkpoints.label(arm.checkpoint)
        flags = {**flags_of.attributes(arm), "model.path": str(path), "model_alias": [alias]}
        if flags.get(flags_of.DRAFT):
            flags[flags_of.DRAFT] = str(checkpoints.resolve(str(flags[flags_of.DRAFT]), Path.cwd()))
        argv = [flags_of.python_of(arm), str(flags_of.SCRIPT), json.dumps(flags)]
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / "server.log"
        log.unlink(missing_ok=True)
        started = time.monotonic()
        process = LocalHost().start(argv, flags_of.environment(arm), log, marker)
        recorded = [*argv[:-1], json.dumps(redacted(flags))]
        server = LlamaCppServer("", alias, process, recorded, arm.env, log)
        Start(arm.name, server, process, self.failure, started, limits.start_seconds, ask=_ask).wait()
        return server


@cache
def _release(python: str) -> str:
    question = "import importlib.metadata as m; print(m.version('xllamacpp'))"
    answer = subprocess.run([python, "-c", question], capture_output=True, text=True, timeout=60, check=False)
    if answer.returncode:
        raise InputError(f"runtime '{python}' has no xllamacpp; install it there with pip")
    return answer.stdout.strip()
