"""Requests and tokens on the server that were not ours."""

from __future__ import annotations

from typing import Any

import pytest

from lab.audit.base import INVALID, Code, Context
from lab.audit.thresholds import (
    FOREIGN_HELD_MIN,
    FOREIGN_HELD_SHARE,
    FOREIGN_TOKENS_MIN,
    KV_FULL,
)
from lab.audit.tokens import (
    foreign_traffic,
)
from tests.builders import trial_in_memory


def read(ours: int, server: float | None, **client: object) -> Code | None:
    delta = {} if server is None else {"prompt_tokens": server}
    changes = {"client.prompt_tokens": ours, "server.delta": delta, **{f"client.{k}": v for k, v in client.items()}}
    return foreign_traffic(trial_in_memory(changes), Context())


def test_a_server_that_was_busy_before_we_began_is_shared() -> None:
    code = foreign_traffic(trial_in_memory({"server.idle_running_max": 1.0}), Context())
    assert code is not None
    assert (code.code, code.severity) == ("foreign-traffic", INVALID)
    assert code.text.startswith("1 requests ran on the server before")


@pytest.mark.parametrize("idle", [0.0, None])
def test_an_idle_server_and_one_that_was_not_looked_at_are_silent(idle: float | None) -> None:
    assert foreign_traffic(trial_in_memory({"server.idle_running_max": idle}), Context()) is None


def test_prompt_tokens_beyond_ours_are_somebody_elses() -> None:
    assert read(10_000, 10_050) is None
    code = read(10_000, 10_051)
    assert code is not None
    assert (code.code, code.severity) == ("foreign-traffic", INVALID)
    assert code.text.startswith("the server read 10051 prompt tokens, our requests hold 10000")


def test_a_few_tokens_of_a_small_trial_are_nobodys() -> None:
    assert read(100, 100 + FOREIGN_TOKENS_MIN) is None
    assert read(100, 101 + FOREIGN_TOKENS_MIN) is not None


def test_somebody_elses_prompts_do_not_hide_behind_our_cached_ones() -> None:
    """We sent 10,000, of which 4,000 came from the cache: 6,000 were computed for us, and 4,000 for somebody else."""
    delta = {"prompt_tokens": 10_000.0, "cached_tokens": 4_000.0}
    assert foreign_traffic(trial_in_memory({"server.delta": delta}), Context())
    ours = {"prompt_tokens": 6_000.0, "cached_tokens": 4_000.0}
    assert foreign_traffic(trial_in_memory({"server.delta": ours}), Context()) is None


def test_prompts_that_were_read_again_after_a_preemption_are_nobody_elses() -> None:
    delta = {"prompt_tokens": 12_721.0, "preemptions": 40.0}
    preempted = {"client.prompt_tokens": 7168, "server.delta": delta}
    assert foreign_traffic(trial_in_memory(preempted), Context()) is None
    assert foreign_traffic(trial_in_memory({**preempted, "server.delta": {**delta, "preemptions": 0.0}}), Context())


def test_a_full_cache_may_have_preempted_what_the_server_does_not_count() -> None:
    full = {"client.prompt_tokens": 7168, "server.delta": {"prompt_tokens": 12_721.0}, "server.kv_usage_max": KV_FULL}
    assert foreign_traffic(trial_in_memory(full), Context()) is None
    assert foreign_traffic(trial_in_memory({**full, "server.kv_usage_max": KV_FULL - 0.01}), Context()) is not None


def test_fewer_prompt_tokens_on_the_server_are_its_cache() -> None:
    assert read(10_000, 2_000) is None


def test_without_a_drained_total_nothing_is_claimed() -> None:
    assert read(10_000, 20_000, drained=False) is None
    assert read(10_000, None) is None


FAILED = {"failed": 1, "errors": {"timeout": 1}}


def test_a_failed_request_hides_no_more_than_it_may_have_had() -> None:
    """Two mean prompts of 50 tokens, and its life of 1.1 s in a window of 6 s."""
    assert read(10_000, 10_050 + 100, **FAILED) is None
    assert read(10_000, 10_051 + 100, **FAILED) is not None
    changes = {f"client.{name}": value for name, value in FAILED.items()} | {"server.delta": {}}
    for running, fires in ((4.0 + FOREIGN_HELD_MIN + 0.18, False), (4.0 + FOREIGN_HELD_MIN + 0.19, True)):
        assert (
            foreign_traffic(trial_in_memory({**changes, "server.running": running}), Context()) is not None
        ) == fires
    stalled = {**changes, "client.errors": {"stalled": 1}, "server.running": 5.9}
    assert foreign_traffic(trial_in_memory(stalled), Context()) is None


@pytest.mark.parametrize(
    ("grew", "fires"),
    [
        ({}, False),
        (None, False),
        ({"requests_finished": 1.0, "output_tokens": 1.0}, False),
        ({"requests_finished": 2.0}, True),
        ({"prompt_tokens": 9.0}, True),
    ],
)
def test_counters_that_rise_while_we_leave_the_server_alone(grew: dict[str, float] | None, fires: bool) -> None:
    code = foreign_traffic(trial_in_memory({"server.idle_grew": grew}), Context())
    assert (code is not None) == fires


@pytest.mark.parametrize(
    ("finished", "client", "fires"),
    [
        (200.0, {}, False),
        (201.0, {}, False),
        (202.0, {}, True),
        (250.0, {}, True),
        (198.0, {}, True),
        (250.0, {"drained": False}, True),
        (204.0, {"drained": False, "sent": 203}, False),
        (202.0, {"failed": 1, "errors": {"timeout": 1}}, False),
        (203.0, {"failed": 1, "errors": {"timeout": 1}}, True),
        (None, {}, False),
    ],
)
def test_requests_that_the_server_finished_and_we_did_not_send(
    finished: float | None, client: dict[str, Any], fires: bool
) -> None:
    delta = {} if finished is None else {"requests_finished": finished}
    changes = {"server.delta": delta, **{f"client.{name}": value for name, value in client.items()}}
    code = foreign_traffic(trial_in_memory(changes), Context())
    assert (code is not None) == fires
    assert code is None or (code.code, code.severity) == ("foreign-traffic", INVALID)


def test_a_server_that_was_restarted_has_no_account_of_finished_requests() -> None:
    changes = {"server.delta": {"requests_finished": 90.0}, "server.restarted": True}
    assert foreign_traffic(trial_in_memory(changes), Context()) is None


@pytest.mark.parametrize(
    ("running", "fires"),
    [(16 * (1 + FOREIGN_HELD_SHARE) - 0.1, False), (16 * (1 + FOREIGN_HELD_SHARE) + 0.1, True), (15.9, False)],
)
def test_more_on_the_server_than_we_hold_is_told_without_a_drain(running: float, fires: bool) -> None:
    changes = {"client.littles_law": 16.0, "server.running": running, "client.drained": False, "server.delta": {}}
    code = foreign_traffic(trial_in_memory(changes), Context())
    assert (code is not None) == fires
    few = foreign_traffic(trial_in_memory({**changes, "server.samples": 9}), Context())
    assert few is None


@pytest.mark.parametrize(("running", "fires"), [(1.3 + FOREIGN_HELD_MIN, True), (1.1 + FOREIGN_HELD_MIN, False)])
def test_a_single_request_more_on_a_quiet_server_is_within_the_samples(running: float, fires: bool) -> None:
    changes = {"client.littles_law": 1.2, "client.arrivals": "poisson", "server.running": running}
    assert (foreign_traffic(trial_in_memory(changes), Context()) is not None) == fires
