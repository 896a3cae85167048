"""A fixed cost is what a layer took beyond its bound."""

from __future__ import annotations

import pytest

from lab.errors import InputError
from lab.roofline import Layout, bound
from lab.roofline.fit import fixed_ms_per_layer
from lab.roofline.hardware_catalogue import find
from lab.roofline.model_catalogue import find as find_model

SERVER = find("rtx_pro_6000_server")


# Microseconds a layer; published figures of meta-pytorch/gpt-fast, local-inference-lab/rtx6kpro and
# SemiAnalysisAI/InferenceX
@pytest.mark.parametrize(
    ("name", "recipe", "gpu", "tp", "batch", "context", "tok_s", "us"),
    [
        ("Llama-3.1-8B", "BF16", "a100_sxm_80", 1, 1, 100, 93.89, 103),
        ("Llama-3.1-8B", "BF16", "a100_sxm_80", 2, 1, 100, 149.1, 73),
        ("Llama-3.1-70B", "BF16", "a100_sxm_80", 4, 1, 100, 37.45, 88),
        ("Qwen3.5-397B-A17B", "NVFP4", "rtx_pro_6000_server", 4, 1, 500, 78.5, 127),
        ("Qwen3.5-397B-A17B", "INT4-g128", "rtx_pro_6000_server", 4, 1, 500, 104.4, 76),
        ("DeepSeek-V4-Flash", "MXFP4", "rtx_pro_6000_server", 4, 1, 500, 133, 111),
        ("DeepSeek-R1", "FP8", "h200_sxm", 8, 4, 1536, 393.4, 86),
        ("DeepSeek-R1", "FP8", "b300_sxm", 8, 1, 1536, 142.0, 53),
    ],
)
def test_single_streams_of_published_stacks(
    name: str, recipe: str, gpu: str, tp: int, batch: float, context: float, tok_s: float, us: float
) -> None:
    model = find_model(name, recipe)
    limit = bound(model, find(gpu), Layout(tp=tp), batch, context)
    cost = fixed_ms_per_layer(tok_s, limit, model)
    assert 1e3 * cost == pytest.approx(us, abs=1.0)
    expected = bound(model, find(gpu), Layout(tp=tp), batch, context, fixed_ms_per_layer=cost)
    assert expected.expected_tok_s == pytest.approx(tok_s)


def test_accepted_drafts_belong_to_the_step() -> None:
    model = find_model("Llama-3.1-8B")
    limit = bound(model, SERVER, Layout(), 1, 0, tokens_per_step=2.0)
    assert fixed_ms_per_layer(limit.bound_tok_s / 2, limit, model) == pytest.approx(limit.step_ms / 32)


@pytest.mark.parametrize("tok_s", [0, -1, 1000, float("nan")])
def test_a_figure_above_its_bound_yields_no_cost(tok_s: float) -> None:
    model = find_model("Llama-3.1-8B")
    with pytest.raises(InputError, match="no fixed cost can be fitted"):
        fixed_ms_per_layer(tok_s, bound(model, SERVER, Layout(), 1, 100), model)
