"""Each dialect has the shapes of the real engine: metric families, answers, streams, log lines.

The fixtures are captures of real servers; where the folder of samples is at hand they are made again and compared.
"""

from __future__ import annotations

import asyncio
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lab.engines import _llamacpp_log, _sglang_log, _vllm_log
from lab.observe import log_lines
from tests.simulator.harness import CHAT, SPEC, TEXT, Running, run, serving
from tests.simulator.make_fixtures import FIXTURES, shapes
from tests.simulator.shapes import families, paths

SAMPLES = Path(__file__).parents[2].parent / "shared" / "samples"
DIALECTS = ("vllm", "sglang", "llamacpp")
RARE = {"sglang:num_aborted_requests_total", "sglang:num_retracted_requests_total", "sglang:spec_verify_calls_total"}
KNOWN: dict[str, Any] = json.loads((FIXTURES / "shapes.json").read_text())


def fixture_stream(name: str) -> list[dict[str, Any]]:
    text = (FIXTURES / name).read_text()
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


@pytest.mark.skipif(not SAMPLES.exists(), reason="the folder of captures is not beside the project")
def test_the_fixtures_are_those_of_the_captures() -> None:
    assert shapes(SAMPLES) == KNOWN


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_metric_family_is_one_of_the_engine(dialect: str) -> None:
    async def test() -> None:
        async with serving(dialect=dialect, prefix_cache=True, **SPEC) as server:
            await asyncio.gather(*(server.stream(f"question {n}", 24) for n in range(4)))
            page = (await server.get("/metrics")).body.decode()
        known = KNOWN[f"{dialect}_metrics"]
        found = families(page)
        assert len(found) >= 16
        for name, family in found.items():
            if name in RARE:
                continue
            assert family["type"] == known[name]["type"], name
            assert family["help"] == known[name]["help"], name
            if name == "vllm:cache_config_info":
                assert set(family["labels"][0]) <= set(known[name]["labels"][0])
                continue
            assert all(labels in known[name]["labels"] for labels in family["labels"]), (name, family["labels"])

    run(test)


@pytest.mark.parametrize(
    ("dialect", "path", "name"),
    [
        ("vllm", "/server_info?config_format=json", "vllm_server_info"),
        ("vllm", "/v1/models", "vllm_models"),
        ("sglang", "/server_info", "sglang_server_info"),
        ("sglang", "/get_server_info", "sglang_server_info"),
        ("sglang", "/v1/loads", "sglang_loads"),
        ("llamacpp", "/slots", "llamacpp_slots"),
        ("llamacpp", "/props", "llamacpp_props"),
        ("llamacpp", "/v1/models", "llamacpp_models"),
    ],
)
def test_answers_have_only_keys_of_the_engine(dialect: str, path: str, name: str) -> None:
    async def test() -> None:
        async with serving(dialect=dialect) as server:
            busy = asyncio.create_task(server.stream("hello", 200))
            await asyncio.sleep(0.05)
            found = paths((await server.get(path)).json)
            busy.cancel()
        known = set(KNOWN[name])
        unknown = {one for one in found if one not in known and one.removeprefix(".internal_states[]") not in known}
        assert not {one for one in unknown if not one.startswith(".vllm_env.")}

    run(test)


@pytest.mark.parametrize(
    ("dialect", "path", "name", "fields"),
    [
        ("vllm", CHAT, "vllm_chat.txt", {}),
        (
            "vllm",
            TEXT,
            "vllm_completions.txt",
            {"stream_options": {"continuous_usage_stats": True, "include_usage": True}},
        ),
        ("llamacpp", CHAT, "llamacpp_chat.txt", {"timings_per_token": True}),
        ("llamacpp", TEXT, "llamacpp_completions.txt", {}),
        ("llamacpp", "/completion", "llamacpp_native.txt", {"n_predict": 6}),
    ],
)
def test_stream_chunks_have_the_keys_of_the_captured_ones(
    dialect: str, path: str, name: str, fields: dict[str, Any]
) -> None:
    async def test() -> None:
        async with serving(dialect=dialect) as server:
            reply = await server.stream("hello", 6, path, **fields)
        captured = fixture_stream(name)
        first, middle, last = (paths(one) for one in (captured[0], captured[2], captured[-1]))
        chunks = reply.chunks
        assert paths(chunks[0]) == first
        assert paths(chunks[2]) == middle
        own = paths(chunks[-1])
        assert {one for one in last - own if not one.startswith(".generation_settings")} == set()
        assert own <= last
        assert (reply.events[-1] == "[DONE]") == (path != "/completion")

    run(test)


