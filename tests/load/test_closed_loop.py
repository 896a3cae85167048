"""The closed loop against a server that does exactly what the test says, in this process."""

from __future__ import annotations

import asyncio
import socket
import time
from itertools import pairwise

import pytest
from scripted import STREAM, TOKENS, cut, in_turn, items, job, json_answer, offer, refuse, silent, steady
from sse_server import SseServer, chunked, delta

from lab.load.loop import Loop


@pytest.fixture(scope="module")
def plain() -> Loop:
    """Four clients, five prompts, and nothing that goes wrong."""
    prompts = items(5)
    prompts[4]["max_tokens"] = 2
    with SseServer(steady(0.005), keep=True) as server:
        return offer(job(server.url, items=prompts, concurrency=4))


def test_each_client_sends_when_its_last_request_has_ended(plain: Loop):
    lags = ("loop_lag_mean_ms", "loop_lag_p99_ms", "loop_lag_max_ms")
    unsteady = dict.fromkeys((*lags, "cpu_share", "drain_seconds"), 0)
    steady_ones = {"failure": None, "clients_started": 4, "drained": True}
    assert plain.outcome() | unsteady == {**steady_ones, **unsteady}
    for client in range(4):
        own = [request for request in plain.requests if request.client == client]
        assert len(own) > 3
        assert all(later.due_s == earlier.end_s <= later.sent_s for earlier, later in pairwise(own))
        assert [request.reused for request in own] == [False, *[True] * (len(own) - 1)]
    assert all(request.sent_s < plain.closed_s for request in plain.requests)


def test_items_are_sent_in_their_order_and_again_when_they_are_used_up(plain: Loop):
    numbers = range(len(plain.requests))
    assert [request.request for request in plain.requests] == list(numbers)
    assert [request.prompt for request in plain.requests] == [number % 5 for number in numbers]
    assert {request.max_tokens for request in plain.requests if request.prompt == 4} == {2}


def test_first_requests_are_staggered(plain: Loop):
    first = {request.client: request for request in reversed(plain.requests)}
    assert {client: request.max_tokens for client, request in first.items() if request.prompt != 4} == {
        client: 3 * (client + 1) for client, request in first.items() if request.prompt != 4
    }
    assert [first[client].sent_s for client in range(4)] == sorted(request.sent_s for request in first.values())
    later = [request for request in plain.requests if request is not first[request.client]]
    assert {request.max_tokens for request in later} == {2, TOKENS}


def test_failures_of_every_kind_are_kept_and_the_rest_goes_on():
    with SseServer(in_turn(steady(), refuse, steady(), cut, steady(), silent), keep=True) as server:
        load = offer(job(server.url, concurrency=6, stall_seconds=0.2, seconds=0.7))
    kinds = {request.fault.kind for request in load.requests if request.fault}
    assert kinds == {"http-4xx", "disconnected", "stalled"}
    assert {request.status for request in load.requests if request.fault and request.fault.kind == "http-4xx"} == {400}
    assert {request.answer.output_tokens for request in load.requests if request.fault} == {0, 2}
    assert sum(request.fault is None for request in load.requests) > 6
    assert load.outcome()["failure"] is None


@pytest.mark.parametrize(("status", "kind"), [(429, "rate-limited"), (503, "http-5xx")])
def test_a_client_waits_as_long_as_it_is_told_to(status: int, kind: str):
    async def busy(body: dict, writer: asyncio.StreamWriter) -> None:
        writer.write(json_answer({}, status, Retry_After="0.4"))

    with SseServer(in_turn(steady(), busy), keep=True) as server:
        load = offer(job(server.url, concurrency=1, seconds=0.8))
    told = [request for request in load.requests if request.fault]
    assert {request.fault.kind for request in told} == {kind}
    followed = [(one, other) for one, other in pairwise(load.requests) if one.fault]
    assert followed
    assert all(other.due_s - one.end_s > 0.39 for one, other in followed)


