"""What fits beside the weights."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.errors import InputError
from lab.roofline import Layout
from lab.roofline.capacity import capacity
from lab.roofline.hardware_catalogue import find
from lab.roofline.model_catalogue import find as find_model

SERVER = find("rtx_pro_6000_server")
QWEN, V4, GPT = find_model("Qwen3.5-397B-A17B", "NVFP4"), find_model("DeepSeek-V4-Flash"), find_model("gpt-oss-120b")
FP8 = {"kv_dtype_k": "fp8", "kv_dtype_v": "fp8"}
calm = settings(deadline=None, max_examples=40)


@pytest.mark.parametrize(("tp", "gb"), [(4, 28.95), (8, 58.58)])
def test_the_budget_of_qwen(tp: int, gb: float) -> None:
    held = capacity(QWEN, SERVER, Layout(tp=tp), 66_036, **FP8)
    assert held.budget_bytes / 1e9 == pytest.approx(gb, rel=0.005)


def test_tokens_and_sequences_of_qwen() -> None:
    held = capacity(QWEN, SERVER, Layout(tp=4), 66_036, **FP8)
    assert held.bytes_per_token == 7680
    assert held.kv_tokens == pytest.approx(3.77e6, rel=0.005)
    assert held.kv_tokens % 16 == 0
    assert held.max_batch == 52


def test_a_draft_layer_takes_weights_and_cache() -> None:
    plain, drafting = (capacity(QWEN, SERVER, Layout(tp=4), 66_036, speculation=on, **FP8) for on in (False, True))
    assert (drafting.weight_bytes - plain.weight_bytes) / 2**30 == pytest.approx(4.02, abs=0.005)
    assert drafting.bytes_per_token == 7680 * 16 / 15  # one full layer more
    assert drafting.max_batch < plain.max_batch
    without = capacity(find_model("Llama-3.1-8B"), SERVER, Layout(), 1000, speculation=True)
    assert without == capacity(find_model("Llama-3.1-8B"), SERVER, Layout(), 1000)


def test_a_cache_of_one_head_is_multiplied_by_groups_and_not_by_ranks() -> None:
    # vllm-project/vllm issue 51454: 7.7 times the cache on 8 B200
    gpu = find("b200_sxm")
    ranks, groups = (capacity(V4, gpu, layout, 100_000) for layout in (Layout(tp=8), Layout(dp=8, ep=8)))
    assert groups.kv_tokens / ranks.kv_tokens == pytest.approx(7.7, abs=0.2)
    assert groups.max_batch / ranks.max_batch == pytest.approx(7.7, abs=0.2)


def test_a_shared_prefix_is_stored_once() -> None:
    alone, shared = (
        capacity(QWEN, SERVER, Layout(tp=4), 66_036, shared_prefix=prefix, **FP8) for prefix in (0, 65_536)
    )
    each = 500 * 7680 + 48_015_360
    assert shared.max_batch == int((alone.budget_bytes - 65_536 * 7680) // each)


def test_a_window_fills_up_and_grows_no_more() -> None:
    held = capacity(GPT, SERVER, Layout(), 100_000)
    assert held.bytes_per_token == 36_864
    assert held.max_batch == int(held.budget_bytes // (100_000 * 36_864 + 128 * 36_864))


def test_a_fraction_of_what_is_free_is_another_budget() -> None:
    total, free = (capacity(GPT, SERVER, Layout(), 1000, of_free_memory=on) for on in (False, True))
    reserved = 3.5 * 2**30 + total.weight_bytes
    assert total.budget_bytes == pytest.approx(0.9 * SERVER.memory_bytes - reserved)
    assert free.budget_bytes == pytest.approx(0.9 * (SERVER.memory_bytes - reserved))


def test_no_memory_and_none_left_are_refused() -> None:
    with pytest.raises(InputError, match="how much memory it has is not known"):
        capacity(GPT, replace(SERVER, memory_bytes=None), Layout(), 1000)
    with pytest.raises(
        InputError,
        match=r"leaves no cache .*: 0\.5 of its 102\.6 GB, less 65\.2 of weights and 3\.8 of buffers, is -17\.6 GB",
    ):
        capacity(GPT, SERVER, Layout(), 1000, memory_fraction=0.5)


@calm
@given(st.sampled_from([QWEN, V4]), st.floats(1, 2e5), st.floats(1, 4))
def test_longer_contexts_hold_fewer_sequences(model: object, context: float, factor: float) -> None:
    short, long = (capacity(model, SERVER, Layout(tp=4), length) for length in (context, context * factor))  # type: ignore[arg-type]
    assert long.max_batch <= short.max_batch
    assert long.kv_tokens == short.kv_tokens


def test_a_context_shared_as_a_whole_sets_no_limit() -> None:
    held = capacity(GPT, SERVER, Layout(), 1000, shared_prefix=1000)
    assert held.max_batch is None
    assert held.kv_tokens == capacity(GPT, SERVER, Layout(), 1000).kv_tokens
    almost = capacity(GPT, SERVER, Layout(), 1000, shared_prefix=999)
    assert almost.max_batch is not None and almost.max_batch > 0


def test_a_shared_prefix_must_fit_itself() -> None:
    held = capacity(GPT, SERVER, Layout(), 1e9, shared_prefix=1e9)
    assert held.max_batch == 0


def test_a_state_limits_the_batch_though_the_context_is_shared() -> None:
    held = capacity(QWEN, SERVER, Layout(tp=4), 1000, shared_prefix=1000, **FP8)
    assert held.max_batch == int((held.budget_bytes - 1000 * 7680) // held.fixed_bytes)


@pytest.mark.parametrize(("context", "shared"), [(1000, 1001), (float("nan"), 0), (1000, -1)])
def test_a_prefix_is_a_part_of_the_context(context: float, shared: float) -> None:
    with pytest.raises(InputError, match=r"^(shared_prefix|context) is"):
        capacity(GPT, SERVER, Layout(), context, shared_prefix=shared)
