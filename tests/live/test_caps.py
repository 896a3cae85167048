"""A control that cannot run what is asked makes the label false for every lever."""

from __future__ import annotations


def test_a_control_with_half_the_slots_makes_an_unrelated_lever_invalid(lab):
    path = lab.campaign(
        server={"engine": "llamacpp", "flags": {"n_parallel": 2, "n_ctx": 4096}},
        levers={"kv_cache_dtype": {"dtype": "q8_0"}},
    )
    answer = lab.run("run", path, "--no-publish")
    assert answer.returncode == 0, answer.stderr
    row = lab.rows()["kv_cache_dtype"]
    assert row["verdict"] == "invalid"
    assert row["codes"] == ["batch-cap"]
    assert "asked 4, ran 2.0" in row["reason"]
    assert [launch.arm for launch in lab.latest().launches()] == ["control"]


def test_a_control_that_does_not_start_ends_the_run_with_the_engines_reason(lab):
    path = lab.campaign(
        server={"engine": "llamacpp", "flags": {"n_parallel": 4, "n_ctx": 4096, "cache_type_k": "q4_k"}},
        levers={"cuda_graphs": {}},
    )
    answer = lab.run("run", path, "--no-publish")
    assert answer.returncode == 1
    assert "the control failed" in answer.stderr
    assert "block size" in answer.stderr
    assert "Traceback" not in answer.stderr
