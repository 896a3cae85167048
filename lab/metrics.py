"""The metrics of a trial that a rule or a guard may name, and the direction that is better.

Without one table, a lever that lengthens the wait for the first token would be adopted for its positive effect.
"""

from __future__ import annotations

GOODPUT, TOK_S_PER_GPU = "goodput_rps", "tok_s_per_gpu"
HIGHER_IS_BETTER = {
    "output_tok_s": True,
    "tok_s_per_user": True,
    "ttft_p50_ms": False,
    "tpot_p50_ms": False,
    "e2e_p50_ms": False,
    "queue_e2e_p50_ms": False,
    "ttft_p99_ms": False,
    "tpot_p99_ms": False,
    "e2e_p99_ms": False,
    "request_rps": True,
    GOODPUT: True,
    TOK_S_PER_GPU: True,
}
# What the server says of its cache, not a trial of its speed: guards alone may name it.
KV_TOKENS = "kv_tokens"
GUARDED = {**HIGHER_IS_BETTER, KV_TOKENS: True}
