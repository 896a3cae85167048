"""The concurrency account: a queue before a full server is told from everything that only looks like one."""

from __future__ import annotations

from typing import Any

import pytest

from lab.audit.account import account
from lab.audit.base import FINDING, INVALID, WARNING, Code, Context
from lab.audit.concurrency import (
    admission_bound,
    batch_cap,
    cap_bound,
    dp_underfilled,
    kv_bound,
)
from lab.audit.thresholds import (
    CAP_FILLED_SHARE,
    KV_FULL,
    KV_WAITING_MIN,
    RANK_SKEW,
    SCHEDULER_SHARE,
    SCHEDULER_SHARE_INVALID,
    SCHEDULER_WAITING_MIN,
    WAITING_MIN,
    WAITING_SHARE,
)
from lab.records import Trial
from tests.builders import changed, trial_in_memory


def capped(
    offered: int, cap: float | None, running: float | None, waiting: float | None, control_cap: float | None = None
) -> Code | None:
    changes: dict[str, Any] = {
        "concurrency": offered,
        "client.littles_law": (running or 0) + (waiting or 0),
        "server.running": running,
        "server.waiting": waiting,
    }
    return batch_cap(trial_in_memory(changes, facts={"cap": cap}), Context(control_cap))


def test_a_server_that_runs_all_that_was_offered_is_silent() -> None:
    assert capped(4, 4, 3.98, 0.0) is None
    assert capped(4, 16, 3.98, 0.0) is None


def test_a_full_server_with_a_queue_is_capped() -> None:
    code = capped(16, 8, 8.0, 8.0)
    assert code is not None
    assert (code.code, code.severity) == ("batch-cap", INVALID)
    assert (
        code.text
        == "asked 16, ran 8.0, 8.0 waited: the server runs at most 8 (/slots); raise the cap or measure at C=8"
    )
    assert code.figures == {"offered": 16, "littles_law": 16.0, "running": 8.0, "waiting": 8.0, "cap": 8}


def test_a_cap_that_the_control_does_not_have_is_a_finding() -> None:
    code = capped(16, 8, 8.0, 8.0, control_cap=16)
    assert code is not None
    assert (code.code, code.severity) == ("capacity-limited", FINDING)
    assert "the control runs up to 16" in code.text
    assert code.figures["control_cap"] == 16


@pytest.mark.parametrize("control_cap", [8, 4])
def test_a_cap_that_the_control_has_too_is_invalid(control_cap: float) -> None:
    code = capped(16, 8, 8.0, 8.0, control_cap)
    assert code is not None and code.code == "batch-cap"


def test_waiting_counts_although_the_queue_gauge_shows_none() -> None:
    trial = trial_in_memory(
        {"concurrency": 4, "client.littles_law": 4.0, "server.running": 2.0, "server.waiting": 0.0}, {"cap": 2}
    )
    code = batch_cap(trial, Context())
    assert code is not None and "2.0 waited" in code.text


def test_a_server_that_is_not_full_is_not_capped() -> None:
    assert capped(16, 8, CAP_FILLED_SHARE * 8, 8.0) is not None
    assert capped(16, 8, CAP_FILLED_SHARE * 8 - 0.01, 8.0) is None


def test_a_short_queue_is_not_a_cap() -> None:
    assert capped(9, 8, 8.0, WAITING_MIN) is not None
    assert capped(9, 8, 8.0, WAITING_MIN - 0.01) is None


def test_the_queue_that_counts_grows_with_the_load() -> None:
    assert capped(100, 96, 96.0, WAITING_SHARE * 100) is not None
    assert capped(100, 96, 96.0, WAITING_SHARE * 100 - 0.01) is None


def test_without_a_gauge_nothing_is_claimed() -> None:
    assert capped(16, 8, None, 8.0) is None


@pytest.mark.parametrize(("most", "severity"), [(8.0, INVALID), (12.0, WARNING), (None, WARNING)])
def test_a_queue_before_a_server_that_hides_its_cap(most: float | None, severity: str) -> None:
    """One that always ran eight has a cap of eight; one that ran up to twelve reads prompts."""
    fields = {"concurrency": 16, "client.littles_law": 16.0, "server.waiting": 8.0, "server.kv_usage_max": 0.2}
    fields |= {"server.running": 8.0, "server.running_max": most, "server.running_p25": 7.0, "server.waiting_p10": 6.0}
    code = batch_cap(trial_in_memory(fields, facts={"cap": None}), Context())
    assert code is not None and (code.severity, code.figures["reason"]) == (severity, "scheduler")
    assert "its cap is unknown" in code.text


