"""Tokens counted on both sides, and requests that were not ours."""

from __future__ import annotations

import pytest

from lab.audit.base import INVALID, WARNING, Code, Context
from lab.audit.thresholds import FOREIGN_TOKENS_MIN
from lab.audit.tokens import count_mismatch, foreign_traffic
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


def test_fewer_prompt_tokens_on_the_server_are_its_cache() -> None:
    assert read(10_000, 2_000) is None


@pytest.mark.parametrize("client", [{"drained": False}, {"failed": 1, "errors": {"timeout": 1}}])
def test_without_a_drained_total_nothing_is_claimed(client: dict[str, object]) -> None:
    assert read(10_000, 20_000, **client) is None
    assert read(10_000, None) is None
