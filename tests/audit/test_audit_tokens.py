"""Tokens counted on both sides, lengths that were asked for, and requests that were not ours."""

from __future__ import annotations

from typing import Any

import pytest

from lab.audit.base import INVALID, WARNING, Code, Context
from lab.audit.thresholds import (
    CHUNKS_PER_TOKEN,
    FOREIGN_HELD_MIN,
    FOREIGN_HELD_SHARE,
    FOREIGN_TOKENS_MIN,
    INPUT_SHARE,
    LATE_TOKENS_SHARE,
    LENGTH_ERRORS_SHARE,
)
from lab.audit.tokens import (
    chunk_not_token,
    count_mismatch,
    foreign_traffic,
    input_length_drift,
    output_length_asked,
    token_policy_unrecorded,
)
from tests.builders import trial_in_memory


def counted(ours: int | None, server: float | None, **client: object) -> Code | None:
    delta = {} if server is None else {"output_tokens": server}
    changes = {"client.output_tokens": ours, "server.delta": delta, **{f"client.{k}": v for k, v in client.items()}}
    return count_mismatch(trial_in_memory(changes), Context())


def read(ours: int, server: float | None, **client: object) -> Code | None:
    delta = {} if server is None else {"prompt_tokens": server}
    changes = {"client.prompt_tokens": ours, "server.delta": delta, **{f"client.{k}": v for k, v in client.items()}}
    return foreign_traffic(trial_in_memory(changes), Context())


@pytest.mark.parametrize(("ours", "server"), [(4000, 4000), (4000, 4020), (4000, 3980), (0, 0)])
def test_counts_within_half_a_percent_agree(ours: int, server: float) -> None:
    assert counted(ours, server) is None


@pytest.mark.parametrize(("ours", "server"), [(4000, 4021), (4000, 3979), (3000, 4000), (1, 0)])
def test_counts_further_apart_are_invalid(ours: int, server: float) -> None:
    code = counted(ours, server)
    assert code is not None
    assert (code.code, code.severity) == ("count-mismatch", INVALID)
    assert code.text == f"the client counted {ours} output tokens, the server {server:g}"
    assert code.figures == {"client": ours, "server": server}


@pytest.mark.parametrize(
    ("ours", "server", "client"),
    [
        (4000, None, {}),
        (None, 4000.0, {}),
        (4000, 5000.0, {"drained": False}),
        (4000, 5000.0, {"failed": 1, "errors": {"timeout": 1}}),
    ],
)
def test_counts_that_cannot_be_compared_are_a_warning(
    ours: int | None, server: float | None, client: dict[str, object]
) -> None:
    code = counted(ours, server, **client)
    assert code is not None
    assert (code.code, code.severity) == ("count-mismatch", WARNING)


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


def test_the_count_of_finished_requests_is_the_one_that_is_compared() -> None:
    """A live counter may be a token off for each request: 100 of 4,000 would be a mismatch."""
    delta = {"output_tokens": 4_100.0, "output_tokens_finished": 4_000.0}
    assert count_mismatch(trial_in_memory({"server.delta": delta}), Context()) is None
    assert count_mismatch(trial_in_memory({"server.delta": {**delta, "output_tokens_finished": 4_100.0}}), Context())


def test_prompts_that_were_read_again_after_a_preemption_are_nobody_elses() -> None:
    delta = {"prompt_tokens": 12_721.0, "preemptions": 40.0}
    preempted = {"client.prompt_tokens": 7168, "server.delta": delta}
    assert foreign_traffic(trial_in_memory(preempted), Context()) is None
    assert foreign_traffic(trial_in_memory({**preempted, "server.delta": {**delta, "preemptions": 0.0}}), Context())


def test_fewer_prompt_tokens_on_the_server_are_its_cache() -> None:
    assert read(10_000, 2_000) is None


