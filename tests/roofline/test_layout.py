"""What could never start is refused, with the arithmetic."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab.errors import InputError
from lab.roofline import Layout
from lab.roofline.hardware_catalogue import find
from lab.roofline.layout import check, weight_bytes_per_device
from lab.roofline.model_catalogue import find as find_model

QWEN, LLAMA, R1 = find_model("Qwen3.5-397B-A17B", "NVFP4"), find_model("Llama-3.1-8B"), find_model("DeepSeek-R1")
SERVER, H200 = find("rtx_pro_6000_server"), find("h200_sxm")


@pytest.mark.parametrize(("tp", "gb"), [(4, 59.26), (8, 29.63)])
def test_weights_of_qwen_on_each_device(tp: int, gb: float) -> None:
    assert weight_bytes_per_device(QWEN, Layout(tp=tp)) / 1e9 == pytest.approx(gb, rel=0.005)


def test_expert_parallelism_spreads_experts_and_copies_the_rest() -> None:
    routed = QWEN.all_expert_bytes
    spread = weight_bytes_per_device(QWEN, Layout(tp=2, dp=4, ep=8))
    assert spread == pytest.approx(routed / 8 + (QWEN.weight_bytes - routed) / 2)
    replicas = weight_bytes_per_device(QWEN, Layout(tp=4, dp=2, ep=4))
    assert replicas == weight_bytes_per_device(QWEN, Layout(tp=4))
    assert weight_bytes_per_device(QWEN, Layout(tp=4, pp=2)) == weight_bytes_per_device(QWEN, Layout(tp=4)) / 2


@pytest.mark.parametrize(
    ("model", "layout", "message"),
    [
        (LLAMA, Layout(tp=5), "tp 5 is impossible for Llama-3.1-8B: 32 attention heads do not divide into 5"),
        (LLAMA, Layout(tp=64), "32 attention heads do not divide into 64"),
        (QWEN, Layout(tp=32), "16 linear-attention key heads do not divide into 32"),
        (LLAMA, Layout(ep=2), "ep 2 is impossible for Llama-3.1-8B: it has no experts"),
        (QWEN, Layout(tp=4, dp=3, ep=12), "512 experts do not divide into 12"),
        (R1, Layout(tp=4, dp=2, ep=16), r"tp 4 x dp 2 = 8 devices: they do not divide into sets of 16"),
        (LLAMA, Layout(pp=33), "pp 33 is impossible for Llama-3.1-8B: it has 32 layers"),
        (LLAMA, Layout(tp=0), "tp is 0; a parallel degree is a whole number from 1"),
        (LLAMA, Layout(dp=1.5), "dp is 1.5"),  # type: ignore[arg-type]
        (R1, Layout(tp=16), "16 ranks are impossible: 8 H200 SXM 141GB are joined in a node"),
        (
            R1,
            Layout(tp=4),
            r"of 671\.0 GB of weights each of 4 H200 SXM 141GB would hold 167\.8 GB, and it has 141\.0 GB",
        ),
    ],
)
def test_an_impossible_layout_is_refused(model: object, layout: Layout, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        check(model, H200, layout)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


def test_experts_and_ranks_must_divide_each_other() -> None:
    model = replace(QWEN, n_experts=12)
    with pytest.raises(InputError, match="ep 3 is impossible with tp 2: one must divide the other"):
        check(model, SERVER, Layout(tp=2, dp=3, ep=3))


@pytest.mark.parametrize(
    "layout", [Layout(tp=4), Layout(tp=8, ep=4), Layout(dp=8, ep=8), Layout(tp=2, dp=4, ep=8), Layout(tp=4, pp=2)]
)
def test_what_can_start_is_accepted(layout: Layout) -> None:
    check(QWEN, SERVER, layout)


def test_heads_may_be_replicated_over_more_ranks_than_there_are() -> None:
    check(LLAMA, replace(H200, joined=16), Layout(tp=16))


def test_memory_that_is_not_known_refuses_nothing() -> None:
    check(R1, replace(H200, memory_bytes=None), Layout())
