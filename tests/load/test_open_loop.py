"""The open loop against a server that does exactly what the test says, in this process."""

from __future__ import annotations

import asyncio
from itertools import islice

import pytest
from scripted import in_turn, items, job, json_answer, offer, refuse, silent, steady
from sse_server import SseServer

from lab.load.arrivals import offsets
from lab.load.loop import Loop


def due_s(load: Loop) -> list[float]:
    """When the requests fell due, counted from the first."""
    return [request.due_s - load.requests[0].due_s for request in sorted(load.requests, key=lambda one: one.request)]


def planned(*arguments: object, count: int) -> list[float]:
    """The same from the plan."""
    times = list(islice(offsets(*arguments), count))
    return [at - times[0] for at in times]


@pytest.mark.parametrize("kind", ["poisson", "constant"])
def test_requests_fall_due_as_planned_whatever_the_server_does(kind: str):
    with SseServer(in_turn(steady(0.001), steady(0.02), refuse), keep=True) as server:
        load = offer(job(server.url, arrivals=kind, rate_rps=40, salt="a", concurrency=30))
    assert load.outcome()["failure"] is None
    plan = planned(kind, 40, "a", count=len(load.requests) + 1)
    assert due_s(load) == pytest.approx(plan[:-1])
    sent = [request for request in load.requests if request.sent_s is not None]
    assert all(request.due_s <= request.sent_s for request in sent)
    assert len(sent) >= len(load.requests) - 1  # one may fall due in the last millisecond of the window
    assert plan[-2] < load.closed_s - load.requests[0].due_s <= plan[-1]
    assert load.outcome()["drained"]


def test_a_trace_is_followed():
    at_s = [5.0, 5.0, 5.05, 5.2, 5.25, 5.3, 9.0]
    trace = [item | {"at_s": at} for item, at in zip(items(), at_s, strict=False)]
    with SseServer(steady(0.001), keep=True) as server:
        load = offer(job(server.url, arrivals="trace", items=trace))
    assert due_s(load) == pytest.approx([0, 0, 0.05, 0.2, 0.25, 0.3])
    assert [request.prompt for request in load.requests] == [0, 1, 2, 3, 4, 5]


def test_twice_the_capacity_waits_for_slots_and_what_never_got_one_is_kept():
    with SseServer(steady(0.01), keep=True) as server:
        load = offer(job(server.url, arrivals="constant", rate_rps=32, concurrency=2, seconds=1))
    unsent = [request for request in load.requests if request.sent_s is None]
    sent = [request for request in load.requests if request.sent_s is not None]
    assert len(unsent) > len(sent) / 3
    assert {request.fault.kind for request in unsent} == {"not-sent"}
    assert max(request.request for request in sent) < min(request.request for request in unsent)
    assert all(request.due_s < load.closed_s for request in unsent)
    assert sent[-1].sent_s - sent[-1].due_s > 0.3
    assert len(server.bodies) == len(sent)
    assert {request.client for request in sent} == {0, 1}
    assert len(load.requests) == pytest.approx(32 * (load.closed_s - load.requests[0].due_s), abs=1.5)


def test_a_refusal_holds_up_nobody():
    async def busy(body: dict, writer: asyncio.StreamWriter) -> None:
        writer.write(json_answer({}, 429, Retry_After="60"))

    with SseServer(in_turn(steady(0.001), busy), keep=True) as server:
        load = offer(job(server.url, arrivals="constant", rate_rps=40, concurrency=1))
    kinds = [request.fault and request.fault.kind for request in load.requests]
    assert kinds[:4] == [None, "rate-limited", None, "rate-limited"]
    assert len(kinds) > 10


def test_the_window_waits_for_a_token():
    with SseServer(steady(0.3)) as server:
        load = offer(job(server.url, arrivals="constant", rate_rps=5, concurrency=9, output_tokens=1, seconds=0.1))
    assert load.opened_s >= load.requests[0].answer.first_token_s > load.requests[0].due_s + 0.1


def test_no_token_is_a_failure():
    with SseServer(silent) as server:
        load = offer(job(server.url, arrivals="constant", rate_rps=5, stall_seconds=0.3))
    assert load.outcome()["failure"].startswith("no request produced a token within 0.3 s")


def test_a_first_arrival_beyond_the_stall_time_is_waited_for():
    with SseServer(steady(0.001)) as server:
        load = offer(job(server.url, arrivals="poisson", rate_rps=2, salt="z", stall_seconds=0.2, seconds=0.1))
    assert load.outcome()["failure"] is None
    assert next(offsets("poisson", 2, "z")) > 0.2
