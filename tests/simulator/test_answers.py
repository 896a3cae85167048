"""Streams and answers follow their settings: counts, chunks, reasoning, early ends, sums."""

from __future__ import annotations

from tests.simulator.harness import TEXT, Reply, run, serving


def test_usage_and_chunks_follow_their_settings() -> None:
    counting = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}

    def counts(reply: Reply) -> list[int]:
        return [chunk["usage"]["completion_tokens"] for chunk in reply.chunks if chunk.get("usage")]

    async def test() -> None:
        async with serving() as server:
            assert counts(await server.stream("hello", 4, **counting)) == [1, 2, 3, 4, 4]
        async with serving(usage="final") as server:
            assert counts(await server.stream("hello", 4, **counting)) == [4]
        async with serving(usage="none") as server:
            assert counts(await server.stream("hello", 4, **counting)) == []
        async with serving(tokens_per_chunk=3) as server:
            assert counts(await server.stream("hello", 8, **counting)) == [3, 6, 8, 8]
        async with serving(one_chunk=True) as server:
            assert counts(await server.stream("hello", 8, **counting)) == [8, 8]
        async with serving(output__usage_surplus_per_chunk=1) as server:
            assert counts(await server.stream("hello", 4, **counting)) == [2, 4, 6, 8, 8]
            assert (await server.sample()).counters["output_tokens"] == 4
        async with serving(prompt_tokens_factor=1.3) as server:
            plain = len(server.server.dialect.read(TEXT, {"prompt": "a b c d e f g h i j"}).ids)
            reply = await server.post(TEXT, {"prompt": "a b c d e f g h i j", "max_tokens": 2})
            assert reply.json["usage"]["prompt_tokens"] == round(1.3 * plain)

    run(test)


def test_reasoning_comes_first_in_its_field_or_is_hidden() -> None:
    async def test() -> None:
        for field in ("reasoning_content", "reasoning"):
            async with serving(output__reasoning_tokens=3, output__reasoning_field=field) as server:
                deltas = [c["choices"][0]["delta"] for c in (await server.stream("hello", 5)).chunks if c["choices"]]
            assert [next(iter(delta)) for delta in deltas] == ["role", field, field, field, "content", "content"]
        async with serving(output__reasoning_tokens=3, output__reasoning_field="hidden") as server:
            chunks = (await server.stream("hello", 5)).chunks
        assert len([c for c in chunks if c["choices"]]) == 1 + 2
        assert chunks[-1]["usage"]["completion_tokens_details"] == {"reasoning_tokens": 3}
        assert chunks[-1]["usage"]["completion_tokens"] == 5

    run(test)


def test_a_role_chunk_may_come_long_before_the_first_token() -> None:
    async def test() -> None:
        async with serving(time_factor=1.0, role_chunk_ms=1.0, overhead_ms=120.0) as server:
            reply = await server.stream("hello", 3)
        assert reply.chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        assert reply.arrivals[1] - reply.arrivals[0] > 0.08

    run(test)


def test_answers_stop_early_whatever_ignore_eos_says_where_it_is_ignored() -> None:
    async def test() -> None:
        early = {"output__stop_early_share": 1.0, "output__stop_early_factor": 0.5}
        async with serving(**early) as server:
            stopped = await server.stream("hello", 8)
            whole = await server.stream("hello", 8, ignore_eos=True)
        assert (
            stopped.chunks[-1]["usage"]["completion_tokens"],
            stopped.chunks[-2]["choices"][0]["finish_reason"],
        ) == (4, "stop")
        assert (whole.chunks[-1]["usage"]["completion_tokens"], whole.chunks[-2]["choices"][0]["finish_reason"]) == (
            8,
            "length",
        )
        async with serving(**early, output__ignores_ignore_eos=True) as server:
            reply = await server.stream("hello", 8, ignore_eos=True)
        assert reply.chunks[-1]["usage"]["completion_tokens"] == 4

    run(test)


def test_arithmetic_is_answered() -> None:
    async def test() -> None:
        for share, said in ((0.0, "42."), (1.0, "43.")):
            async with serving(output__corrupt_share=share) as server:
                reply = await server.stream("What is 12 + 30?", 16)
            assert reply.text.strip() == said

    run(test)
