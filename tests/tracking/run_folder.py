"""A finished run folder as the lab writes it, for tests that publish it: plain records with plausible figures."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

from lab.campaign import Arm
from lab.files import write_bytes, write_json, write_text
from lab.records import CLOSING, JUDGED, OPENING, SWEEP, TREATMENT, close_launch
from lab.runs import Run

RULE_DIGEST = "0123456789ab"
START = dt.datetime(2026, 11, 30, 20, 45, tzinfo=dt.UTC)
TOK_S = {"control": 55.0, "autotune": 72.0, "fewer_slots": 34.0, "kv_cache_dtype": 55.8}
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360000002000001"
    "00ffff03000006000557bfabd40000000049454e44ae426082"
)
CAMPAIGN: dict[str, Any] = {
    "name": "local",
    "model": {"name": "SmolLM2-135M-Instruct", "checkpoint": "smollm2-135m-q4_1"},
    "server": {"engine": "llamacpp", "flags": {"n_parallel": 4}},
    "rule": {
        "metric": "output_tok_s",
        "workload": "chat",
        "concurrency": 4,
        "min_effect_pct": 3.0,
        "alpha": 0.05,
        "passes": {"min": 2, "max": 3},
    },
    "levers": {"autotune": {}, "fewer_slots": {}, "kv_cache_dtype": {"dtype": "q8_0"}, "nccl_ll_ring": {}},
}
BLANK_ROW: dict[str, Any] = {
    "campaign": "local",
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
    "launches": 5,
    "passes": 2,
    "screened": False,
    "bound_tok_s": None,
    "bound_fraction": None,
    "bound_fraction_control": 0.31,
    "predicted_effect_pct": None,
    "accuracy": "same",
    "codes": [],
    "findings": [],
    "guards": {},
    "simulated": False,
}


def make_run(
    results: Path, passes: int = 2, levers: tuple[str, ...] = ("autotune", "fewer_slots", "kv_cache_dtype")
) -> Run:
    """A run with a control around every pass, a treatment launch of each lever in it, and a judgement."""
    run = Run.create(results, {"file": CAMPAIGN, "rule_digest": RULE_DIGEST}, {"mode": "campaign", "passes": passes})
    order = 0
    add_launch(run, "control", 0, order, OPENING)
    for number in range(1, passes + 1):
        for lever in levers:
            order += 1
            add_launch(run, lever, number, order, TREATMENT)
        order += 1
        add_launch(run, "control", number, order, CLOSING)
    for lever in levers:
        folder = run.lever_folder(lever)
        write_text(folder / "executed.ipynb", "{}")
        write_text(folder / "executed.html", f"<h1>{lever}</h1>")
        write_bytes(folder / "plots" / "effect.png", PNG)
    judge(run, rows_of(run, levers))
    run.set_status("done")
    return run


def judge(run: Run, rows: list[dict[str, Any]]) -> None:
    """Write a judgement, as `lab verdicts --rejudge` does."""
    write_json(run.path / "judgements" / RULE_DIGEST / "verdicts.json", rows)


def rows_of(run: Run, levers: tuple[str, ...]) -> list[dict[str, Any]]:
    """One row per lever and one for a lever that does not apply."""
    rows = [
        {
            **BLANK_ROW,
            "run_id": run.run_id,
            "lever": lever,
            "treatment": lever,
            "verdict": "adopt" if TOK_S.get(lever, 0) > 60 else "reject",
            "reason": f"{lever} | measured",
            "concurrency_running": 3.98,
            "effect_pct": 100 * (TOK_S.get(lever, 50.0) / TOK_S["control"] - 1),
            "ci_low_pct": -1.0,
            "ci_high_pct": 40.0,
            "p_value": 0.0004,
        }
        for lever in levers
    ]
    absent = {
        "lever": "nccl_ll_ring",
        "treatment": "nccl_ll_ring",
        "verdict": "not-applicable",
        "launches": 0,
    }
    return [*rows, {**BLANK_ROW, "run_id": run.run_id, **absent, "reason": "one device: no collectives"}]


def add_launch(run: Run, name: str, pass_number: int, order: int, role: str) -> None:
    """One closed launch with a judged trial and a sweep trial."""
    lever = None if name == "control" else name
    arm = Arm(name=name, lever=lever, treatment=lever, engine="llamacpp", checkpoint="q4_1", flags={"n_parallel": 4})
    number, folder = run.new_launch(name)
    started = START + dt.timedelta(seconds=20 * order)
    for concurrency, purpose in ((4, JUDGED), (1, SWEEP)):
        trial = {
            "workload": "chat",
            "concurrency": concurrency,
            "purpose": purpose,
            "schema": 1,
            "simulated": False,
        }
        write_json(
            folder / "trials" / f"chat-c{concurrency}" / "trial.json",
            {**trial, **_figures(name, concurrency)},
        )
    close_launch(
        folder,
        {
            "campaign": run.name,
            "run_id": run.run_id,
            "launch": number,
            "order": order,
            "pass": pass_number,
            "role": role,
            "arm": arm.model_dump(),
            "arm_digest": arm.digest,
            "argv": ["server"],
            "env": {},
            "effective": {"checkpoint_format": {"value": "Q4_1", "source": "log"}},
            "state": "ok",
            "failure": None,
            "proof": None,
            "timings": {
                "started_at": started.isoformat(),
                "ready_seconds": 0.5,
                "closed_at": (started + dt.timedelta(seconds=12)).isoformat(),
            },
            "trials": ["chat-c4", "chat-c1"],
        },
    )


def _figures(name: str, concurrency: int) -> dict[str, Any]:
    tok_s = TOK_S.get(name, 50.0) * (1 if concurrency == 4 else 0.4)
    return {
        "client": {"offered": concurrency, "littles_law": 0.99 * concurrency},
        "server": {"running": 0.99 * concurrency},
        "metrics": {
            "output_tok_s": tok_s,
            "tok_s_per_user": tok_s / concurrency,
            "ttft_p50_ms": 560.0,
            "ttft_p99_ms": None,
            "tpot_p50_ms": 55.0,
            "e2e_p50_ms": 2290.0,
            "acceptance": None,
            "mean_context_tokens": 80.0,
            "requests_in_window": 11,
        },
    }