def test_the_error_event_of_a_dead_engine_is_vllms() -> None:
    async def test() -> None:
        async with serving(faults__error_event_every=1) as server:
            reply = await server.stream("hello", 12)
        captured = fixture_stream("vllm_dead_engine.txt")[0]
        assert reply.chunks[-1] == captured
        assert reply.status == 200 and reply.events[-1] == "[DONE]"
        assert len([one for one in reply.chunks if one.get("choices")]) == 1 + 4

    run(test)


def test_sglangs_own_api_repeats_the_text_and_tells_its_times() -> None:
    async def test() -> None:
        async with serving(dialect="sglang", **SPEC) as server:
            body = {"text": "hello", "sampling_params": {"max_new_tokens": 12, "ignore_eos": True}, "stream": True}
            chunks = (await server.post("/generate", body)).chunks
        texts = [chunk["text"] for chunk in chunks]
        assert all(later.startswith(earlier) for earlier, later in pairwise(texts))
        counts = [chunk["meta_info"]["completion_tokens"] for chunk in chunks]
        assert counts == sorted(counts) and counts[-1] == 12 == len(chunks[-1]["output_ids"])
        meta = chunks[-1]["meta_info"]
        assert meta["finish_reason"] == {"type": "length", "length": 12}
        assert meta["request_received_ts"] <= meta["forward_entry_time"] < meta["request_finished_ts"]
        assert meta["spec_accept_length"] == pytest.approx(1 + meta["spec_num_correct_drafts"] / meta["spec_verify_ct"])

    run(test)


async def _loaded(server: Running, clients: int = 4) -> None:
    await asyncio.gather(*(server.stream(f"question {n}", 600) for n in range(clients)))


def test_vllms_log_is_read_by_the_labs_grammar() -> None:
    async def test() -> None:
        async with serving(
            time_factor=50.0,
            step_ms=60.0,
            kv_tokens=65536,
            context_tokens=1024,
            compile_at_s=2.0,
            compile_s=0.1,
            **SPEC,
        ) as server:
            await _loaded(server)
            text = "\n".join(server.log) + "\n"
        parsed = _vllm_log.lines(text)
        sizes = _vllm_log.kv_sizes(parsed)
        assert [(one.tokens, one.request_tokens, one.concurrency) for one in sizes] == [(65536, 1024, 64.0)]
        assert max(map(int, re.findall(r"Running: (\d+) reqs", text))) == 4
        assert _vllm_log.attention_backend(parsed)[0] == "FLASH_ATTN"
        assert "Mean acceptance length: 2.3" in text
        assert [
            one["kind"]
            for one in log_lines.events(server.log[server.log.index("INFO:     Application startup complete.") :])
        ] == ["compile"]

    run(test)


def test_sglangs_log_is_read_by_the_labs_grammar() -> None:
    async def test() -> None:
        flags = {
            "ranks": 2,
            "kv_tokens": 16384,
            "speculation__running_limit": 48,
            "compile_at_s": 1.0,
            "compile_s": 0.1,
        }
        async with serving(dialect="sglang", time_factor=50.0, **flags, **SPEC) as server:
            await _loaded(server)
            log = list(server.log)
        parsed = _sglang_log.lines("\n".join(log) + "\n")
        banners = _sglang_log.banners(parsed)
        assert [(one.rank, one.max_running_requests, one.max_total_num_tokens) for one in banners] == [
            ("DP0", 48, 16384),
            ("DP1", 48, 16384),
        ]
        cache = _sglang_log.kv_cache(parsed)
        assert cache is not None and (cache.dtype, cache.tokens) == ("bfloat16", 16384)
        assert _sglang_log.reset_limit(parsed)[0] == 48
        decode = [line for line in log if "Decode batch" in line]
        assert max(int(re.search(r"#running-req: (\d+)", line)[1]) for line in decode) == 2
        assert float(re.search(r"accept len: ([\d.]+)", decode[-1])[1]) == pytest.approx(2.3, abs=0.15)
        assert "cuda graph: True" in decode[-1]
        ready = next(i for i, line in enumerate(log) if "ready to roll" in line)
        assert [one["kind"] for one in log_lines.events(log[ready:])] == ["capture"]

    run(test)


