"""What flags promise, under the names by which servers confirm it."""

from __future__ import annotations

from typing import Any

import pytest

from lab.planned_facts import facts_of_flags
from lab.served import layout_of

VLLM_BY_TWO = {"tensor_parallel_size": 1, "ranks": 2, "cap": None, "gpus": 2}


@pytest.mark.parametrize(
    ("engine", "flags", "facts"),
    [
        ("llamacpp", {}, {"kv_dtype_k": "f16", "kv_dtype_v": "f16"}),
        ("llamacpp", {"n_parallel": 2, "cache_type_k": "q8_0"}, {"cap": 2, "kv_dtype_k": "q8_0", "kv_dtype_v": "f16"}),
        ("sglang", {"tp": 8, "kv_cache_dtype": "fp8_e4m3"}, {"tp_size": 8, "kv_dtype_asked": "fp8_e4m3", "gpus": 8}),
        ("sglang", {"tp_size": 4, "dp_size": 4, "enable_dp_attention": True}, {"tp_size": 4, "ranks": 4, "gpus": 4}),
        ("sglang", {"tp_size": 4, "dp_size": 2}, {"tp_size": 4, "ranks": 2, "gpus": 8}),
        (
            "vllm",
            {"tensor_parallel_size": 2, "data_parallel_size": 2, "pipeline_parallel_size": 2, "max_num_seqs": 8},
            {"tensor_parallel_size": 2, "ranks": 2, "pp_size": 2, "cap": 16, "gpus": 8},
        ),
        ("vllm", {"tensor_parallel_size": "two"}, {"tensor_parallel_size": None}),
        ("vllm", {"data_parallel_size": "2", "max_num_seqs": True}, VLLM_BY_TWO),
        ("sglang", {"tp_size": 0, "kv_cache_dtype": 8}, {"tp_size": None, "kv_dtype_asked": "8"}),
        ("stub", {"slots": 4}, {}),
    ],
)
def test_flags_say_facts(engine: str, flags: dict[str, Any], facts: dict[str, Any]) -> None:
    assert facts_of_flags(engine, flags) == facts


def test_planned_facts_make_the_layout_that_the_server_would_show() -> None:
    facts = facts_of_flags("sglang", {"tp_size": 8, "dp_size": 8, "enable_dp_attention": True, "ep_size": 8})
    layout = layout_of(facts, mixture=True)
    assert layout is not None and (layout.tp, layout.dp, layout.ep, layout.devices) == (1, 8, 8, 8)
