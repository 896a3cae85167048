"""The layout of a server from its facts: what each engine's degrees mean, and none where one is not shown."""

from __future__ import annotations

from typing import Any

import pytest

from lab.roofline.layout import Layout
from lab.served import layout_of

SGLANG = {"tp_size": 8, "pp_size": 1, "ep_size": 1, "ranks": 1, "gpus": 8}
VLLM = {"tensor_parallel_size": 4, "ranks": 1, "gpus": 4}


@pytest.mark.parametrize(
    ("facts", "mixture", "expected"),
    [
        ({"cap": 4, "ranks": 1}, False, Layout()),
        (SGLANG, True, Layout(tp=8)),
        (SGLANG | {"ep_size": 8}, True, Layout(tp=8, ep=8)),
        (SGLANG | {"pp_size": 2, "gpus": 16}, False, Layout(tp=8, pp=2)),
        (SGLANG | {"ranks": 2, "gpus": 16}, True, Layout(tp=8, dp=2)),
        (SGLANG | {"ranks": 4}, True, Layout(tp=2, ep=8, dp=4)),
        (SGLANG | {"ranks": 4}, False, None),
        (SGLANG | {"ranks": 3}, True, None),
        (SGLANG | {"ranks": 4, "gpus": None}, True, None),
        (SGLANG | {"tp_size": None}, True, None),
        (SGLANG | {"tp_size": 1, "gpus": None}, False, Layout()),
        (VLLM, True, Layout(tp=4)),
        (VLLM | {"gpus": 8}, False, Layout(tp=4, pp=2)),
        (VLLM | {"ranks": 2, "gpus": 8}, False, Layout(tp=4, dp=2)),
        (VLLM | {"ranks": 2, "gpus": 8}, True, Layout(tp=4, ep=8, dp=2)),
        (VLLM | {"gpus": None, "tensor_parallel_size": 1}, False, Layout()),
        (VLLM | {"tensor_parallel_size": None}, True, None),
    ],
)
def test_the_layout_that_serves(facts: dict[str, Any], mixture: bool, expected: Layout | None) -> None:
    assert layout_of(facts, mixture) == expected
