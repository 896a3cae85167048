"""SGLang's log: the lines from start to ready, and the decode and prefill lines (grammar of 0.5.23).

Without them nothing that reads batches and limits from a log could be tested against a known truth.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from lab.simulator.scheduler import Step

if TYPE_CHECKING:
    from lab.simulator.dialects.sglang import SGLang

DECODE_LOG_INTERVAL = 40
_GIB = 2**30
BYTES_PER_TOKEN = {"bfloat16": 131_072, "float16": 131_072, "float8_e4m3fn": 65_536, "float8_e5m2": 65_536}


def line(text: str, rank: str = "") -> str:
    """One line with SGLang's stamp, and the rank's tag."""
    return f"[{time.strftime('%Y-%m-%d %H:%M:%S')}{rank}] {text}"


def cache_bytes(dialect: SGLang) -> float:
    """Bytes of each rank's cache: 131,072 a token, half of it for one-byte types (an 8B model's size)."""
    return dialect.claims.kv_tokens * BYTES_PER_TOKEN.get(dialect.claims.kv_dtype, 131_072)


def tags(dialect: SGLang) -> list[str]:
    """The tag of each rank."""
    ranks = dialect.truth.ranks
    return [f" DP{index}" for index in range(ranks)] if ranks > 1 else [""]


def start_lines(dialect: SGLang, url: str) -> list[str]:
    """From the arguments to ready."""
    from lab.simulator.dialects import _sglang_info

    said, truth = dialect.claims, dialect.truth
    half = cache_bytes(dialect) / 2 / _GIB
    lines = []
    if truth.speculation.tokens and truth.speculation.running_limit is not None:
        text = f"Max running requests is reset to {truth.cap} for speculative decoding. You can override this by "
        lines.append(line(f"{text}explicitly setting --max-running-requests."))
    lines.append(line(f"server_args={_sglang_info.arguments(dialect)}"))
    sizes = _sglang_info.capture_sizes(said.graphs_max_batch)
    for tag in tags(dialect):
        for model in ["LlamaForCausalLM"] + (["LlamaForCausalLMNextN"] if said.speculative_tokens else []):
            lines += [
                line("Load weight begin. avail mem=94.10 GB", tag),
                line(f"Load weight end. elapsed=3.10 s, type={model}, avail mem=78.00 GB, mem usage=16.10 GB.", tag),
                line(
                    f"KV Cache is allocated. dtype: torch.{said.kv_dtype}, #tokens: {said.kv_tokens}, K size: "
                    f"{half:.2f} GB, V size: {half:.2f} GB",
                    tag,
                ),
            ]
        if sizes:
            begin = f"backend=full, num_tokens_per_req=1, bs={sizes}, avail mem=12.30 GB"
            lines += [
                line(f"Capture target decode CUDA graph begin. {begin}", tag),
                line(
                    "Capture target decode CUDA graph end. elapsed=4.02 s, mem usage=0.17 GB, avail mem=12.13 GB.", tag
                ),
            ]
        lines.append(
            line(
                f"max_total_num_tokens={said.kv_tokens}, chunked_prefill_size={truth.prefill_chunk_tokens}, "
                f"max_prefill_tokens=16384, max_running_requests={said.cap}, context_len={said.context_tokens}, "
                "available_gpu_mem=12.13 GB",
                tag,
            )
        )
    lines += [
        line(f"INFO:     Started server process [{os.getpid()}]"),
        line("INFO:     Application startup complete."),
        line(f"INFO:     Uvicorn running on {url} (Press CTRL+C to quit)"),
        line("The server is fired up and ready to roll!"),
    ]
    return lines


class BatchLines:
    """Writes a prefill line for each step that computes prompts, a decode line every 40 decode steps of a rank."""

    def __init__(self, dialect: SGLang) -> None:
        self._dialect = dialect
        ranks = dialect.truth.ranks
        self._tags = tags(dialect)
        self._since = [0] * ranks
        self._tokens, self._drafts, self._accepted = [0] * ranks, [0] * ranks, [0] * ranks
        self._began_s = [0.0] * ranks
        self.throughput, self.accept_length = [0.0] * ranks, [0.0] * ranks
        self.lifetime_drafts = self.lifetime_accepted = 0

    def forget(self) -> None:
        """Start the counts of the life-time acceptance length again."""
        self.lifetime_drafts = self.lifetime_accepted = 0

    def stepped(self, step: Step) -> None:
        """Take in a step, and write the lines that it makes due."""
        at = step.rank
        self.lifetime_drafts += step.drafts
        self.lifetime_accepted += step.accepted
        if step.prefill_tokens:
            self._dialect.log(line(self._prefill(step), self._tags[at]))
        if step.preempted:
            text = f"KV cache pool is full. Retract requests. #retracted_reqs: {step.preempted}, #new_tokens_gained: 0"
            self._dialect.log(line(text, self._tags[at]))
        if not step.decoding:
            return
        self._since[at] += 1
        self._tokens[at] += sum(count for _, count in step.tokens)
        self._drafts[at] += step.drafts
        self._accepted[at] += step.accepted
        if self._since[at] < DECODE_LOG_INTERVAL:
            return
        seconds = max(1e-9, step.end_s - self._began_s[at])
        self.throughput[at] = self._tokens[at] / seconds
        self.accept_length[at] = 1 + self._accepted[at] / self._drafts[at] if self._drafts[at] else 0.0
        self._dialect.log(line(self._decode(step), self._tags[at]))
        self._began_s[at] = step.end_s
        self._since[at] = self._tokens[at] = self._drafts[at] = self._accepted[at] = 0

    def _prefill(self, step: Step) -> str:
        usage = step.kv_tokens / self._dialect.truth.cache_tokens
        rate = step.prefill_tokens / max(1e-9, step.end_s - step.start_s)
        return (
            f"Prefill batch, #new-seq: {step.new_requests}, #new-token: {step.prefill_tokens}, #cached-token: "
            f"{step.cached_tokens}, token usage: {usage:.2f}, #running-req: {step.running - step.new_requests}, "
            f"#queue-req: {step.waiting}, #pending-token: 0, {self._graph(step, prefill=True)}input throughput "
            f"(token/s): {rate:.2f}"
        )

    def _decode(self, step: Step) -> str:
        truth = self._dialect.truth
        usage = step.kv_tokens / truth.cache_tokens
        spec = ""
        if self._drafts[step.rank]:
            length = self.accept_length[step.rank]
            rate = (length - 1) / truth.speculation.tokens
            spec = f"accept len: {length:.2f}, accept rate: {rate:.2f}, "
        return (
            f"Decode batch, #running-req: {step.running}, #token: {step.kv_tokens}, token usage: {usage:.2f}, {spec}"
            f"{self._graph(step)}gen throughput (token/s): {self.throughput[step.rank]:.2f}, #queue-req: {step.waiting}"
        )

    def _graph(self, step: Step, prefill: bool = False) -> str:
        largest = self._dialect.claims.graphs_max_batch
        if largest is None:
            return ""
        return f"cuda graph: {not prefill and largest > 0 and not step.eager}, "