@pytest.mark.parametrize(("most", "severity"), [(9.0, INVALID), (12.0, WARNING), (None, WARNING)])
def test_a_server_that_runs_a_flat_number_below_the_cap_it_claims(most: float | None, severity: str) -> None:
    fields = {"concurrency": 16, "client.littles_law": 16.0, "server.waiting": 7.0, "server.kv_usage_max": 0.2}
    fields |= {"server.running": 9.0, "server.running_max": most, "server.running_p25": 8.0, "server.waiting_p10": 7.0}
    code = batch_cap(trial_in_memory(fields, facts={"cap": 64}), Context())
    assert code is not None and code.severity == severity
    assert ("(it says it can run 64): it behaves like a cap of 9; measure at C=9" in code.text) == (severity == INVALID)


def test_a_load_of_just_the_cap_is_silent() -> None:
    assert capped(8, 8, 8.0, 2.0) is None


def test_in_an_open_loop_a_queue_is_part_of_the_load() -> None:
    changes = {"concurrency": 16, "client.littles_law": 16.0, "server.running": 8.0, "server.waiting": 8.0}
    assert batch_cap(trial_in_memory(changes, {"cap": 8}), Context()) is not None
    assert batch_cap(trial_in_memory({**changes, "client.arrivals": "poisson"}, {"cap": 8}), Context()) is None


def load(
    running: float, waiting: float, usage: float | None = 0.3, preemptions: float | None = None, **facts: Any
) -> Trial:
    """Sixteen clients on a server that could run them all."""
    delta = {} if preemptions is None else {"preemptions": preemptions}
    changes = {
        "concurrency": 16,
        "client.littles_law": 16.0,
        "client.in_flight_bins": [16.0] * 12,
        "server.running": running,
        "server.waiting": waiting,
        "server.waiting_p10": waiting,
        "server.kv_usage_max": usage,
        "server.delta": delta,
    }
    return trial_in_memory(changes, facts={"cap": 32, **facts})


FREE = load(16.0, 0.0)


@pytest.mark.parametrize(
    ("trial", "fires"),
    [
        (load(13.0, 3.0, KV_FULL), True),
        (load(13.0, 3.0, KV_FULL - 0.01), False),
        (load(13.0, 3.0, 0.3, 22.0), True),
        (load(13.0, 3.0, 0.3, 0.0), False),
        (load(13.0, 3.0, None, 22.0), True),
        (load(CAP_FILLED_SHARE * 16, 3.0, 1.0), False),
        (load(15.0, KV_WAITING_MIN, 1.0), True),
        (load(15.3, 0.0, 1.0), False),
    ],
)
def test_fewer_run_than_could_and_the_cache_is_full(trial: Trial, fires: bool) -> None:
    code = kv_bound(trial, Context())
    assert (code is not None) == fires
    if code is not None:
        assert (code.code, code.severity) == ("kv-bound", INVALID)
        assert batch_cap(trial, Context()) is None


@pytest.mark.parametrize(("prompt_tokens", "fires"), [(287.0, True), (285.0, False)])
def test_a_cache_without_room_for_one_more_prompt_is_full(prompt_tokens: float, fires: bool) -> None:
    """0.07 of 4096 tokens are 286.7; a prompt needs room for its first answer token too."""
    trial = load(13.0, 3.0, 0.93)
    full = Trial(trial.folder, changed(trial.record, {"client.prompt_tokens_mean": prompt_tokens}), trial.launch)
    assert (kv_bound(full, Context()) is not None) == fires
    assert (batch_cap(full, Context()) is not None) != fires


@pytest.mark.parametrize(
    ("waiting_p10", "error", "fires"), [(2.0, 0.8, True), (0.0, 0.8, False), (0.0, 0.6, True), (0.0, 0.0, True)]
)
def test_a_queue_that_comes_and_goes_counts_where_the_batch_is_short_beyond_its_error(
    waiting_p10: float, error: float, fires: bool
) -> None:
    trial = load(13.0, 2.0)
    record = changed(trial.record, {"server.waiting_p10": waiting_p10, "server.held_error": error})
    code = batch_cap(Trial(trial.folder, record, trial.launch), Context())
    assert (code is not None) == fires
    assert code is None or (code.severity, code.figures["reason"]) == (WARNING, "scheduler")