@pytest.mark.parametrize("client", [{"drained": False}, {"failed": 1, "errors": {"timeout": 1}}])
def test_without_a_drained_total_nothing_is_claimed(client: dict[str, object]) -> None:
    assert read(10_000, 20_000, **client) is None
    assert read(10_000, None) is None


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
        (250.0, {"drained": False}, False),
        (250.0, {"failed": 1, "errors": {"timeout": 1}}, False),
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


@pytest.mark.parametrize(
    ("live", "fires"), [(600.0, False), (572.5, False), (571.0, True), (628.0, False), (629.5, True), (None, True)]
)
def test_without_a_drain_live_counters_are_compared_over_the_window(live: float | None, fires: bool) -> None:
    window = {} if live is None else {"output_tokens": live}
    changes = {"client.drained": False, "server.window_delta": window}
    code = count_mismatch(trial_in_memory(changes), Context())
    assert (code is not None) == fires
    assert code is None or (code.code, code.severity) == ("count-mismatch", WARNING)


@pytest.mark.parametrize(
    ("asked", "counted", "exact", "severity"),
    [
        (1000, 1000 * (1 + INPUT_SHARE), True, None),
        (1000, 1000 * (1 + INPUT_SHARE) + 1, True, INVALID),
        (1000, 1000 * (1 - INPUT_SHARE) - 1, True, INVALID),
        (1000, 1300, False, WARNING),
        (1000, 1300, None, WARNING),
        (20, 22, True, None),
        (20, 23, True, INVALID),
        (None, 50.0, True, None),
        (1000, None, True, None),
    ],
)
def test_prompts_have_the_length_asked_for(
    asked: int | None, counted: float | None, exact: bool | None, severity: str | None
) -> None:
    changes = {
        "prompts.input_tokens": asked,
        "prompts.input_tokens_exact": exact,
        "client.prompt_tokens_mean": counted,
    }
    code = input_length_drift(trial_in_memory(changes), Context())
    assert (code.severity if code else None) == severity
    assert code is None or code.code == "input-length-drift"


@pytest.mark.parametrize(
    ("ignore_eos", "share", "fires"),
    [(True, LENGTH_ERRORS_SHARE, False), (True, LENGTH_ERRORS_SHARE + 0.001, True), (False, 0.9, False),
     (True, None, False)],
)  # fmt: skip
def test_a_server_that_ignores_ignore_eos_is_found(ignore_eos: bool, share: float | None, fires: bool) -> None:
    changes = {"prompts.ignore_eos": ignore_eos, "client.length_errors_share": share}
    code = output_length_asked(trial_in_memory(changes), Context())
    assert (code is not None) == fires
    assert code is None or (code.code, code.severity) == ("output-length-drift", INVALID)


@pytest.mark.parametrize(
    ("each", "late", "fires"),
    [
        (1 / CHUNKS_PER_TOKEN, 0.0, False),
        (1 / CHUNKS_PER_TOKEN + 0.001, 0.0, True),
        (3.0, None, True),
        (1.0, LATE_TOKENS_SHARE, False),
        (1.0, LATE_TOKENS_SHARE + 0.001, True),
        (None, None, False),
    ],
)
def test_a_chunk_is_not_a_token(each: float | None, late: float | None, fires: bool) -> None:
    changes = {"client.tokens_per_chunk": each, "client.late_tokens_share": late}
    code = chunk_not_token(trial_in_memory(changes), Context())
    assert (code is not None) == fires
    assert code is None or (code.code, code.severity) == ("chunk-not-token", WARNING)


@pytest.mark.parametrize(
    ("source", "fires"),
    [("usage", False), ("timings.predicted_n", False), ("tokenizer", False), ("chunks", True),
     ("chunks + usage", True), (None, True)],
)  # fmt: skip
def test_somebody_must_have_counted(source: str | None, fires: bool) -> None:
    code = token_policy_unrecorded(trial_in_memory({"client.tokens_source": source}), Context())
    assert (code is not None) == fires
    assert token_policy_unrecorded(trial_in_memory({"client.completed": 0}), Context()) is None
