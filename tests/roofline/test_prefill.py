"""A prompt of Qwen3.5 over PCIe is nine tenths messages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab.errors import InputError, LabError
from lab.roofline import Layout
from lab.roofline.hardware_catalogue import find
from lab.roofline.model_catalogue import find as find_model
from lab.roofline.prefill import prefill

SERVER = find("rtx_pro_6000_server")
QWEN = find_model("Qwen3.5-397B-A17B", "NVFP4")


def test_eight_thousand_tokens_of_qwen_on_four_cards() -> None:
    # all products at the FP4 peak: 2 x 16.33e9 x 8192 / (4 x 1920e12)
    chunk = prefill(replace(QWEN, compute="fp4"), SERVER, Layout(tp=4), 8192)
    parts = (chunk.weights_ms, chunk.products_ms, chunk.attention_ms, chunk.messages_ms)
    assert parts == pytest.approx((36.8, 34.8, 8.6, 484), rel=0.005)
    assert chunk.total_ms == pytest.approx(36.8 + 8.6 + 484, rel=0.005)


def test_unquantised_products_run_at_their_own_peak() -> None:
    chunk = prefill(QWEN, SERVER, Layout(tp=4), 8192)
    others, experts = 2 * 8.7817e9 * 8192 / (4 * 480e12), 2 * 7.5497e9 * 8192 / (4 * 1920e12)
    assert chunk.products_ms == pytest.approx(1e3 * (others + experts), rel=1e-3)
    assert prefill(QWEN, SERVER, Layout(tp=4), 8192, utilisation=0.5).products_ms == pytest.approx(
        2 * chunk.products_ms
    )


def test_one_device_sends_nothing_and_weights_rule_a_short_prompt() -> None:
    chunk = prefill(find_model("Llama-3.1-8B"), SERVER, Layout(), 16)
    assert chunk.messages_ms == 0
    assert chunk.total_ms == pytest.approx(15.01e9 / 1597e9 * 1e3, rel=0.005)


def test_what_cannot_be_computed_is_refused() -> None:
    with pytest.raises(InputError, match="tokens is 0"):
        prefill(QWEN, SERVER, Layout(tp=4), 0)
    with pytest.raises(LabError, match="its peak for bf16 is not known"):
        prefill(QWEN, replace(SERVER, peak_flops_s={}), Layout(tp=4), 16)