@pytest.mark.parametrize(("least", "severity"), [(6.3, INVALID), (6.4, WARNING), (None, WARNING)])
def test_a_server_that_fills_whole_batches_never_runs_what_was_asked(least: float | None, severity: str) -> None:
    trial = load(10.0, 5.0)
    changes = {"server.waiting_p10": 0.0, "server.running_max": 16.0, "server.running_p25": least}
    code = batch_cap(Trial(trial.folder, changed(trial.record, changes), trial.launch), Context())
    assert code is not None and code.severity == severity
    assert ("it fills whole batches" in code.text) == (severity == INVALID)
    lever = batch_cap(Trial(trial.folder, changed(trial.record, changes), trial.launch), Context(control=FREE))
    assert lever is not None and lever.code == "capacity-limited"


@pytest.mark.parametrize(
    ("running", "waiting_p10", "fires"), [(3.8, 3.0, True), (3.8, 0.0, False), (3.59, 3.0, False), (3.9, 0.0, True)]
)
def test_a_cap_with_a_queue_that_stands_is_one_although_places_are_empty_for_moments(
    running: float, waiting_p10: float, fires: bool
) -> None:
    fields = {"concurrency": 8, "client.littles_law": 8.0, "server.running": running, "server.waiting": 4.2}
    fields |= {"server.waiting_p10": waiting_p10, "server.running_max": 4.0, "server.kv_usage_max": 0.2}
    load = account(trial_in_memory(fields, facts={"cap": 4}))
    assert cap_bound(load) == fires
    # What is no full cap is a queue before a server with room: no hole between the two.
    assert fires or running >= SCHEDULER_SHARE * 4 or admission_bound(load)


def test_a_cache_that_the_lever_filled_is_a_finding() -> None:
    code = kv_bound(load(13.0, 3.0, 1.0), Context(control=FREE))
    assert code is not None and (code.code, code.severity) == ("capacity-limited", FINDING)
    assert code.figures["reason"] == "kv"
    same = kv_bound(load(13.0, 3.0, 1.0), Context(control=load(13.0, 3.0, 1.0)))
    assert same is not None and same.code == "kv-bound"


@pytest.mark.parametrize(("preemptions", "said"), [(42.0, " 42 preemptions"), (41.6249, " about 42 preemptions")])
def test_preemptions_are_whole_ones(preemptions: float, said: str) -> None:
    code = kv_bound(load(13.0, 3.0, 1.0, preemptions), Context())
    assert code is not None and f", {said.strip()};" in code.text


@pytest.mark.parametrize(
    ("trial", "severity"),
    [
        (load(SCHEDULER_SHARE_INVALID * 16 - 0.1, 6.0), INVALID),
        (load(SCHEDULER_SHARE_INVALID * 16, 6.0), WARNING),
        (load(SCHEDULER_SHARE * 16, 6.0), None),
        (load(14.0, SCHEDULER_WAITING_MIN), WARNING),
        (load(14.0, SCHEDULER_WAITING_MIN - 0.01), None),
        (load(10.0, 6.0, None), WARNING),
    ],
)
def test_a_queue_before_a_server_with_room_is_its_schedulers(trial: Trial, severity: str | None) -> None:
    code = batch_cap(trial, Context())
    assert (code.severity if code else None) == severity
    if code is not None:
        assert (code.code, code.figures["reason"]) == ("batch-cap", "scheduler")


def test_a_scheduler_that_the_lever_slowed_is_a_finding() -> None:
    code = batch_cap(load(10.0, 6.0), Context(control=FREE))
    assert code is not None and (code.code, code.severity) == ("capacity-limited", FINDING)


@pytest.mark.parametrize(
    ("concurrency", "ranks", "skew", "fires"),
    [
        (1, 2, None, True), (2, 2, None, False), (8, 2, RANK_SKEW + 0.01, True), (8, 2, RANK_SKEW, False),
        (1, 1, 2.0, False), (1, None, 2.0, False),
    ],
)  # fmt: skip
def test_idle_data_parallel_ranks(concurrency: int, ranks: int | None, skew: float | None, fires: bool) -> None:
    trial = trial_in_memory({"concurrency": concurrency, "server.rank_skew": skew}, facts={"ranks": ranks})
    code = dp_underfilled(trial, Context())
    assert (code is not None) == fires
    if code is not None:
        assert (code.code, code.severity) == ("dp-underfilled", WARNING)
