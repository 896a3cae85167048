"""Deployments worked by hand, and published ones: memory and collectives to half a percent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lab.roofline import Bound, Layout, bound
from lab.roofline.hardware_catalogue import find
from lab.roofline.model_catalogue import find as find_model

SERVER = find("rtx_pro_6000_server")
V4, QWEN = "DeepSeek-V4-Flash", "Qwen3.5-397B-A17B"
MEMORY, MESSAGES = ("weights", "experts", "kv", "state"), ("all_reduce", "all_to_all", "sends")
near = 0.005


def at(name: str, recipe: str | None, tp: int, batch: float, context: float, gpu: str = "", **inputs: Any) -> Bound:
    return bound(find_model(name, recipe), find(gpu) if gpu else SERVER, Layout(tp=tp), batch, context, **inputs)


def parts(limit: Bound) -> tuple[float, float]:
    """Milliseconds of memory and of messages."""
    memory, messages = (sum(limit.components_ms.get(name, 0.0) for name in names) for names in (MEMORY, MESSAGES))
    return memory, messages


def test_deepseek_v4_flash_on_four_cards() -> None:
    limit = at(V4, "MXFP4", 4, 16, 1000)
    assert limit.distinct_experts == pytest.approx(80.84, rel=near)
    assert limit.components_ms["experts"] == pytest.approx(7.275, rel=near)
    assert limit.components_ms["weights"] == pytest.approx(1.055, rel=near)
    assert limit.components_ms["kv"] == pytest.approx(0.059, rel=0.01)
    assert parts(limit) == pytest.approx((8.390, 2.140), rel=near)
    assert limit.step_ms == pytest.approx(10.529, rel=near)
    assert limit.bound_memory_tok_s == pytest.approx(1907, rel=near)
    assert limit.bound_tok_s == pytest.approx(1520, rel=near)
    assert limit.components_ms["compute"] == 0
    messages = limit.collectives["all_reduce"]
    assert (messages.count, messages.message_bytes, messages.latency.found) == (86, 131_072, "measured")
    assert (messages.latency.library, messages.latency.borrowed) == ("nccl-2.29.2", False)
    assert 28.7 / limit.bound_tok_s == pytest.approx(0.0189, rel=near)
    assert 23.2 / limit.bound_tok_s == pytest.approx(0.0153, rel=near)
    assert (1e3 * 16 / 28.7 - limit.step_ms) / 43 == pytest.approx(12.7, rel=near)


@pytest.mark.parametrize(("batch", "tok_s"), [(1, 362), (8, 1227), (64, 2462)])
def test_deepseek_v4_flash_at_other_batches(batch: float, tok_s: float) -> None:
    assert at(V4, "MXFP4", 4, batch, 1000).bound_tok_s == pytest.approx(tok_s, rel=near)


def test_what_deepseek_v4_flash_is_sensitive_to() -> None:
    assert at(V4, "NVFP4", 4, 16, 1000).bound_tok_s == pytest.approx(1460, rel=near)
    elsewhere = at(V4, "MXFP4", 4, 16, 1000, "rtx_pro_6000_ws")
    assert elsewhere.bound_tok_s == pytest.approx(1664, rel=near)
    assert elsewhere.collectives["all_reduce"].latency.borrowed
    assert at(V4, "MXFP4", 4, 16, 1000, routing=1.01).bound_tok_s == pytest.approx(1501, rel=0.05)


def test_deepseek_v4_flash_that_drafts_one_token() -> None:
    limit = at(V4, "MXFP4", 4, 16, 1000, draft_tokens=1, tokens_per_step=1.85)
    assert limit.distinct_experts == pytest.approx(136.15, rel=near)
    assert limit.step_ms == pytest.approx(16.90, rel=near)
    assert limit.bound_tok_s == pytest.approx(1752, rel=near)
    assert limit.bound_tok_s / at(V4, "MXFP4", 4, 16, 1000).bound_tok_s == pytest.approx(1.153, rel=near)


def test_qwen_on_eight_cards() -> None:
    limit = at(QWEN, "NVFP4", 8, 1, 500)
    expected = {"experts": 0.332, "weights": 1.375, "kv": 0.005, "state": 0.030, "all_reduce": 3.200, "compute": 0.0}
    assert limit.components_ms == pytest.approx(expected, rel=near, abs=5e-4)
    assert parts(limit) == pytest.approx((1.742, 3.200), rel=near)
    assert limit.step_ms == pytest.approx(4.942, rel=near)
    assert limit.bound_memory_tok_s == pytest.approx(574, rel=near)
    assert limit.bound_tok_s == pytest.approx(202, rel=near)
    assert 172 / limit.bound_tok_s == pytest.approx(0.850, rel=near)
    custom = at(QWEN, "NVFP4", 8, 1, 500, all_reduce_library="pcie-switch-custom")
    assert custom.step_ms == pytest.approx(2.846, rel=near)
    assert custom.bound_tok_s == pytest.approx(351, rel=near)
    assert 172 / custom.bound_tok_s == pytest.approx(0.490, rel=near)


@pytest.mark.parametrize(
    ("batch", "tok_s", "found"),
    [(32, 1551, "measured"), (64, 1853, "measured"), (96, 2657, "interpolated"), (128, 3434, "measured")],
)
def test_qwen_on_eight_cards_under_load(batch: float, tok_s: float, found: str) -> None:
    limit = at(QWEN, "NVFP4", 8, batch, 500)
    assert limit.bound_tok_s == pytest.approx(tok_s, rel=near)
    assert limit.collectives["all_reduce"].latency.found == found


# Deployment, memory and messages in milliseconds, tokens per second; None where only the rate is known.
PUBLISHED = [
    (("Llama-3.1-8B", "BF16", 1, 1, 100, "a100_sxm_80"), 7.37, 0.0, 136),
    (("Llama-3.1-8B", "BF16", 2, 1, 100, "a100_sxm_80"), 3.68, 0.70, 228),
    (("Llama-3.1-70B", "BF16", 4, 1, 100, "a100_sxm_80"), 17.05, 2.60, 50.9),
    (("DeepSeek-R1", "FP8", 8, 4, 1536, "h200_sxm"), 2.54, 2.39, 811),
    (("DeepSeek-R1", "FP8", 8, 16, 1536, "h200_sxm"), 7.56, 2.55, 1582),
    (("DeepSeek-R1", "FP8", 8, 64, 1536, "h200_sxm"), 16.66, 3.04, 3249),
    (("gpt-oss-120b", "MXFP4", 1, 64, 1536, "mi300x"), 11.3, 0.0, 5658),
    (("gpt-oss-120b", "MXFP4", 1, 128, 1536, "mi300x"), 13.4, 0.0, 9580),
    ((QWEN, "NVFP4", 4, 1, 500), 3.48, 1.62, 196),
    ((QWEN, "NVFP4", 4, 8, 500), None, None, 779),
    ((QWEN, "NVFP4", 4, 32, 500), None, None, 1246),
    ((QWEN, "NVFP4", 4, 128, 500), 42.4, 10.3, 2429),
    ((QWEN, "INT4-g128", 4, 128, 500), None, None, 2555),
    ((V4, "MXFP4", 4, 1, 500), 1.60, 1.16, 362),
    (("gpt-oss-120b", "MXFP4", 1, 1, 500, "rtx_pro_6000_maxq"), 2.80, 0.0, 357),
    ((V4, "MXFP4", 2, 10, 500, "rtx_pro_6000_maxq"), 10.6, 0.9, 874),
    ((V4, "MXFP4", 8, 1, 500), 0.80, 2.29, 323),
]


@pytest.mark.parametrize(("deployment", "memory_ms", "messages_ms", "tok_s"), PUBLISHED)
def test_published_deployments(
    deployment: Any, memory_ms: float | None, messages_ms: float | None, tok_s: float
) -> None:
    limit = at(*deployment)
    assert limit.bound_tok_s == pytest.approx(tok_s, rel=near)
    memory, messages = parts(limit)
    if memory_ms is not None:  # two or three digits are given
        assert memory == pytest.approx(memory_ms, rel=near, abs=0.06 if memory_ms > 10 else 0.006)
        assert messages == pytest.approx(messages_ms, rel=near, abs=0.06 if memory_ms > 10 else 0.006)


@pytest.mark.parametrize(("batch", "memory_ms", "messages_ms", "tok_s"), [(1, 0.60, 3.23, 261), (64, 10.3, 3.6, 4587)])
def test_deepseek_r1_on_b300_with_the_collectives_of_b200(
    batch: float, memory_ms: float, messages_ms: float, tok_s: float
) -> None:
    # ai-dynamo/aiconfigurator systems/b300_sxm.yaml: 7.75 TB/s
    gpu = replace(find("b300_sxm"), memory_bandwidth_bytes_s=7.75e12)
    limit = bound(find_model("DeepSeek-R1"), gpu, Layout(tp=8), batch, 1536)
    assert parts(limit) == pytest.approx((memory_ms, messages_ms), rel=0.02)
    assert limit.bound_tok_s == pytest.approx(tok_s, rel=near)
    assert limit.collectives["all_reduce"].latency.borrowed


@pytest.mark.parametrize(
    ("recipe", "batch", "tok_s"),
    [("NVFP4", 8, 753), ("NVFP4", 32, 1426), ("NVFP4", 128, 2807), ("INT4-g128", 128, 2937)],
)
def test_skewed_routing_of_qwen(recipe: str, batch: float, tok_s: float) -> None:
    assert at(QWEN, recipe, 4, batch, 500, routing=1.2).bound_tok_s == pytest.approx(tok_s, rel=0.01)


@pytest.mark.parametrize(("shared", "tok_s"), [(65_536, 2428), (0, 1380)])
def test_a_shared_prompt_of_64k_is_read_once(shared: float, tok_s: float) -> None:
    limit = at(QWEN, "NVFP4", 4, 128, 66_048, kv_dtype_k="fp8", kv_dtype_v="fp8", shared_prefix=shared)
    assert 128e3 / sum(parts(limit)) == pytest.approx(tok_s, rel=near)
    # where the cache is read once, the arithmetic against it counts
    assert (limit.components_ms["compute"] > 0) == (shared > 0)
