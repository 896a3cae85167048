"""The bound must be the arithmetic of its page, and move the way physics does."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.errors import InputError, LabError
from lab.roofline import Hardware, Layout, Model, bound
from lab.roofline.hardware_catalogue import find as find_hardware
from lab.roofline.model_catalogue import find

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
        (np.array([4.0, 0.0]), 10, 1, "batch"),
        (1, np.array([4.0, -1.0]), 1, "context"),
    ],
)
def test_an_impossible_step_is_refused_by_name(batch, context, tokens_per_step, name):
    with pytest.raises(InputError, match=f"^{name} is"):
        bound(SMOLLM2, MACHINE, ONE, batch, context, tokens_per_step=tokens_per_step)


def test_several_devices_need_a_link_that_is_known():
    llama = find("Llama-3.1-8B")
    assert bound(llama, MACHINE, Layout(dp=2), 2, 10).bound_tok_s == pytest.approx(
        2 * bound(llama, MACHINE, ONE, 1, 10).bound_tok_s
    )
    for layout in (Layout(tp=2), Layout(pp=2)):
        with pytest.raises(LabError, match="how they are linked is not known"):
            bound(llama, MACHINE, layout, 1, 10)
    narrow = dataclasses.replace(SMOLLM2, heads=8, kv_heads=8)
    with pytest.raises(LabError, match="the width of its activations is not known"):
        bound(narrow, MACHINE, Layout(tp=2), 1, 10)


def test_no_bound_is_made_up_for_an_architecture_that_is_not_modelled():
    experts = dataclasses.replace(SMOLLM2, n_experts=8, not_modelled="mixture of experts: not modelled yet")
    with pytest.raises(LabError, match="mixture of experts"):
        bound(experts, MACHINE, ONE, 1, 10)


KINDS = [("Llama-3.1-8B", None), ("DeepSeek-V4-Flash", None), ("DeepSeek-V3.2", None), ("Qwen3.5-397B-A17B", "NVFP4")]
deployments = st.sampled_from([(find(*kind), tp) for kind in KINDS for tp in (1, 4)])
ROOMY = dataclasses.replace(find_hardware("rtx_pro_6000_server"), memory_bytes=None)


@calm
@given(deployments, batches, contexts, st.floats(1, 3), st.sampled_from(["uniform", 1.2]))
def test_every_architecture_gets_slower_with_batch_and_context(deployment, batch, context, factor, routing):
    model, tp = deployment
    few = bound(model, ROOMY, Layout(tp=tp), batch, context, routing=routing)
    for more in (
        bound(model, ROOMY, Layout(tp=tp), batch * factor, context, routing=routing),
        bound(model, ROOMY, Layout(tp=tp), batch, context * factor, routing=routing),
    ):
        for part in ("weights", "experts", "kv", "state"):
            assert more.components_ms.get(part, 0) >= few.components_ms.get(part, 0) * (1 - 1e-12)


@calm
@given(
    deployments,
    st.lists(st.tuples(batches, contexts), min_size=1, max_size=5),
    st.sampled_from(["uniform", "balanced", 1.01]),
    st.sampled_from([None, 0.0, 500.0]),
    st.integers(0, 3),
)
def test_an_array_is_bounded_as_its_numbers(deployment, points, routing, shared, drafts):
    model, tp = deployment
    inputs = {"routing": routing, "shared_prefix": shared, "draft_tokens": drafts, "fixed_ms_per_layer": 0.1}
    batch, context = (np.array(column) for column in zip(*((b, 500 + c) for b, c in points), strict=True))
    together = bound(model, ROOMY, Layout(tp=tp), batch, context, **inputs)
    for index, point in enumerate(zip(batch, context, strict=True)):
        one = bound(model, ROOMY, Layout(tp=tp), *point, **inputs)
        for name in ("bound_tok_s", "bound_memory_tok_s", "bound_hard_tok_s", "step_ms", "expected_tok_s"):
            assert getattr(together, name)[index] == pytest.approx(getattr(one, name), rel=1e-9, nan_ok=True)
        assert {part: value[index] for part, value in together.components_ms.items()} == pytest.approx(
            one.components_ms
        )
        assert together.limited_by[index] == one.limited_by


@calm
@given(deployments, batches, contexts, st.integers(0, 4), st.floats(1, 5))
def test_no_bound_is_above_one_that_assumes_less(deployment, batch, context, drafts, gained):
    model, tp = deployment
    limit = bound(model, ROOMY, Layout(tp=tp), batch, context, draft_tokens=drafts, tokens_per_step=gained)
    assert limit.bound_tok_s <= limit.bound_memory_tok_s <= limit.bound_hard_tok_s
    assert limit.bound_tok_s == pytest.approx(batch * gained / limit.step_ms * 1e3)
    assert limit.bound_tok_s_per_user * limit.batch == pytest.approx(limit.bound_tok_s)
    assert limit.bound_tok_s_per_gpu * tp == pytest.approx(limit.bound_tok_s)


def test_a_fixed_cost_is_expected_and_never_part_of_a_bound():
    plain, fixed = (bound(SMOLLM2, MACHINE, ONE, 1, 0, fixed_ms_per_layer=cost) for cost in (None, 0.1))
    assert fixed.bound_tok_s == plain.bound_tok_s
    assert plain.expected_tok_s is None
    assert fixed.components_ms["fixed"] == pytest.approx(3.0)
    assert fixed.expected_tok_s == pytest.approx(1e3 / (plain.step_ms + 3.0))


def test_arithmetic_counts_where_it_takes_longer_than_reading():
    # 2 FLOPs x 7.505e9 parameters x 1,000 tokens / 480e12 = 31.27 ms; reading takes 15.01 GB / 1597e9 = 9.40 ms
    limit = bound(find("Llama-3.1-8B"), ROOMY, ONE, 1000, 0)
    assert limit.components_ms["compute"] == pytest.approx(31.27 - 9.40, rel=2e-3)
    assert limit.limited_by == "compute"
    assert bound(find("Llama-3.1-8B"), ROOMY, ONE, 300, 0).components_ms["compute"] == 0
    assert bound(find("Llama-3.1-8B"), ROOMY, ONE, 302, 0).components_ms["compute"] > 0  # T_c = 301


def test_four_bit_weights_may_be_multiplied_in_sixteen():
    # Marlin reads 4 bits and computes in BF16: T_c falls from 338 to 85 tokens per expert (NVFP4)
    model = dataclasses.replace(
        find("Qwen3.5-397B-A17B", "NVFP4"), weight_bytes_per_step=0, params_per_step=0, attention=()
    )
    balanced = {"routing": "balanced", "activations": "bf16"}
    experts = model.n_experts / model.experts.per_token

    def compute(tokens, **inputs):
        return bound(model, ROOMY, ONE, tokens * experts, 0, **inputs).components_ms["compute"]

    assert compute(84, **balanced) == 0 and compute(85, **balanced) > 0
    assert compute(338, routing="balanced") == 0 and compute(339, routing="balanced") > 0


def test_what_is_not_known_is_cheapest_in_the_hard_bound():
    model = find("Qwen3.5-397B-A17B", "NVFP4")
    base = {"kv_dtype_k": "bfloat16", "state_dtype": "float32", "shared_prefix": 0.0}
    known = bound(model, ROOMY, Layout(tp=4), 64, 8192, **base)
    for name in base:
        unknown = bound(model, ROOMY, Layout(tp=4), 64, 8192, **{**base, name: None})
        assert unknown.bound_tok_s == pytest.approx(known.bound_tok_s)
        assert unknown.bound_hard_tok_s > known.bound_hard_tok_s


def test_the_hard_bound_routes_drafts_like_the_token_before_them():
    model = find("DeepSeek-V4-Flash")
    plain, drafted = (bound(model, ROOMY, Layout(tp=4), 16, 1000, draft_tokens=count) for count in (0, 3))
    assert drafted.bound_tok_s < plain.bound_tok_s
    assert drafted.bound_hard_tok_s == plain.bound_hard_tok_s


def test_a_prefix_that_does_not_fit_the_cache_is_read_by_every_sequence():
    model, inputs = find("Llama-3.1-8B"), {"kv_dtype_k": "bfloat16", "shared_prefix": 60_000.0}
    large = bound(model, ROOMY, ONE, 8, 60_000, **inputs)  # one layer of it takes 246 MB
    assert large.components_ms["kv"] == bound(model, ROOMY, ONE, 8, 60_000).components_ms["kv"]
    assert large.bound_hard_tok_s == bound(model, ROOMY, ONE, 8, 60_000, kv_dtype_k="bfloat16").bound_hard_tok_s
    small = bound(model, ROOMY, ONE, 8, 60_000, **{**inputs, "shared_prefix": 30_000.0})
    per_token_ms = 131_072 / 1597e9 * 1e3
    assert small.components_ms["kv"] == pytest.approx((8 * 30_000 + 30_000) * per_token_ms)


def test_stages_pass_groups_of_sequences_one_behind_another():
    model = find("Llama-3.1-70B")
    whole, staged = bound(model, ROOMY, ONE, 8, 1000), bound(model, ROOMY, Layout(pp=4), 8, 1000)
    assert staged.components_ms["weights"] == whole.components_ms["weights"]
    assert staged.components_ms["kv"] == pytest.approx(whole.components_ms["kv"] / 4)
    send = staged.collectives["send"]
    assert (send.count, send.message_bytes, send.latency.found) == (3, 2 * 8192 * 2, "alpha-beta")
    assert staged.bound_tok_s == pytest.approx(8e3 / staged.step_ms)


def test_experts_over_groups_of_their_own_sequences_exchange_tokens():
    # 8 groups of one device: 2 of 16 sequences each; experts see all 16 tokens, a device holds an eighth of them
    model, layout = find("DeepSeek-V4-Flash"), Layout(dp=8, ep=8)
    limit = bound(model, ROOMY, layout, 16, 1000)
    sliced = bound(model, ROOMY, Layout(tp=8), 16, 1000)
    assert limit.components_ms["experts"] == pytest.approx(sliced.components_ms["experts"])
    assert limit.components_ms["weights"] == pytest.approx(8 * sliced.components_ms["weights"])
    assert limit.components_ms["kv"] == pytest.approx(sliced.components_ms["kv"] / 8)
    assert "all_reduce" not in limit.components_ms
    assert limit.collectives["dispatch"].message_bytes == 2 * 6 * 4096
    assert limit.collectives["combine"].message_bytes == 2 * 2 * 6 * 4096
    assert limit.collectives["dispatch"].count == limit.collectives["combine"].count == 43
    assert limit.devices == 8


def test_experts_within_the_ranks_of_one_group_exchange_nothing():
    model = find("DeepSeek-V4-Flash")
    sliced, spread = (bound(model, ROOMY, Layout(tp=4, ep=ep), 16, 1000) for ep in (1, 4))
    assert spread == sliced


def test_a_prefix_and_drafts_are_never_negative():
    for inputs in ({"shared_prefix": -1.0}, {"draft_tokens": -1}):
        with pytest.raises(InputError, match=f"^{next(iter(inputs))} is -1"):
            bound(SMOLLM2, MACHINE, ONE, 1, 10, **inputs)


@pytest.mark.parametrize(
    ("context", "shared", "words"),
    [
        (1000, 1001, "shared_prefix is 1001 tokens, more than the 1000 of the context"),
        (np.array([2000.0, 1000.0]), 1500, "shared_prefix is 1500 tokens, more than the 1000 of the context"),
        (float("nan"), 0, "^context is nan"),
        (-1, None, "^context is -1"),
        (1000, float("inf"), "^shared_prefix is inf"),
    ],
)
def test_a_prefix_is_a_part_of_the_context(context, shared, words):
    with pytest.raises(InputError, match=words) as caught:
        bound(SMOLLM2, MACHINE, ONE, 1, context, shared_prefix=shared)
    assert "\n" not in str(caught.value)


def test_the_whole_context_may_be_shared():
    assert bound(SMOLLM2, MACHINE, ONE, 2, 1000, shared_prefix=1000).bound_tok_s > 0
