"""Limits, cache and backends are read from logs that real servers wrote, whatever the release's punctuation."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lab.engines import _sglang_log, _vllm_log
from tests.engines import web

CAP4 = web.text("sglang_cap4.log")
STAMP = "[2026-11-30 21:02:52 DP1 TP0] "


def test_the_limit_in_force_is_seen_in_the_banner() -> None:
    log = _sglang_log.lines(CAP4)
    assert [banner.max_running_requests for banner in _sglang_log.banners(log)] == [4]


def test_ranks_of_data_parallelism_are_told_apart() -> None:
    log = _sglang_log.lines(web.text("sglang_dp2.log"))
    assert [(one.rank, one.max_running_requests) for one in _sglang_log.banners(log)] == [("DP1", 4), ("DP0", 4)]


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


@given(st.integers(0, len(CAP4)))
def test_a_line_that_is_being_written_is_left_for_later(end: int) -> None:
    complete = CAP4[: CAP4.rfind("\n", 0, end) + 1]
    assert _sglang_log.lines(CAP4[:end]) == _sglang_log.lines(complete)


def test_the_size_of_vllms_cache_and_its_room_are_read() -> None:
    (size,) = _vllm_log.kv_sizes(_vllm_log.lines(web.text("vllm_cap4.log")))
    assert (size.tokens, size.request_tokens, size.concurrency) == (65536, 1024, 64.0)


def test_colours_hide_no_line() -> None:
    line = "\x1b[0;36m(Worker pid=7)\x1b[0;0m \x1b[32mINFO\x1b[0m \x1b[90m12-01 16:32:42\x1b[0m [x.py:1] Hello\n"
    (found,) = _vllm_log.lines(line)
    assert (found.process, found.level, found.message) == ("Worker", "INFO", "Hello")


def test_a_moe_backend_does_not_pass_for_the_attention() -> None:
    log = _vllm_log.lines(web.text("vllm_mla.log"))
    assert _vllm_log.attention_backend(log) == ("CPU_MLA", "Using CPU_MLA backend.")
    assert _vllm_log.attention_backend([line for line in log if "CPU_MLA" not in line.message]) is None
    chosen = "Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN', 'FLASHINFER']"
    line = _vllm_log.Line("Worker", "INFO", "11-30 21:31:25", chosen)
    assert _vllm_log.attention_backend([line]) == ("FLASH_ATTN", chosen)
