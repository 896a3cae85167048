"""Limits, cache and batches are read from logs that real servers wrote, whatever the release's punctuation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.engines import _sglang_log, _vllm_log
from tests.engines import web

CAP4 = web.text("sglang_cap4.log")
STAMP = "[2026-11-30 21:02:52 DP1 TP0] "


def batch(line: str) -> _sglang_log.Batch:
    return _sglang_log.batches(_sglang_log.lines(line + "\n"))[0]


def test_a_limit_of_four_with_sixteen_clients_is_seen_in_banner_and_batches() -> None:
    log = _sglang_log.lines(CAP4)
    assert [banner.max_running_requests for banner in _sglang_log.banners(log)] == [4]
    decode = [one.values for one in _sglang_log.batches(log) if one.kind == "decode"]
    assert max(values["#running-req"] for values in decode) == 4
    assert max(values["#queue-req"] for values in decode) == 12


def test_lines_of_a_drained_batch_are_left_out() -> None:
    assert CAP4.count("#token: 0,") == 3
    rates = [one.values.get("gen throughput (token/s)", 0.0) for one in _sglang_log.batches(_sglang_log.lines(CAP4))]
    assert max(rates) < 10


def test_ranks_of_data_parallelism_are_told_apart() -> None:
    log = _sglang_log.lines(web.text("sglang_dp2.log"))
    assert [(one.rank, one.max_running_requests) for one in _sglang_log.banners(log)] == [("DP1", 4), ("DP0", 4)]
    assert {_sglang_log.data_parallel_rank(one.ranks) for one in _sglang_log.batches(log)} == {"DP0", "DP1"}


def test_the_cache_type_is_the_allocated_one() -> None:
    cache = _sglang_log.kv_cache(_sglang_log.lines(CAP4))
    assert cache is not None
    assert (cache.dtype, cache.tokens) == ("bfloat16", 32768)
    older = (
        f"{STAMP}Using KV cache dtype: torch.float8_e4m3fn\n{STAMP}KV Cache is allocated. #tokens: 99, K size: 1 GB\n"
    )
    cache = _sglang_log.kv_cache(_sglang_log.lines(older))
    assert cache is not None
    assert (cache.dtype, cache.tokens) == ("float8_e4m3fn", 99)
    draft = f"{CAP4}{STAMP}KV Cache is allocated. dtype: torch.float16, #tokens: 7, K size: 0.00 GB\n"
    assert _sglang_log.kv_cache(_sglang_log.lines(draft)) == _sglang_log.kv_cache(_sglang_log.lines(CAP4))


def test_a_reset_limit_is_quoted() -> None:
    reset = _sglang_log.reset_limit(_sglang_log.lines(web.text("sglang_reset48.log")))
    assert reset is not None
    assert reset[0] == 48
    assert reset[1].startswith("Max running requests is reset to 48 for speculative decoding.")
    assert _sglang_log.reset_limit(_sglang_log.lines(CAP4)) is None


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "[21:02:52] Decode batch. #running-req: 3, #token: 5, token usage: 0.10, #queue-req: 1",
            {"#running-req": 3, "#token": 5, "token usage": 0.1, "#queue-req": 1},
        ),
        (
            f"(raylet, ip=1) {STAMP}Decode batch [12], #running-req: 3, #full token: 9, cuda graph: True,",
            {"#running-req": 3, "#full token": 9, "cuda graph": True},
        ),
        (
            f"\x1b[32m{STAMP}Prefill batch(mixed #running-req: 2). #new-seq: 1, cache hit rate: 10.5%\x1b[0m",
            {"#new-seq": 1, "cache hit rate": 10.5},
        ),
        (f"{STAMP}Decode batch, accept len: 2.50, est. read BW (GB/s per GPU): 3, x: y", {"accept len": 2.5, "x": "y"}),
    ],
)
def test_batches_of_every_release_are_read_by_their_keys(line: str, expected: dict[str, object]) -> None:
    assert batch(line).values.items() >= expected.items()


@given(st.integers(0, len(CAP4)))
def test_a_line_that_is_being_written_is_left_for_later(end: int) -> None:
    complete = CAP4[: CAP4.rfind("\n", 0, end) + 1]
    assert _sglang_log.lines(CAP4[:end]) == _sglang_log.lines(complete)


def test_the_size_of_vllms_cache_and_its_room_are_read() -> None:
    (size,) = _vllm_log.kv_sizes(_vllm_log.lines(web.text("vllm_cap4.log")))
    assert (size.tokens, size.request_tokens, size.concurrency) == (65536, 1024, 64.0)


def test_vllms_statistics_are_read_with_and_without_their_optional_parts() -> None:
    busy, idle = _vllm_log.throughputs(_vllm_log.lines(web.text("vllm_cap4.log")))
    assert (busy.running, busy.waiting, busy.prefix_hit_share) == (4, 8, 0.0)
    assert (busy.prompt_tok_s, busy.generation_tok_s, busy.kv_usage) == (154.8, 126.6, pytest.approx(0.008))
    assert (idle.running, idle.waiting) == (0, 0)
    plain = _vllm_log.throughputs(_vllm_log.lines(web.text("vllm_mla.log")))
    assert [one.running for one in plain] == [1, 8, 8]
    assert {one.prefix_hit_share for one in plain} == {None}
    full = web.text("vllm_cap4.log").replace(
        "CPU KV cache usage: 0.8%", "Deferred: 2 reqs, GPU KV cache usage: 91.5%, External prefix cache hit rate: 7.0%"
    )
    assert _vllm_log.throughputs(_vllm_log.lines(full))[0].kv_usage == pytest.approx(0.915)
    assert _vllm_log.throughputs(_vllm_log.lines(full))[0].prefix_hit_share == 0.0


def test_a_moe_backend_does_not_pass_for_the_attention() -> None:
    log = _vllm_log.lines(web.text("vllm_mla.log"))
    assert _vllm_log.attention_backend(log) == ("CPU_MLA", "Using CPU_MLA backend.")
    assert _vllm_log.attention_backend([line for line in log if "CPU_MLA" not in line.message]) is None
    chosen = "Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN', 'FLASHINFER']"
    line = _vllm_log.Line("Worker", "INFO", "11-30 21:31:25", chosen)
    assert _vllm_log.attention_backend([line]) == ("FLASH_ATTN", chosen)
