"""A control that cannot run what is asked makes the label false for every lever."""

from __future__ import annotations

import pytest


def test_a_control_with_four_slots_for_eight_clients_makes_an_unrelated_lever_invalid(lab):
    path = lab.campaign(
        workloads={"chat": {**lab.brief["chat"], "output_tokens": 32, "concurrency": [8]}},
        rule={"workload": "chat", "concurrency": 8, "passes": {"min": 1, "max": 1}},
        window={"warmup_seconds": 0.5, "seconds": 2, "min_steady_seconds": 1},
        levers={"kv_cache_dtype": {"dtype": "q8_0"}},
    )
    answer = lab.run("run", path, "--no-publish")
    assert answer.returncode == 0, answer.stderr
    row = lab.rows()["kv_cache_dtype"]
    assert row["verdict"] == "invalid"
    assert row["codes"] == ["batch-cap"]
    assert "asked 8, ran" in row["reason"] and "the server runs at most 4" in row["reason"]
    (control,) = lab.latest().launches()
    assert control.arm == "control"
    (trial,) = control.trials
    assert trial.server["running"] == pytest.approx(4, abs=0.15)
    assert trial.server["waiting"] == pytest.approx(4, abs=1.0)
    assert trial.client["littles_law"] == pytest.approx(8, abs=0.2)


def test_a_control_that_does_not_start_ends_the_run_with_the_engines_reason(lab):
    path = lab.campaign(
        server={"engine": "llamacpp", "flags": {"n_parallel": 4, "n_ctx": 2048, "cache_type_k": "q4_k"}},
        workloads=lab.brief,
        levers={"cuda_graphs": {}},
    )
    answer = lab.run("run", path, "--no-publish")
    assert answer.returncode == 1
    assert "the control failed" in answer.stderr
    assert "block size" in answer.stderr
    assert "Traceback" not in answer.stderr
