"""The bound must be the arithmetic of its page, and move the way physics does."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.errors import InputError, LabError
from lab.roofline import Hardware, Layout, Model, bound

MACHINE = Hardware("bench", memory_bandwidth_bytes_s=20e9, source="hand-made")
ONE = Layout()
SMOLLM2 = Model(
    name="SmolLM2-135M-Instruct",
    architecture="llama",
    format="Q4_1",
    layers=30,
    heads=9,
    kv_heads=3,
    head_dim_k=64,
    head_dim_v=64,
    vocab=49152,
    n_experts=0,
    context_length=8192,
    params=134_515_008,
    weight_bytes=96_576_768,
    weight_bytes_per_step=96_576_768,
)

batches = st.floats(0.1, 512)
contexts = st.floats(0, 100_000)
calm = settings(deadline=None)  # a busy machine is no defect
kv_types = st.sampled_from(["f32", "f16", "q8_0", "q4_0"])


def test_a_step_is_worked_by_hand():
    # weights 96,576,768 B; kv 4 x 80 x 23,040 = 7,372,800 B; together 103,949,568 B at 20e9 B/s
    limit = bound(SMOLLM2, MACHINE, ONE, 4, 80)
    assert limit.components_ms == pytest.approx({"weights": 4.8288384, "kv": 0.36864})
    assert limit.step_ms == pytest.approx(5.1974784)
    assert limit.bound_tok_s == pytest.approx(769.6039, abs=1e-4)
    assert limit.limited_by == "weights"


def test_a_long_context_is_limited_by_the_cache():
    # 8,192 cells of f16: 188,743,680 B, more than the weights; q4_0 takes 18/64 of that
    assert bound(SMOLLM2, MACHINE, ONE, 1, 8192).limited_by == "kv"
    quantised = bound(SMOLLM2, MACHINE, ONE, 1, 8192, kv_dtype_k="q4_0", kv_dtype_v="q4_0")
    assert quantised.components_ms["kv"] == pytest.approx(188_743_680 * 18 / 64 / 20e9 * 1e3)
    assert quantised.limited_by == "weights"


def test_a_dense_8b_on_a_gpu_is_worked_by_hand():
    # Llama-3.1-8B in BF16 reads 15.01 GB a step; 32 layers x 8 heads x 128 x 2 x 2 B = 131,072 B a token
    llama = dataclasses.replace(SMOLLM2, layers=32, kv_heads=8, head_dim_k=128, head_dim_v=128)
    llama = dataclasses.replace(llama, weight_bytes_per_step=15_010_000_000)
    gpu = Hardware("rtx_pro_6000_server", 1597e9, source="data sheet")
    assert bound(llama, gpu, ONE, 1, 0).bound_tok_s == pytest.approx(106.396, abs=1e-3)
    assert llama.kv_bytes_per_token() == 131_072
    assert bound(llama, gpu, ONE, 16, 4096).step_ms == pytest.approx((15.01 + 8.589934592) / 1.597, rel=1e-9)


@calm
@given(batches, contexts, kv_types, kv_types)
def test_tokens_per_second_is_tokens_per_step_over_step_time(batch, context, k, v):
    limit = bound(SMOLLM2, MACHINE, ONE, batch, context, kv_dtype_k=k, kv_dtype_v=v)
    assert limit.bound_tok_s == pytest.approx(batch / limit.step_ms * 1e3)
    assert limit.step_ms == pytest.approx(sum(limit.components_ms.values()))


@calm
@given(batches, contexts, st.floats(1.01, 10))
def test_more_sequences_give_more_in_all_and_less_for_each(batch, context, factor):
    few = bound(SMOLLM2, MACHINE, ONE, batch, context + 1)
    many = bound(SMOLLM2, MACHINE, ONE, batch * factor, context + 1)
    assert many.bound_tok_s > few.bound_tok_s
    assert many.bound_tok_s / many.batch < few.bound_tok_s / few.batch


@calm
@given(batches, contexts, st.floats(1, 1000))
def test_more_context_is_slower_and_a_smaller_cache_type_faster(batch, context, more):
    near = bound(SMOLLM2, MACHINE, ONE, batch, context + more)
    assert bound(SMOLLM2, MACHINE, ONE, batch, context).bound_tok_s > near.bound_tok_s
    small = bound(SMOLLM2, MACHINE, ONE, batch, context + more, kv_dtype_k="q8_0", kv_dtype_v="q8_0")
    assert small.bound_tok_s > near.bound_tok_s


@calm
@given(batches, contexts, st.floats(1, 8))
def test_accepted_drafts_and_bandwidth_scale_the_bound(batch, context, factor):
    plain = bound(SMOLLM2, MACHINE, ONE, batch, context)
    drafted = bound(SMOLLM2, MACHINE, ONE, batch, context, tokens_per_step=factor)
    wider = dataclasses.replace(MACHINE, memory_bandwidth_bytes_s=20e9 * factor)
    assert drafted.bound_tok_s == pytest.approx(factor * plain.bound_tok_s)
    assert drafted.step_ms == plain.step_ms
    assert bound(SMOLLM2, wider, ONE, batch, context).bound_tok_s == pytest.approx(factor * plain.bound_tok_s)


def test_a_cache_lifts_the_hard_bound_by_what_it_can_hold():
    cached = dataclasses.replace(MACHINE, cache_bytes=32 << 20)
    limit = bound(SMOLLM2, cached, ONE, 1, 0)
    assert limit.bound_tok_s == bound(SMOLLM2, MACHINE, ONE, 1, 0).bound_tok_s
    assert limit.bound_hard_tok_s == pytest.approx(20e9 / (96_576_768 - 33_554_432))


@pytest.mark.parametrize("cache_bytes", [None, 96_576_768, 384 << 20])
def test_no_hard_bound_is_claimed_where_memory_may_not_be_the_limit(cache_bytes):
    machine = dataclasses.replace(MACHINE, cache_bytes=cache_bytes)
    assert bound(SMOLLM2, machine, ONE, 1, 0).bound_hard_tok_s is None


@pytest.mark.parametrize(
    ("batch", "context", "tokens_per_step", "name"),
    [
        (0, 10, 1, "batch"),
        (-1, 10, 1, "batch"),
        (float("nan"), 10, 1, "batch"),
        (float("inf"), 10, 1, "batch"),
        (1, -1, 1, "context"),
        (1, float("nan"), 1, "context"),
        (1, 10, 0.9, "tokens_per_step"),
    ],
)
def test_an_impossible_step_is_refused_by_name(batch, context, tokens_per_step, name):
    with pytest.raises(InputError, match=f"^{name} is"):
        bound(SMOLLM2, MACHINE, ONE, batch, context, tokens_per_step=tokens_per_step)


@pytest.mark.parametrize("layout", [Layout(tp=2), Layout(ep=4), Layout(dp=2), Layout(pp=2)])
def test_several_devices_are_not_modelled_and_say_so(layout):
    with pytest.raises(LabError, match="only one device"):
        bound(SMOLLM2, MACHINE, layout, 1, 10)


def test_no_bound_is_made_up_for_an_architecture_that_is_not_modelled():
    experts = dataclasses.replace(SMOLLM2, n_experts=8, not_modelled="mixture of experts: not modelled yet")
    with pytest.raises(LabError, match="mixture of experts"):
        bound(experts, MACHINE, ONE, 1, 10)
