"""Everything that can be ordered to go wrong goes wrong, to the ordered requests and in the ordered way."""

from __future__ import annotations

import asyncio
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.simulator.harness import CHAT, SPEC, busy, run, serving


def test_metrics_may_be_absent_zero_stale_reset_or_off() -> None:
    async def test() -> None:
        names = {"metrics__absent": ["vllm:num_requests_waiting"], "metrics__zero": ["vllm:kv_cache_usage_perc"]}
        async with serving(**names) as server, busy(server, 4):
            seen = await server.sample()
        assert (seen.running, seen.waiting, seen.kv_usage) == (4.0, None, 0.0)
        async with serving(metrics__refresh_steps=1000) as server, busy(server, 4):
            seen = await server.sample()
        assert seen.running == 0.0
        async with serving(metrics__reset_at_s=30.0, metrics__requests_before=10_000) as server:
            assert (await server.sample()).counters["requests_finished"] == 10_000
            await server.stream("hello", 4)
            async with asyncio.timeout(20):
                while (await server.sample()).counters["requests_finished"]:
                    await asyncio.sleep(0.05)
        for dialect, status in (("vllm", 404), ("sglang", 404), ("llamacpp", 501)):
            async with serving(dialect=dialect, metrics__off=True) as server:
                assert (await server.get("/metrics")).status == status
        async with serving(
            dialect="sglang", metrics__absent=["num_running_reqs"], metrics__zero=["token_usage"]
        ) as server:
            row = (await server.get("/v1/loads")).json["loads"][0]
            assert "num_running_reqs" not in row and row["token_usage"] == 0

    run(test)


def test_what_is_claimed_may_differ_from_what_holds() -> None:
    async def test() -> None:
        flags = {"max_running": 4, "echoed_max_running": 16, "lies__kv_tokens": 999_936, "lies__graphs_max_batch": 0}
        for dialect in ("vllm", "sglang"):
            async with serving(dialect=dialect, **flags) as server:
                facts = await server.describe()
                async with busy(server, 8):
                    seen = await server.sample()
            assert (facts["cap"], facts["kv_tokens"], facts["graphs"]) == (16, 999_936, False)
            assert (seen.running, seen.waiting) == (4.0, 4.0)

    run(test)


def test_a_flag_that_is_ignored_shows_as_off() -> None:
    async def test() -> None:
        for dialect in ("vllm", "sglang", "llamacpp"):
            async with serving(dialect=dialect, ignored_flags=["speculation"], **SPEC) as server:
                await server.stream("hello", 8)
                facts, seen = await server.describe(), await server.sample()
            assert facts["speculative"] is False
            assert not seen.counters.get("drafts")

    run(test)


def test_failures_happen_to_the_ordered_requests() -> None:
    async def statuses(count: int, **flags: Any) -> list[int]:
        async with serving(**flags) as server:
            return [(await server.stream("hello", 2)).status for _ in range(count)]

    async def test() -> None:
        assert await statuses(6, faults__fail_every=3) == [200, 200, 500, 200, 200, 500]
        assert await statuses(4, faults__fail_every=2, faults__spare_requests=1) == [200, 200, 500, 200]
        assert await statuses(2, faults__fail_all=True, faults__fail_status=503) == [503, 503]
        assert await statuses(2, faults__false_ready=True) == [500, 500]
        async with serving(faults__false_ready=True) as server:
            assert (await server.get("/health")).status == 200
        refused = await statuses(300, faults__unavailable_share=0.2)
        assert set(refused) == {200, 503} and 35 <= refused.count(503) <= 85
        async with serving(faults__unavailable_share=1.0, faults__retry_after_s=3.0) as server:
            assert (await server.stream("hello", 2)).headers["retry-after"] == "3"

    run(test)


def test_streams_are_cut_stalled_and_garbled_as_ordered() -> None:
    async def test() -> None:
        async with serving(faults__cut_every=1, faults__cut_after_tokens=3) as server:
            reply = await server.stream("hello", 8)
            assert not reply.complete and len(reply.text.split()) == 3
        async with serving(faults__stall_every=1, faults__stall_after_tokens=10) as server:
            body = {"messages": [], "max_tokens": 40, "stream": True}
            reply = await server.post(CHAT, body, timeout=0.3)
            assert not reply.complete and len(reply.text.split()) == 10
        async with serving(faults__invalid_sse_every=1) as server:
            reply = await server.stream("hello", 8)
            assert reply.events[3] == "{broken" and reply.complete

    run(test)


def test_a_slow_tail_hits_its_share_of_requests() -> None:
    async def test() -> None:
        async with serving(noise__tail_share=0.5, noise__tail_ms=2000.0, overhead_ms=0.0) as server:
            await asyncio.gather(*(server.stream(f"{n}", 1) for n in range(40)))
            queue = [row[2] - row[1] for row in server.service.journal.requests]
        slow = [value for value in queue if value * 20 > 0.1]
        assert 8 <= len(slow) <= 32

    run(test)


def test_every_metrics_page_is_of_the_text_format() -> None:
    async def test() -> None:
        for dialect in ("vllm", "sglang", "llamacpp"):
            async with serving(dialect=dialect, **SPEC) as server:
                await server.stream("hello", 4)
                text = (await server.get("/metrics")).body.decode()
            values = [one.value for family in text_string_to_metric_families(text) for one in family.samples]
            assert len(values) > 15 and max(values) > 0

    run(test)
