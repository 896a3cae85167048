"""Over HTTP: rates, gauges and streams are what the truth says, and every fault that can be ordered happens."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.simulator.harness import CHAT, SPEC, busy, crowd, run, serving


@pytest.mark.parametrize("dialect", ["vllm", "sglang", "llamacpp"])
def test_a_cap_of_8_under_16_clients(dialect: str) -> None:
    """Running is 8, waiting the rest, and the rate is the formula's, by the server's own account."""

    async def test() -> None:
        flags = {"max_running": 8, "step_ms_per_running": 0.5, "prefill_ms_per_token": 0.0, "overhead_ms": 0.0}
        async with serving(dialect=dialect, **flags) as server:
            load = asyncio.create_task(crowd(server, 16, 1.0, tokens=500))  # 0.6 s each: a busy machine keeps up
            await asyncio.sleep(0.3)
            from_s = time.monotonic()
            seen = [await server.sample() for _ in range(10)]
            await asyncio.sleep(0.5)
            to_s = time.monotonic()
            truth, journal = server.truth(from_s, to_s), server.service.journal
            await load
        assert {one.running for one in seen} == {8.0}
        assert truth["running_mean"] == pytest.approx(8.0, rel=0.005)
        tokens = sum(
            count
            for count, end_s in zip(journal.step_tokens, journal.step_end_s, strict=True)
            if from_s <= end_s < to_s
        )
        assert tokens / truth["server_seconds"] == pytest.approx(8 / 0.024, rel=8 * 0.024 / truth["server_seconds"])

    run(test)


@pytest.mark.parametrize("dialect", ["vllm", "sglang", "llamacpp"])
def test_counters_agree_with_what_clients_got(dialect: str) -> None:
    async def test() -> None:
        async with serving(dialect=dialect, **SPEC) as server:
            before = await server.sample()
            replies = await crowd(server, 4, 0.3, tokens=24)
            after = await server.sample()
            truth = server.truth(0.0, time.monotonic())
        usages = [reply.chunks[-1]["usage"] for reply in replies]
        got = sum(usage["completion_tokens"] for usage in usages)
        assert got == 24 * len(replies) == truth["tokens_sent"] == truth["output_tokens"]
        delta = {name: after.counters[name] - before.counters.get(name, 0) for name in after.counters}
        assert delta["output_tokens"] == got
        assert delta["prompt_tokens"] == sum(usage["prompt_tokens"] for usage in usages) == truth["prompt_tokens"]
        assert delta.get("requests_finished", len(replies)) == len(replies)
        assert delta["drafts"] == truth["drafts"]
        if dialect != "sglang":  # SGLang's page has no counter of accepted drafts
            assert delta["draft_accepted"] == truth["draft_accepted"]
            assert delta["draft_accepted"] / delta["drafts"] == pytest.approx(1.3, abs=0.1)

    run(test)


def test_tokens_are_sent_on_the_absolute_schedule() -> None:
    """However late single steps are, the plan has no gap: the mean rate is exact."""

    async def test() -> None:
        async with serving(time_factor=50.0, step_ms=20.0, step_ms_per_running=0.0, prefill_ms_per_token=0.0) as server:
            await server.stream("hello", 1500)
            journal = server.service.journal
            planned = (journal.step_end_s[-1] - journal.step_start_s[0]) * 50
        assert planned == pytest.approx(1500 * 0.020, rel=1e-9)
        assert len(journal.step_end_s) == 1500

    run(test)


def test_chunks_reach_the_client_as_they_are_stamped() -> None:
    async def test() -> None:
        async with serving(time_factor=1.0, step_ms=30.0) as server:
            reply = await server.stream("hello", 6)
            sent = list(server.service.journal.chunk_s)
        assert len(sent) == 6
        assert reply.complete and reply.headers["content-type"].startswith("text/event-stream")
        assert all(any(stamp <= arrival for arrival in reply.arrivals) for stamp in sent)
        assert reply.arrivals[-1] >= sent[-1]

    run(test)


def test_ranks_share_the_load_or_one_gets_it_all() -> None:
    async def test() -> None:
        for router, expected in (("even", (2.0, 2.0)), ("first", (4.0, 0.0))):
            for dialect in ("vllm", "sglang"):
                async with serving(dialect=dialect, ranks=2, router=router) as server, busy(server, 4):
                    seen = await server.sample()
                    facts = await server.describe()
                assert seen.running_by_rank == expected
                assert (seen.running, facts["ranks"], facts["cap"]) == (4.0, 2, 128)

    run(test)


def test_prefix_hits_are_counted_and_forgotten_on_demand() -> None:
    prompt = "one two three four five six seven eight nine ten " * 8

    async def test() -> None:
        for dialect, path in (("vllm", "/reset_prefix_cache"), ("sglang", "/flush_cache")):
            async with serving(dialect=dialect, prefix_cache=True, block_tokens=16) as server:
                first = await server.stream(prompt, 4)
                second = await server.stream(prompt, 4)
                seen = await server.sample()
                assert (await server.post(path, {})).status == 200
                third = await server.stream(prompt, 4)
            cached = [
                (r.chunks[-1]["usage"].get("prompt_tokens_details") or {}).get("cached_tokens", 0)
                for r in (first, second, third)
            ]
            prompt_tokens = first.chunks[-1]["usage"]["prompt_tokens"]
            assert cached == [0, (prompt_tokens - 1) // 16 * 16, 0]
            assert seen.counters["prefix_hits"] == cached[1]
            assert seen.counters["prefix_queries"] == 2 * prompt_tokens

    run(test)


def test_requests_held_at_the_door_are_seen_by_no_gauge() -> None:
    async def test() -> None:
        async with serving(hold_beyond=3) as server:
            async with busy(server, 8):
                seen = await server.sample()
            replies = await crowd(server, 8, 0.1, tokens=20)
        assert (seen.running, seen.waiting) == (3.0, 0.0)
        assert len(replies) >= 8 and all(reply.complete for reply in replies)

    run(test)


def test_foreign_requests_run_and_are_counted() -> None:
    async def test() -> None:
        async with serving(
            foreign__start_s=1.0, foreign__requests=5, foreign__output_tokens=10, foreign__idle_running=2
        ) as server:
            await asyncio.sleep(0.02)
            assert (await server.sample()).running == 2.0
            replies = await crowd(server, 2, 0.3, tokens=20)
            seen = await server.sample()
            truth = server.truth(0.0, time.monotonic())
        assert seen.counters["requests_finished"] == len(replies) + 5
        assert truth["requests_finished"] == len(replies)
        assert truth["foreign_tokens_sent"] == 50

    run(test)


def test_a_client_that_leaves_aborts_its_request() -> None:
    async def test() -> None:
        async with serving() as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            body = b'{"messages":[],"max_tokens":4000,"stream":true}'
            writer.write(b"POST %b HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (CHAT.encode(), len(body), body))
            await reader.read(100)
            assert (await server.sample()).running == 1.0
            writer.close()
            await asyncio.sleep(0.05)
            seen = await server.sample()
        assert (seen.running, seen.counters["requests_aborted"], seen.counters["requests_finished"]) == (0.0, 1.0, 0.0)

    run(test)


def test_a_connection_serves_again() -> None:
    async def test() -> None:
        async with serving() as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            for _ in range(2):
                writer.write(b"GET /version HTTP/1.1\r\nhost: x\r\n\r\n")
                assert b"0.32.0" in await reader.readuntil(b"}")
            writer.close()

    run(test)
