"""What one device reads and computes in a step, for the picture of the roof."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab.roofline import Layout, bound
from lab.roofline.hardware_catalogue import find as find_hardware
from lab.roofline.model_catalogue import find
from tests.builders import HARDWARE, MODEL


def test_what_a_step_reads_and_computes_is_worked_by_hand() -> None:
    # 4 sequences of 80 tokens: 2 FLOPs a parameter and token; attention 2 x 80 x 4 heads x (16 + 16) in 2 layers
    counted = replace(MODEL, params_per_step=2_000_000)
    limit = bound(counted, HARDWARE, Layout(), 4, 80, kv_dtype_k="f16", kv_dtype_v="f16")
    assert limit.bytes_per_step == 1_000_000 + 4 * 80 * 2 * 2 * 32 * 2
    assert limit.flops_per_step == 4 * (2 * 2_000_000 + 2 * 2 * 80 * 4 * 32)
    assert bound(counted, HARDWARE, Layout(), 4, 80, draft_tokens=2).flops_per_step == 3 * limit.flops_per_step


def test_a_count_of_parameters_that_is_not_known_is_no_zero() -> None:
    assert bound(MODEL, HARDWARE, Layout(), 4, 80).flops_per_step is None


def test_bytes_are_those_of_the_memory_bound_and_of_one_device() -> None:
    card = find_hardware("rtx_pro_6000_server")
    limit = bound(find("DeepSeek-V4-Flash"), card, Layout(tp=4), 16, 1000)
    memory_s = limit.bytes_per_step / card.memory_bandwidth_bytes_s
    assert 16 / memory_s == pytest.approx(limit.bound_memory_tok_s)
    assert limit.flops_per_step is not None and 1 < limit.flops_per_step / limit.bytes_per_step < 301
