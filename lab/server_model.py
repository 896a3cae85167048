"""What a server's own cost model says of its arithmetic and its reading, beside the lab's.

Without it two models of one step never meet, and an error in either is found by nobody. vLLM counts estimated FLOPs and
bytes of each GPU under `--enable-mfu-metrics`, prompts included; without the flag its counters stay 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from lab.records import Trial

FLOPS, READ_BYTES, WRITTEN_BYTES = "estimated_flops", "estimated_read_bytes", "estimated_write_bytes"
"""Counters of `trial.server["delta"]`: of one GPU, summed over data-parallel ranks."""


@dataclass(frozen=True)
class Analytic:
    """FLOPs per byte read or written, and FLOP/s, of one device, by the server's own model."""

    flop_per_byte: float
    flop_s: float


def analytic(trial: Trial) -> Analytic | None:
    """The estimates over the drained trial for each output token, at the window's rate of them; None where the server
    does not estimate, or did not count its tokens."""
    delta, tok_s = trial.server["delta"], trial.metrics["output_tok_s"]
    flops, read, tokens = (delta.get(name) for name in (FLOPS, READ_BYTES, "output_tokens"))
    if not flops or not read or not tokens or not tok_s:
        return None
    ranks = trial.launch.effective.get("ranks") or 1
    return Analytic(flops / (read + delta.get(WRITTEN_BYTES, 0.0)), flops / ranks / tokens * tok_s)
