"""Verdict rows that the report's tests draw: one of every verdict, with figures of a plausible size."""

from __future__ import annotations

from typing import Any

BLANK: dict[str, Any] = {
    "campaign": "local",
    "run_id": "20261130T204500Z",
    "metric": "output_tok_s",
    "workload": "chat",
    "concurrency_offered": 4,
    "concurrency_running": None,
    "concurrency_running_control": 3.98,
    "effect_pct": None,
    "ci_low_pct": None,
    "ci_high_pct": None,
    "p_value": None,
    "p_adjusted": None,
    "effect_matched_batch_pct": None,
    "launches": 0,
    "passes": 0,
    "screened": False,
    "bound_tok_s": None,
    "bound_fraction": None,
    "bound_fraction_control": 0.31,
    "predicted_effect_pct": None,
    "accuracy": "not-tested",
    "codes": [],
    "findings": [],
    "guards": {},
    "simulated": False,
}


def row(lever: str, verdict: str, reason: str, **values: Any) -> dict[str, Any]:
    """A verdict row with everything else missing."""
    return {**BLANK, "lever": lever, "treatment": lever, "verdict": verdict, "reason": reason, **values}


ROWS = [
    row(
        "autotune",
        "adopt",
        "the whole interval lies above +3 %",
        treatment="n_threads=2",
        concurrency_running=3.98,
        effect_pct=31.04,
        ci_low_pct=27.9,
        ci_high_pct=34.2,
        p_value=0.0004,
        p_adjusted=0.0012,
        launches=7,
        passes=3,
        bound_tok_s=180.0,
        bound_fraction=0.41,
        predicted_effect_pct=40.0,
        accuracy="same",
        guards={"ttft_p50_ms": "held"},
    ),
    row(
        "fewer_slots",
        "reject",
        "two slots serve four clients; n_parallel 4 would lift the cap",
        concurrency_running=2.0,
        effect_pct=-38.21,
        ci_low_pct=-40.1,
        ci_high_pct=-36.2,
        p_value=0.0001,
        p_adjusted=0.0004,
        effect_matched_batch_pct=-3.9,
        launches=5,
        passes=2,
        bound_tok_s=110.0,
        bound_fraction=0.33,
        accuracy="same",
        findings=["capacity-limited"],
        guards={"ttft_p50_ms": "broken"},
    ),
    row(
        "kv_cache_dtype",
        "inconclusive",
        "the interval [−1.2, +4.4] holds both 0 and the least effect of interest after 3 of 3 passes",
        treatment="q8_0",
        concurrency_running=3.97,
        effect_pct=1.6,
        ci_low_pct=-1.2,
        ci_high_pct=4.4,
        p_value=0.19,
        p_adjusted=0.38,
        launches=7,
        passes=3,
        bound_tok_s=182.0,
        bound_fraction=0.32,
        accuracy="same",
        codes=["drift"],
    ),
    row(
        "cuda_graphs",
        "no-effect",
        "the interval lies within ±3 %",
        concurrency_running=3.99,
        effect_pct=-0.04,
        ci_low_pct=-1.1,
        ci_high_pct=1.0,
        p_value=0.9,
        p_adjusted=0.9,
        launches=7,
        passes=3,
        bound_tok_s=180.0,
        bound_fraction=0.023,
        accuracy="unknown",
        findings=["structural-gap"],
    ),
    row("nccl_ll_ring", "not-applicable", "one device: no collectives"),
    row(
        "nvfp4_checkpoint",
        "failed",
        "the server would not start: missing-checkpoint: smollm2|135m-q4_0 not found",
    ),
    row(
        "mtp",
        "invalid",
        "control and treatment both ran 2 of 4",
        concurrency_running=2.0,
        codes=["batch-cap"],
    ),
]

CAMPAIGN = {
    "name": "local",
    "model": {"name": "SmolLM2-135M-Instruct", "checkpoint": "smollm2-135m-q4_1"},
    "rule": {
        "metric": "output_tok_s",
        "workload": "chat",
        "concurrency": 4,
        "min_effect_pct": 3.0,
        "alpha": 0.05,
        "passes": {"min": 2, "max": 3},
    },
}
EFFECTIVE = {
    "checkpoint_format": {"value": "Q4_1", "source": "/v1/models"},
    "kv_dtype_k": {"value": "f16", "source": "log"},
    "kv_dtype_v": {"value": "f16", "source": "log"},
    "build": {"value": "llama.cpp b11549", "source": "package metadata"},
}