def test_llamacpps_log_is_read_by_the_labs_grammar() -> None:
    async def test() -> None:
        flags = {"max_running": 4, "kv_tokens": 8192, "kv_dtype": "q8_0", "speculation__method": "ngram_simple"}
        async with serving(dialect="llamacpp", **flags, **SPEC) as server:
            await server.stream("hello", 40)
            text = "\n".join(server.log) + "\n"
        parsed = _llamacpp_log.lines(text)
        cache = _llamacpp_log.kv_cache(parsed)
        assert cache is not None and (cache.dtype_k, cache.tokens) == ("q8_0", 8192)
        assert _llamacpp_log.speculative_types(parsed)[0] == ["ngram_simple"]
        assert _llamacpp_log.graphs_reused(parsed)[0] > 0
        assert _llamacpp_log.flash_attention(parsed)[0] is True
        assert re.search(r"draft acceptance = 0\.\d+ \( +\d+ accepted", text)
        assert re.search(r"eval time = +[\d.]+ ms / +40 tokens", text)

    run(test)


@pytest.mark.parametrize(
    ("dialect", "path", "body", "status", "words"),
    [
        ("vllm", CHAT, {"model": "nope", "messages": []}, 404, "does not exist"),
        ("vllm", CHAT, {"messages": [], "max_tokens": 9000}, 400, "max_tokens=9000 cannot be greater than"),
        ("vllm", TEXT, {"max_tokens": 3}, 400, "prompt"),
        ("sglang", CHAT, {"messages": []}, 400, "Messages cannot be empty"),
        ("sglang", TEXT, {"prompt": "word " * 9000}, 400, "longer than the model's context length (8192 tokens)"),
        ("llamacpp", CHAT, {"model": "x"}, 400, "'messages' is required"),
        ("llamacpp", "/completion", {"n_predict": 2}, 400, "key 'prompt' not found"),
        ("llamacpp", TEXT, {"prompt": "word " * 9000}, 400, "exceeds the available context size (4096 tokens), try"),
        ("llamacpp", "/nope", {}, 404, "File Not Found"),
        ("vllm", "/nope", {}, 404, "Not Found"),
    ],
)
def test_refusals_are_the_engines(dialect: str, path: str, body: dict[str, Any], status: int, words: str) -> None:
    async def test() -> None:
        async with serving(dialect=dialect) as server:
            reply = await server.post(path, body)
        assert reply.status == status
        assert words in reply.body.decode()

    run(test)


@pytest.mark.parametrize(
    ("dialect", "field", "back"),
    [("vllm", "prompt", "prompt"), ("sglang", "prompt", "text"), ("llamacpp", "content", "content")],
)
def test_the_tokenizer_endpoints_agree_with_usage(dialect: str, field: str, back: str) -> None:
    text = "How many tokens are there in this sentence, and who counts them?"

    async def test() -> None:
        async with serving(dialect=dialect) as server:
            ids = (await server.post("/tokenize", {field: text})).json["tokens"]
            assert (await server.post("/detokenize", {"tokens": ids})).json[back] == text
            reply = await server.post(TEXT, {"prompt": text, "max_tokens": 5, "ignore_eos": True})
            assert reply.json["usage"]["prompt_tokens"] == len(ids)
            said = reply.json["choices"][0]["text"]
            assert len((await server.post("/tokenize", {field: said})).json["tokens"]) == 5

    run(test)