def test_a_wait_beyond_the_window_ends_with_it():
    async def busy(body: dict, writer: asyncio.StreamWriter) -> None:
        writer.write(json_answer({}, 429, Retry_After="3600"))

    started_s = time.monotonic()
    with SseServer(in_turn(steady(), busy)) as server:
        load = offer(job(server.url, concurrency=2, seconds=0.3, stall_seconds=0.3))
    assert time.monotonic() - started_s < 60
    assert load.outcome()["failure"] is None
    assert load.outcome()["clients_started"] == 1


@pytest.mark.parametrize("told", ["3600", "1e300"])
def test_a_client_that_is_put_off_for_long_does_not_hold_up_the_window(told: str):
    async def busy(body: dict, writer: asyncio.StreamWriter) -> None:
        writer.write(json_answer({}, 429, Retry_After=told))

    started_s = time.monotonic()
    with SseServer(in_turn(steady(), busy, *[steady()] * 1000), keep=True) as server:
        load = offer(job(server.url, concurrency=3, seconds=0.3, stall_seconds=60))
    assert time.monotonic() - started_s < 30
    assert load.outcome()["failure"] is None
    assert load.outcome()["clients_started"] == 2
    assert sum(request.retry_after_s is not None for request in load.requests) == 1


def test_a_client_that_is_put_off_for_a_moment_is_waited_for():
    async def busy(body: dict, writer: asyncio.StreamWriter) -> None:
        writer.write(json_answer({}, 429, Retry_After="0.5"))

    with SseServer(in_turn(busy, *[steady()] * 1000), keep=True) as server:
        load = offer(job(server.url, concurrency=2))
    assert load.outcome()["clients_started"] == 2


def test_requests_that_would_not_end_in_time_are_aborted_and_kept():
    with SseServer(steady(pause=0.05)) as server:
        load = offer(job(server.url, output_tokens=3000))
    assert [request.fault.kind for request in load.requests] == ["aborted"] * 3
    assert all(request.answer.output_tokens > 1 for request in load.requests)
    assert not load.outcome()["drained"]


def test_requests_that_have_shown_no_pace_are_aborted_when_the_drain_is_over():
    async def one_word(body: dict, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + chunked(delta(content="a", count=1)))
        await asyncio.sleep(60)

    with SseServer(one_word) as server:
        load = offer(job(server.url, seconds=0.1, drain_seconds=0.1))
    assert [request.fault.kind for request in load.requests] == ["aborted"] * 3
    assert all(request.end_s >= load.closed_s + 0.1 for request in load.requests)
    assert load.outcome()["drain_seconds"] >= 0.1


def test_a_server_that_refuses_everything_is_quoted():
    with SseServer(refuse) as server:
        load = offer(job(server.url))
    assert load.outcome()["failure"] == "every request fails: http-4xx: the prompt is too long"
    assert load.opened_s is None


def test_a_server_that_never_gives_a_token():
    with SseServer(silent) as server:
        load = offer(job(server.url, stall_seconds=0.3))
    assert load.outcome()["failure"].startswith("no request produced a token within 0.3 s")


def test_a_server_that_goes_away_ends_the_load_early():
    with SseServer(steady()) as server:
        load = offer(job(server.url, concurrency=2, seconds=300), on_open=server.stop_listening)
    assert "no longer accepts connections" in load.outcome()["failure"]
    assert {"disconnected", "connect"} <= {request.fault.kind for request in load.requests if request.fault}


def test_nobody_listening():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        load = offer(job(f"http://127.0.0.1:{taken.getsockname()[1]}", concurrency=1))
    assert "every request fails: connect" in load.outcome()["failure"]
    assert all(request.sent_s is not None for request in load.requests)


def test_prompts_that_the_api_does_not_take():
    with SseServer(steady()) as server:
        load = offer(job(server.url, items=[{"input_ids": [1, 2]}]))
    assert "'chat' takes no prompt given as input_ids" in load.outcome()["failure"]
    assert server.bodies == []
