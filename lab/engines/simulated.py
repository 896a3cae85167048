"""The simulated server as an engine: check an arm's truth, start the process, read it as the real engine it plays.

Without it no campaign could be rehearsed, and nothing could show that the lab finds what is known to be there.

Flags are the fields of `lab.simulator.truth.Truth`, dotted within groups (`speculation.tokens`). The server is read
over HTTP by the reader of its dialect, as a real one would be; what only the simulator shows has keys that begin with
`simulated.`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from lab.engines._llamacpp_facts import LlamaCppServer
from lab.engines._readiness import Start
from lab.engines._sglang_reader import SglangServer
from lab.engines._vllm_reader import VllmServer
from lab.engines.base import REGISTERED, Capabilities, Engine, Failure
from lab.engines.server import Fact, Server
from lab.errors import InputError
from lab.hosts import LocalHost
from lab.simulator import VERSION
from lab.simulator.truth import Truth, flag_names, flat, from_flags

if TYPE_CHECKING:
    from lab.campaign import Arm, Limits
    from lab.checkpoints import Checkpoint
    from lab.roofline.model import Model

_POLL_SECONDS = 0.02
_LEAST_START_SECONDS = 10.0  # a process needs its real time to start, however fast its clock runs
_GRACE_SECONDS = 5.0
_SHOWN_BY_DIALECT: dict[str, tuple[str, ...]] = {
    "max_running": ("cap",),
    "echoed_max_running": ("cap",),
    "kv_tokens": ("kv_tokens",),
    "kv_dtype": ("kv_dtype_k", "kv_dtype_asked"),
    "context_tokens": ("context_tokens",),
    "block_tokens": ("block_tokens",),
    "prefix_cache": ("prefix_caching",),
    "prefill_chunk_tokens": ("max_batched_tokens", "n_batch"),
    "ranks": ("ranks",),
    "graphs.max_batch": ("graphs", "graph_max_batch", "graph_reuse"),
    "speculation.tokens": ("speculative", "speculative_tokens"),
    "speculation.method": ("speculative_method", "speculative_types"),
    "speculation.kv_tokens_taken": ("kv_tokens",),
    "speculation.running_limit": ("cap",),
}
_REASONS = (
    ("Address already in use", "port-in-use"),
    ("out of memory", "out-of-memory"),
    ("failed to allocate", "out-of-memory"),
)


class _Simulated(Server):
    """What a simulated server shows besides the answers of its dialect."""

    simulated: ClassVar[bool] = True

    def describe(self) -> dict[str, Fact]:
        """The dialect's facts as its reader finds them, and the settings in force as the simulator knows them."""
        truth = flat(self.control.json("/simulator/config", {}))
        own = {f"simulated.{name}": Fact(truth.get(name), "/simulator/config") for name in flag_names()}
        return {**super().describe(), "time_factor": Fact(self.time_factor, "flag time_factor"), **own}  # type: ignore[safe-super]

    def truth(self, from_s: float, to_s: float) -> dict[str, Any]:
        """What really happened between two monotonic seconds: see `lab.simulator.journal.Journal.summary`."""
        return self.control.json(f"/simulator/truth?from={from_s!r}&to={to_s!r}", {})


class SimulatedVllm(_Simulated, VllmServer):
    """A simulated server that speaks vLLM's dialect."""


class SimulatedSglang(_Simulated, SglangServer):
    """A simulated server that speaks SGLang's dialect."""


class SimulatedLlamaCpp(_Simulated, LlamaCppServer):
    """A simulated server that speaks llama.cpp's dialect."""


_SERVERS: dict[str, type[_Simulated]] = {
    "vllm": SimulatedVllm,
    "sglang": SimulatedSglang,
    "llamacpp": SimulatedLlamaCpp,
}


