"""Whole runs against the simulated server: who is launched again, and who leaves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from lab.campaign import Campaign
from lab.floor import floor_of
from lab.judgement import judge
from lab.retry import RETRIES
from lab.runs import pick_run

FLAGS = {
    "dialect": "vllm",
    "seed": 3,
    "time_factor": 20.0,
    "step_ms": 40.0,
    "step_ms_per_running": 0.5,
    "prefill_ms_per_token": 0.05,
    "noise.step_cv_pct": 2.0,
    "noise.launch_cv_pct": 0.5,
}


def lever(title: str, **flags: object) -> dict[str, object]:
    return {"custom": {"title": title, "treatment": {"flags": {k.replace("__", "."): v for k, v in flags.items()}}}}


CAMPAIGN = {
    "name": "leaving",
    "model": {"name": "simulated-model", "checkpoint": "simulated-model"},
    "server": {"engine": "simulated", "flags": FLAGS},
    "workloads": {"chat": {"kind": "chat", "output_tokens": 32, "concurrency": [8]}},
    "window": {"warmup_seconds": 5, "seconds": 30, "min_steady_seconds": 30},
    "limits": {"start_seconds": 300, "stall_seconds": 60, "drain_seconds": 60},
    "rule": {"workload": "chat", "concurrency": 8, "min_effect_pct": 3, "passes": {"min": 2, "max": 5}},
    "levers": {
        "faster": lever("Faster steps", step_ms=20.0),
        "dying": lever("Dies under load", faults__crash_at_s=15.0),
    },
}


@pytest.mark.golden
def test_settled_and_hopeless_levers_leave_and_a_dying_one_is_tried_three_times(tmp_path: Path) -> None:
    path = tmp_path / "leaving.yaml"
    path.write_text(yaml.safe_dump(CAMPAIGN))
    results = tmp_path / "results"
    ran = subprocess.run(
        [sys.executable, "-m", "lab", "run", str(path), "--no-publish"],
        env={**os.environ, "LAB_RESULTS": str(results)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    run = pick_run(results, "leaving")
    made = [launch.arm for launch in run.launches()]
    rows = {row["lever"]: row for row in judge(run).rows}
    assert rows["faster"]["verdict"] == "adopt"
    assert rows["dying"]["verdict"] == "failed"
    assert made.count("dying") == 1 + RETRIES
    assert made.count("faster") == rows["faster"]["passes"] <= 3
    assert made.count("control") == 1 + rows["faster"]["passes"]
    assert "faster leaves: adopt" in ran.stderr
    assert "dying leaves: failed" in ran.stderr


@pytest.mark.golden
def test_the_noise_floor_is_that_of_the_server_and_a_run_that_cannot_tell_its_rule_is_warned(tmp_path: Path) -> None:
    noisy = {**CAMPAIGN, "server": {"engine": "simulated", "flags": {**FLAGS, "noise.launch_cv_pct": 4.0}}}
    path = tmp_path / "leaving.yaml"
    path.write_text(yaml.safe_dump(noisy))
    env = {**os.environ, "LAB_RESULTS": str(tmp_path / "results")}

    def lab(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "lab", *words]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=140, check=False)

    told = lab("aa", str(path), "--passes", "5")
    assert told.returncode == 0, told.stderr
    floor = floor_of(pick_run(tmp_path / "results" / "aa", "leaving"), Campaign.load(path))
    assert (floor.noise.launches, floor.left_out) == (11, 0)
    assert 2.0 <= floor.noise.launch_cv_pct <= 7.0  # eleven launches know 4 % to about a factor of 1.6
    assert floor.noise.window_cv_pct < 1.5
    assert "←" in told.stdout
    warned = lab("run", str(path), "--no-publish", "--levers", "faster", "--passes", "2")
    assert "warning: identical launches differ by" in warned.stderr
