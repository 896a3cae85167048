"""The catalogue's models have the sizes that their makers publish."""

from __future__ import annotations

import pytest

from lab.errors import InputError
from lab.roofline.model_catalogue import find, names, recipes

# 1e9 parameters in all and read by every step, 1e6 in one expert: arithmetic on the published config.json; 1e9
# published
SIZES = [
    ("DeepSeek-V3", 671.03, 16.19, 44.04, 671),
    ("DeepSeek-R1", 671.03, 16.19, 44.04, 671),
    ("DeepSeek-V3.2", 671.88, 17.041, 44.04, 671),
    ("DeepSeek-V4-Flash", 284.3, 6.742, 25.166, 284),
    ("DeepSeek-V4-Pro", 1572.91, 24.587, 66.06, 1600),
    ("Qwen3.5-397B-A17B", 396.35, 8.781, 12.583, 397),
    ("Qwen3-235B-A22B", 235.09, 7.374, 18.874, 235),
    ("Qwen3-30B-A3B", 30.53, 1.23, 4.719, 30.5),
    ("Kimi-K2-Instruct", 1026.41, 10.547, 44.04, 1000),
    ("Kimi-K2.5", 1026.41, 10.547, 44.04, 1000),
    ("gpt-oss-120b", 116.79, 1.548, 24.883, 116.8),
    ("gpt-oss-20b", 20.91, 1.218, 24.883, 20.9),
    ("Mixtral-8x7B", 46.7, 1.474, 176.161, 46.7),
    ("MiniMax-M2.5", 228.69, 3.394, 14.156, 230),
    ("GLM-5", 743.91, 18.183, 37.749, 744),
    ("GLM-4.5", 352.8, 16.056, 23.593, 355),
    ("GLM-4.6", 352.8, 16.056, 23.593, 355),
    ("GLM-4.5-Air", 106.85, 6.574, 17.302, 106),
    ("Llama-3.1-8B", 8.03, 7.505, None, 8.03),
    ("Llama-3.1-70B", 70.55, 69.502, None, 70.6),
]


@pytest.mark.parametrize(("name", "total", "each_step", "expert", "published"), SIZES)
def test_parameters(name: str, total: float, each_step: float, expert: float | None, published: float) -> None:
    model = find(name)
    assert model.not_modelled is None
    assert model.params / 1e9 == pytest.approx(total, abs=0.006)
    assert model.params_per_step / 1e9 == pytest.approx(each_step, abs=0.0011)
    assert model.params / 1e9 == pytest.approx(published, rel=0.03)
    if expert is None:
        assert model.experts is None and model.n_experts == 0
    else:
        assert model.experts is not None
        assert model.experts.params / 1e6 == pytest.approx(expert, abs=0.001)


def test_every_model_of_the_catalogue_is_checked() -> None:
    assert {name for name, *_ in SIZES} == set(names())


# Gigabytes that every step reads beside the experts, bytes of an expert's parameter
@pytest.mark.parametrize(
    ("name", "recipe", "others_gb", "expert_bytes"),
    [
        ("Qwen3.5-397B-A17B", "NVFP4", 17.56, 0.5625),
        ("Qwen3.5-397B-A17B", "INT4-g128", 17.56, 0.515625),
        ("DeepSeek-V4-Flash", "MXFP4", 6.74, 0.53125),
        ("DeepSeek-V4-Flash", "NVFP4", 6.74, 0.5625),
        ("DeepSeek-V3", None, 16.19, 1),
        ("Kimi-K2.5", None, 21.09, 0.5625),
        ("gpt-oss-120b", None, 3.10, 0.53125),
        ("MiniMax-M2.5", "FP8", 4.06, 1),
        ("MiniMax-M2.5", "NVFP4", 6.79, 0.5625),
        ("Qwen3-235B-A22B", "BF16", 14.75, 2),
        ("Llama-3.1-8B", None, 15.01, None),
        ("Llama-3.1-70B", None, 139.0, None),
        ("Llama-3.1-8B", "INT8", 7.505, None),
    ],
)
def test_bytes_by_recipe(name: str, recipe: str | None, others_gb: float, expert_bytes: float | None) -> None:
    model = find(name, recipe)
    assert model.weight_bytes_per_step / 1e9 == pytest.approx(others_gb, abs=0.006)
    if expert_bytes is not None:
        assert model.experts.bytes / model.experts.params == expert_bytes


def test_a_single_stream_of_qwen_reads_mostly_what_is_not_quantised() -> None:
    model = find("Qwen3.5-397B-A17B", "NVFP4")
    routed = model.experts.per_token * model.experts.layers * model.experts.bytes
    assert routed / 1e9 == pytest.approx(4.25, abs=0.005)
    assert model.weight_bytes_per_step / (model.weight_bytes_per_step + routed) == pytest.approx(0.80, abs=0.01)


def test_names_are_found_as_people_write_them() -> None:
    assert find("deepseek-ai/DeepSeek-V3") is find("deepseek-v3")
    assert recipes("DeepSeek-V4-Flash") == ("MXFP4", "NVFP4")


def test_unknown_names_and_recipes_get_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'DeepSeek-V4-Flash'"):
        find("DeepSeek-V4-Flsh")
    with pytest.raises(InputError, match="unknown recipe 'NVFP'; did you mean 'NVFP4'"):
        find("Qwen3.5-397B-A17B", "NVFP")
    with pytest.raises(InputError, match="leave the recipe 'FP8' out"):
        find("tiny.gguf", "FP8")


def test_the_draft_layer_of_qwen() -> None:
    draft = find("Qwen3.5-397B-A17B", "NVFP4").draft
    model = find("Qwen3.5-397B-A17B", "NVFP4")
    assert draft is not None
    assert draft.weight_bytes / 4 / 2**30 == pytest.approx(4.02, abs=0.005)
    assert (draft.weight_bytes_per_step + model.experts.per_token * draft.expert_bytes) / 1e9 == pytest.approx(
        2.6, abs=0.02
    )
    assert find("Kimi-K2.5").draft is None
