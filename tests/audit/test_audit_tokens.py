"""Tokens counted on both sides, and lengths that were asked for."""

from __future__ import annotations

import pytest

from lab.audit.base import INVALID, WARNING, Code, Context
from lab.audit.thresholds import (
    CHUNKS_PER_TOKEN,
    INPUT_SHARE,
    LATE_TOKENS_SHARE,
    LENGTH_ERRORS_SHARE,
    UNCOUNTED_SHARE,
)
from lab.audit.tokens import (
    chunk_not_token,
    count_mismatch,
    input_length_drift,
    output_length_asked,
    token_policy_unrecorded,
)
from tests.builders import trial_in_memory


def counted(ours: int | None, server: float | None, **client: object) -> Code | None:
    delta = {} if server is None else {"output_tokens": server}
    changes = {"client.output_tokens": ours, "server.delta": delta, **{f"client.{k}": v for k, v in client.items()}}
    return count_mismatch(trial_in_memory(changes), Context())


@pytest.mark.parametrize(("ours", "server"), [(4000, 4000), (4000, 4020), (4000, 3980), (0, 0)])
def test_counts_within_half_a_percent_agree(ours: int, server: float) -> None:
    assert counted(ours, server) is None


@pytest.mark.parametrize(("ours", "server"), [(4000, 4021), (4000, 3979), (3000, 4000), (1, 0)])
def test_counts_further_apart_are_invalid(ours: int, server: float) -> None:
    code = counted(ours, server)
    assert code is not None
    assert (code.code, code.severity) == ("count-mismatch", INVALID)
    assert code.text.startswith(f"the client counted {ours} output tokens, the server {server:g}: ")
    assert code.figures == {"client": ours, "server": server}


@pytest.mark.parametrize(
    ("ours", "server", "client"),
    [
        (4000, None, {}),
        (None, 4000.0, {}),
        (4000, 5000.0, {"drained": False}),
        (4000, 5000.0, {"failed": 1, "errors": {"timeout": 1}, "max_tokens_most": None}),
    ],
)
def test_counts_that_cannot_be_compared_are_a_warning(
    ours: int | None, server: float | None, client: dict[str, object]
) -> None:
    code = counted(ours, server, **client)
    assert code is not None
    assert (code.code, code.severity) == ("count-mismatch", WARNING)


def test_the_count_of_finished_requests_is_the_one_that_is_compared() -> None:
    """A live counter may be a token off for each request: 100 of 4,000 would be a mismatch."""
    delta = {"output_tokens": 4_100.0, "output_tokens_finished": 4_000.0}
    assert count_mismatch(trial_in_memory({"server.delta": delta}), Context()) is None
    assert count_mismatch(trial_in_memory({"server.delta": {**delta, "output_tokens_finished": 4_100.0}}), Context())


FAILED = {"failed": 1, "errors": {"timeout": 1}}


def test_a_failed_request_hides_no_more_tokens_than_it_may_have_had() -> None:
    """An answer of 32."""
    code = counted(4000, 4000 + 53, **FAILED)
    assert code is not None and code.severity == INVALID
    assert counted(4000, 4000 + 52, **FAILED) is None


def test_a_live_counter_is_compared_although_a_failure_blurs_the_totals() -> None:
    changes = {f"client.{name}": value for name, value in FAILED.items()}
    changes |= {"server.delta": {"output_tokens": 4000.0}, "server.window_delta": {"output_tokens": 900.0}}
    code = count_mismatch(trial_in_memory(changes), Context())
    assert code is not None and (code.severity, code.figures) == (INVALID, {"client": 600, "server": 900.0})


@pytest.mark.parametrize(
    ("live", "stairs", "severity"),
    [
        (640.0, 0.0, WARNING),
        (655.0, 0.0, WARNING),
        (660.0, 0.0, INVALID),
        (660.0, 30.0, WARNING),
        (530.0, 0.0, INVALID),
    ],
)
def test_a_live_difference_beyond_twice_its_allowance_is_no_matter_of_the_moment(
    live: float, stairs: float, severity: str
) -> None:
    changes = {"client.drained": False, "server.window_delta": {"output_tokens": live}, "server.delta": {}}
    code = count_mismatch(trial_in_memory({**changes, "server.output_tokens_staircase": stairs}), Context())
    assert code is not None and code.severity == severity


def test_tokens_that_only_the_live_counter_of_a_slow_server_saw_are_missed_over_the_trial() -> None:
    """Sixteen of 64 tokens in the window differ by less than the moment of reading, 62 of 248 over the trial do not."""
    changes = {"client.drained": False, "client.window_tokens": 16, "client.output_tokens": 62, "concurrency": 8}
    changes |= {"server.window_delta": {"output_tokens": 64.0}, "server.delta": {"output_tokens": 248.0}}
    code = count_mismatch(trial_in_memory(changes), Context())
    assert code is not None and code.severity == INVALID and "62 output tokens in the trial" in code.text


def test_where_counters_fell_tokens_are_not_compared() -> None:
    assert counted(4000, 100.0) is not None
    changes = {"client.output_tokens": 4000, "server.delta": {"output_tokens": 100.0}, "server.restarted": True}
    assert count_mismatch(trial_in_memory(changes), Context()) is None


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


@pytest.mark.parametrize(("speculative", "doubted"), [(False, True), (True, False), (None, False)])
def test_a_server_that_does_not_speculate_and_sends_several_tokens_at_once(
    speculative: bool | None, doubted: bool
) -> None:
    trial = trial_in_memory({"client.tokens_per_chunk": 2.69}, facts={"speculative": speculative})
    code = chunk_not_token(trial, Context())
    assert code is not None and ("no speculation, says the server" in code.text) == doubted


def test_what_a_counter_grew_by_between_two_samples_is_told_in_whole_tokens() -> None:
    changes = {"client.drained": False, "server.window_delta": {"output_tokens": 1_234_567.25}}
    code = count_mismatch(trial_in_memory(changes), Context())
    assert code is not None and code.text.endswith("the server's counter rose by about 1234567")


@pytest.mark.parametrize(
    ("source", "fires"),
    [("usage", False), ("timings.predicted_n", False), ("tokenizer", False), ("chunks", True),
     ("chunks + usage", True), (None, True)],
)  # fmt: skip
def test_somebody_must_have_counted(source: str | None, fires: bool) -> None:
    code = token_policy_unrecorded(trial_in_memory({"client.tokens_source": source}), Context())
    assert (code is not None) == fires
    assert token_policy_unrecorded(trial_in_memory({"client.completed": 0}), Context()) is None


@pytest.mark.parametrize(("share", "fires"), [(UNCOUNTED_SHARE, False), (UNCOUNTED_SHARE + 0.01, True), (None, False)])
def test_tokens_of_the_window_that_nobody_counted_are_told(share: float | None, fires: bool) -> None:
    trial = trial_in_memory({"client.uncounted_tokens_share": share, "client.completed": 0})
    code = token_policy_unrecorded(trial, Context())
    assert (code is not None) == fires
    assert code is None or (code.severity, "6% of the window's tokens" in code.text) == (WARNING, True)


def test_chunks_of_unfinished_answers_that_were_scaled_are_told() -> None:
    trial = trial_in_memory({"client.tokens_per_chunk": 2.0, "client.scaled_tokens_share": 0.4})
    code = chunk_not_token(trial, Context())
    assert code is not None and "40% of the window's tokens are chunks of unfinished answers" in code.text
