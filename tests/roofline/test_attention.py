"""Cache and state must be the bytes that each rank really holds and reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.roofline.attention import Attention, Compressed, Heads, Latent, Recurrent
from lab.roofline.kv_types import ElementBytes
from lab.roofline.model_catalogue import find

BF16, FP8 = ElementBytes(2, 2, 4), ElementBytes(1, 1, 4)
V4 = find("DeepSeek-V4-Flash").attention[0]
V3, V32 = (find(name).attention[0] for name in ("DeepSeek-V3", "DeepSeek-V3.2"))
KINDS = [
    find("Llama-3.1-8B").attention[0],
    *find("gpt-oss-120b").attention,
    V3,
    V32,
    V4,
    find("Qwen3.5-397B-A17B").attention[1],
]
calm = settings(deadline=None, max_examples=40)


def each_token(name: str, tp: int, of: ElementBytes) -> float:
    return sum(kind.growth_bytes(tp, of) for kind in find(name).attention)


@pytest.mark.parametrize(("tp", "size"), [(1, 131_072), (8, 16_384), (16, 16_384)])
def test_heads_are_replicated_beyond_their_number(tp: int, size: int) -> None:
    assert each_token("Llama-3.1-8B", tp, BF16) == size


@pytest.mark.parametrize(("tp", "size"), [(1, 30_720), (2, 15_360), (4, 15_360), (8, 15_360)])
def test_two_kv_heads_do_not_shrink_on_more_than_two_ranks(tp: int, size: int) -> None:
    assert each_token("Qwen3.5-397B-A17B", tp, BF16) == size


@pytest.mark.parametrize(("tp", "size"), [(1, 192_061_440), (8, 24_007_680)])
def test_a_recurrent_state_is_shared_out_and_moved_twice(tp: int, size: int) -> None:
    (state,) = (kind for kind in find("Qwen3.5-397B-A17B").attention if isinstance(kind, Recurrent))
    assert state.fixed_bytes(tp, BF16) == size
    assert state.moved_state_bytes(tp, BF16) == 2 * size
    assert state.read_bytes(1000.0, tp, BF16) == 0 and state.growth_bytes(tp, BF16) == 0


@pytest.mark.parametrize("tp", [1, 8])
def test_a_latent_is_whole_on_every_rank(tp: int) -> None:
    assert V3.growth_bytes(tp, BF16) == 70_272
    assert V32.growth_bytes(tp, FP8) == 43_188


def test_an_indexer_reads_all_its_keys_and_few_latents() -> None:
    # 61 layers x (2,048 latents of 576 + 132 bytes of index key for each of 10,000 tokens)
    assert V32.read_bytes(10_000.0, 8, FP8) == 61 * (2048 * 576 + 132 * 10_000)
    assert V32.stored_bytes(10_000.0, 8, FP8) == 43_188 * 10_000


@pytest.mark.parametrize(("length", "size", "rel"), [(1000, 5_901_632, 0), (65_536, 35.57e6, 0.005)])
def test_deepseek_v4_reads_window_and_compressed_entries(length: int, size: float, rel: float) -> None:
    assert V4.read_bytes(float(length), 4, FP8) == pytest.approx(size, rel=rel)


def test_deepseek_v4_keeps_a_compressor_state() -> None:
    assert V4.fixed_bytes(4, FP8) == pytest.approx(11.3e6, rel=0.005)
    assert V4.growth_bytes(4, BF16) - 21 / 4 * 64 == 2768 * 2  # entries alone; index keys are 64 bytes in 21 layers


def test_windows_end_at_their_width() -> None:
    kinds = find("gpt-oss-120b").attention
    assert sum(kind.read_bytes(1536.0, 1, BF16) for kind in kinds) == 61_341_696
    assert each_token("gpt-oss-120b", 1, BF16) == 36_864


@pytest.mark.parametrize(
    ("name", "elements"),
    [
        *(("DeepSeek-V3", 35_136), ("GLM-5", 44_928), ("Kimi-K2-Instruct", 35_136), ("DeepSeek-V4-Pro", 3964)),
        *(("Qwen3-235B-A22B", 96_256), ("GLM-4.5", 188_416), ("MiniMax-M2.5", 126_976), ("Mixtral-8x7B", 65_536)),
    ],
)
def test_the_cache_of_the_catalogue_grows_as_published(name: str, elements: int) -> None:
    kinds = find(name).attention
    index = sum(kind.growth_bytes(1, ElementBytes(0, 0, 0)) for kind in kinds)
    assert each_token(name, 1, BF16) - index == 2 * elements


@pytest.mark.parametrize(
    ("kind", "flops"),
    [
        (Heads(3, 8, 2, 64, 64), 4 * 3 * 8 * 64 * 1000),
        (Heads(3, 8, 2, 64, 64, window=100), 4 * 3 * 8 * 64 * 100),
        (Latent(2, 16, 576, 512, 192, 128), 2 * 2 * 16 * (576 + 512) * 1000),
    ],
)
def test_arithmetic_against_the_cache(kind: Attention, flops: float) -> None:
    assert kind.flops(1000.0, 1) == flops
    assert kind.flops(1000.0, 2) == flops / 2


def test_a_prompt_meets_half_of_itself() -> None:
    assert Heads(15, 32, 2, 256, 256).prefill_flops(8192.0, 1) == 2 * 8192**2 * 32 * 256 * 15
    assert Latent(61, 128, 576, 512, 192, 128).prefill_flops(100.0, 1) == 100 * 50 * 2 * 61 * 128 * (192 + 128)


@pytest.mark.parametrize(
    ("kind", "tp", "why"),
    [
        (Heads(1, 9, 3, 64, 64), 2, "9 attention heads do not divide into 2"),
        (Heads(1, 12, 3, 64, 64), 2, "3 KV heads neither divide into 2 nor replicate over it"),
        (Latent(1, 16, 576, 512, 192, 128), 32, "16 attention heads do not divide into 32"),
        (Compressed(1, 64, 512, 128, 0, 0, 128, 512), 3, "64 attention heads do not divide into 3"),
        (Recurrent(1, 16, 64, 128, 128, 4), 32, "16 linear-attention key heads do not divide into 32"),
    ],
)
def test_heads_that_cannot_be_split_say_why(kind: Attention, tp: int, why: str) -> None:
    assert kind.refusal(tp) == why
    assert kind.refusal(1) is None


@calm
@given(st.sampled_from(KINDS), st.sampled_from([1, 2, 4, 8]), st.lists(st.floats(0, 2e5), min_size=2, max_size=5))
def test_arrays_are_read_as_their_numbers_and_longer_is_never_less(kind: Attention, tp: int, lengths: Any) -> None:
    lengths = sorted(lengths)
    for method in ("read_bytes", "stored_bytes"):
        together = getattr(kind, method)(np.array(lengths), tp, FP8)
        single = [float(getattr(kind, method)(length, tp, FP8)) for length in lengths]
        assert np.allclose(together, single, rtol=1e-12)
        assert np.all(np.diff(together) >= 0)
    assert np.allclose(kind.flops(np.array(lengths), tp), [kind.flops(length, tp) for length in lengths])