class Simulated(Engine):
    """Servers of known truth; `checkpoint` is only a name, `runtime` stays empty."""

    name = "simulated"
    server = SimulatedVllm
    simulated: ClassVar[bool] = True
    apis = ("chat", "completions", "generate", "llamacpp")
    shown_by: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **{name: (f"simulated.{name}",) for name in flag_names()},
        **_SHOWN_BY_DIALECT,
    }

    def capabilities(self) -> Capabilities:
        """Everything that a truth can hold."""
        return Capabilities(
            devices=1,
            collectives=False,
            graph_mechanism="captured graphs",
            speculative_methods=("mtp", "eagle", "ngram"),
            kv_dtypes=("bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"),
        )

    def check(self, arm: Arm) -> None:
        """Raise InputError for an unknown flag, a value that does not fit, or a runtime."""
        if arm.runtime:
            raise InputError(
                f"arm '{arm.name}': runtime '{next(iter(arm.runtime))}' is not for simulated; leave it out"
            )
        truth_of(arm)

    def build(self, arm: Arm) -> str:
        """The simulator's version; equal versions give equal figures for equal truths."""
        return f"lab.simulator {VERSION}"

    def request_extras(self, api: str = "chat") -> dict[str, Any]:
        """A running count in every chunk, in the words of every dialect; each ignores those of the others."""
        if api == "generate":
            return {}
        counts = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
        return {**counts, "timings_per_token": True, "cache_prompt": False}

    def failure(self, log: str, code: int | None) -> Failure:
        """See `Engine.failure`."""
        written = [line.strip() for line in log.splitlines() if line.strip()]
        detail = "\n".join(written[-5:])
        for text in written:
            if text.startswith("BADFLAG "):
                return Failure("bad-flag", text.removeprefix("BADFLAG "), detail)
            for fragment, kind in _REASONS:
                if fragment in text:
                    return Failure(kind, text[:300], detail)
        how = f"killed by signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        return Failure("crashed", f"{how}; last line: {(written or ['it wrote nothing'])[-1][:300]}", detail)

    def located(self, arm: Arm, folder: Path) -> Arm:
        """See `Engine.located`: the checkpoint is only a name."""
        return arm

    def model_of(self, arm: Arm) -> tuple[Checkpoint, Model]:
        """The model that the arm claims to serve, from its truth: there is no file to read it from."""
        from lab.checkpoints import Checkpoint
        from lab.roofline.model import Model

        weights = truth_of(arm).weights
        shape = weights.model_dump()
        sha256 = hashlib.sha256(json.dumps([arm.checkpoint, shape], sort_keys=True).encode()).hexdigest()
        model = Model(
            name=arm.checkpoint,
            architecture="llama",
            format=weights.format,
            layers=weights.layers,
            heads=weights.heads,
            kv_heads=weights.kv_heads,
            head_dim_k=weights.head_dim,
            head_dim_v=weights.head_dim,
            vocab=weights.vocab,
            n_experts=0,
            context_length=truth_of(arm).context_tokens,
            params=weights.params,
            weight_bytes=weights.bytes,
            weight_bytes_per_step=weights.bytes_per_step,
        )
        return Checkpoint(Path(arm.checkpoint), sha256, weights.bytes, weights.format, "llama", None), model

    def launch(self, arm: Arm, folder: Path, limits: Limits, marker: str) -> Server:
        """Start a server and wait for a completion from it; see `Engine.launch`.

        The number in front of the folder's name (`003-control`) is the launch's number, from which its share of the
        noise between launches follows. The journal is written into the folder at a clean stop.
        """
        self.check(arm)
        truth = truth_of(arm)
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / "server.log"
        log.unlink(missing_ok=True)
        number = re.match(r"\d+", folder.name)
        argv = [sys.executable, "-m", "lab.simulator", "--flags", json.dumps(_flags(arm))]
        argv += ["--launch", number[0] if number else "0", "--out", str(folder)]
        path = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]))
        started = time.monotonic()
        process = LocalHost().start(
            argv, {**os.environ, "PYTHONPATH": path, **arm.env}, log, marker, grace_seconds=_GRACE_SECONDS
        )
        model = truth.lies.model or truth.model
        server = _SERVERS[truth.dialect]("", model, process, argv, arm.env, log)
        server.time_factor = truth.time_factor
        allowed = max(limits.start_seconds / truth.time_factor, min(limits.start_seconds, _LEAST_START_SECONDS))
        Start(arm.name, server, process, self.failure, started, allowed, poll_seconds=_POLL_SECONDS).wait()
        try:
            server.missing = server.look()
        except BaseException:
            server.stop()
            raise
        return server


REGISTERED[Simulated.name] = Simulated()
"""Not among the readers: a running one is recognised as the engine it plays."""


def truth_of(arm: Arm) -> Truth:
    """The truth of an arm; raises InputError naming arm and flag."""
    try:
        return from_flags(_flags(arm))
    except InputError as error:
        raise InputError(f"arm '{arm.name}': {error}") from error


def _flags(arm: Arm) -> dict[str, Any]:
    return {"model": Path(arm.checkpoint).name, **arm.flags}
