"""A launch that never was ready, shared its machine, hung, did not fit or took too long says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.audit import audit_launch
from lab.audit.base import FINDING, INVALID, WARNING, Code, Context
from lab.audit.lifecycle import (
    BURN_IN,
    false_ready,
    first_launch,
    hang,
    oom_stops_sweep,
    orphan_process,
    sweep_cost,
)
from lab.audit.thresholds_comparison import COST_RATIO, COST_SECONDS_MIN, GPU_IDLE_BYTES
from lab.records import Launch
from tests.builders import TRIAL, changed, launch_record, write_launch


def launch(**values: Any) -> Launch:
    return Launch(Path("003-mtp"), launch_record(**values))


def failed(kind: str, state: str = "failed") -> dict[str, Any]:
    return {"state": state, "failure": {"kind": kind, "reason": "why", "detail": ""}}


def test_a_launch_that_went_well_raises_nothing(tmp_path: Path) -> None:
    assert audit_launch(write_launch(tmp_path / "000-control")) == []


@pytest.mark.parametrize("tokens", [None, 0])
def test_a_health_check_without_a_completion_is_no_readiness(tokens: int | None) -> None:
    ready = {"health": True, "completion_tokens": tokens, "model": None}
    code = false_ready(launch(ready=ready, **failed("start-timeout")), Context())
    assert code is not None and (code.code, code.severity) == ("false-ready", INVALID)
    assert code.text.startswith("the health check answered, a completion did not (start-timeout: why)")


@pytest.mark.parametrize(
    "values",
    [
        {"ready": {"health": False, "completion_tokens": None, "model": None}, **failed("crashed")},
        {"ready": {"health": True, "completion_tokens": 1, "model": "m"}, **failed("crashed", "died")},
        {"ready": {"health": True, "completion_tokens": None, "model": None}},
        {"ready": None, **failed("crashed")},
    ],
)
def test_a_server_that_answered_or_never_claimed_to_be_ready_is_no_false_ready(values: dict[str, Any]) -> None:
    assert false_ready(launch(**values), Context()) is None


def gpus(used_bytes: float | None) -> dict[str, Any]:
    return {"machine": {"gpus": [{"index": 3, "memory_used_bytes": used_bytes}]}}


def test_a_port_that_was_taken_is_somebody_elses_process() -> None:
    code = orphan_process(launch(**failed("port-in-use")), Context())
    assert code is not None and (code.code, code.severity) == ("orphan-process", INVALID)


def test_gpu_memory_in_use_before_the_start_is_somebody_elses_process() -> None:
    code = orphan_process(launch(**gpus(GPU_IDLE_BYTES + 1)), Context())
    assert code is not None and code.severity == INVALID
    assert code.text.startswith("GPU memory was in use before the start (gpu3 2.0 GiB)")


def test_a_process_that_outlived_its_launch_is_told() -> None:
    code = orphan_process(launch(exit={"code": 0, "left": 2}), Context())
    assert code is not None and code.severity == WARNING
    assert code.text.startswith("2 processes of this server outlived it")


@pytest.mark.parametrize(
    "values",
    [gpus(GPU_IDLE_BYTES), gpus(None), {"exit": {"code": 0, "left": 0}}, {"exit": None}, failed("crashed"), {}],
)
def test_an_idle_gpu_and_a_clean_exit_leave_no_orphan(values: dict[str, Any]) -> None:
    assert orphan_process(launch(**values), Context()) is None


def stalled(folder: Path, errors: dict[str, int]) -> Code | None:
    return hang(write_launch(folder, trials=(changed(TRIAL, {"client.errors": errors}),)), Context())


def test_a_server_that_stopped_answering_hung() -> None:
    code = hang(launch(**failed("unresponsive", "died")), Context())
    assert code is not None and (code.code, code.severity) == ("hang", WARNING)
    assert hang(launch(**failed("crashed", "died")), Context()) is None


def test_requests_that_fell_silent_are_a_hang(tmp_path: Path) -> None:
    code = stalled(tmp_path / "a", {"stalled": 3, "http-5xx": 1})
    assert code is not None and code.text.endswith("3 in chat-c4")
    assert code.figures == {"stalled": 3}
    assert stalled(tmp_path / "b", {"http-5xx": 1}) is None


def test_an_arm_that_does_not_fit_is_a_record_and_not_the_end() -> None:
    code = oom_stops_sweep(launch(**failed("out-of-memory")), Context())
    assert code is not None and (code.code, code.severity) == ("oom-stops-sweep", WARNING)
    assert code.text == "this arm does not fit (out-of-memory: why); the campaign went on without it"
    assert oom_stops_sweep(launch(**failed("crashed")), Context()) is None


@pytest.mark.parametrize(
    ("planned", "took", "fires"),
    [
        (1000.0, COST_RATIO * 1000 + 1, True),
        (1000.0, COST_RATIO * 1000, False),
        (10.0, 10 + COST_SECONDS_MIN, False),
        (10.0, 10 + COST_SECONDS_MIN + 1, True),
        (None, 1e6, False),
    ],
)
def test_a_launch_that_took_twice_its_plan_is_told(planned: float | None, took: float, fires: bool) -> None:
    code = sweep_cost(launch(timings={"seconds": took, "planned_seconds": planned}), Context())
    assert (code is not None) == fires
    assert code is None or (code.code, code.severity) == ("sweep-cost", WARNING)


def test_the_cost_of_a_simulated_launch_counts_in_server_seconds() -> None:
    timings = {"seconds": 16.0, "planned_seconds": 6.0}
    assert sweep_cost(launch(timings=timings), Context()) is None
    code = sweep_cost(launch(timings=timings, time_factor=20.0), Context())
    assert code is not None and code.figures == {"seconds": 320.0, "planned_seconds": 120.0}


def test_a_burn_in_is_a_finding() -> None:
    code = first_launch(launch(role=BURN_IN), Context())
    assert code is not None and (code.code, code.severity) == ("first-launch", FINDING)
    assert first_launch(launch(), Context()) is None
