"""A list of exceptions is a recipe only where it treats every layer of a part alike."""

from __future__ import annotations

from typing import Any

import pytest

from lab.roofline.unquantised import kept_parts

DENSE: dict[str, Any] = {"num_hidden_layers": 4}
MIXTURE = {**DENSE, "num_experts": 8, "first_k_dense_replace": 1, "n_shared_experts": 1}
HYBRID = {**DENSE, "num_experts": 8, "layer_types": ["linear_attention", "full_attention"] * 2}
LATENT = ["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"]


def each(*names: str) -> list[str]:
    return [f"model.layers.{layer}.{name}" for layer in range(4) for name in names]


@pytest.mark.parametrize(
    ("patterns", "config", "parts"),
    [
        ([], DENSE, set()),
        (["lm_head"], DENSE, {"lm_head"}),
        (["lm_head", "model.embed_tokens"], DENSE, {"lm_head", "embedding"}),
        (each("self_attn*"), DENSE, {"attention"}),
        (["model.layers.*.self_attn", "model.layers.*.mlp.router"], MIXTURE, {"attention", "router"}),
        (["gate", "lm_head"], MIXTURE, {"router", "lm_head"}),
        (["re:.*self_attn.*", "re:.*shared_experts.*"], MIXTURE, {"attention", "shared"}),
        ([r"re:.*mlp\.(gate|up|down)_proj.*"], MIXTURE, {"dense"}),
        (["*.attn.*", "*.ffn.shared_experts.*"], MIXTURE, {"attention", "shared"}),
        (each("mlp.experts"), MIXTURE, {"experts"}),
        (["*.linear_attn*", "*.self_attn*"], HYBRID, {"attention"}),
    ],
)
def test_whole_parts_are_found(patterns: list[str], config: dict[str, Any], parts: set[str]) -> None:
    assert kept_parts(patterns, config) == parts


@pytest.mark.parametrize(
    ("patterns", "config"),
    [
        (["model.layers.0.self_attn*"], DENSE),  # one layer of four
        (each(*(f"self_attn.{name}" for name in LATENT)), MIXTURE),  # all but the output projection
        (["*.o_proj"], DENSE),
        (["*.linear_attn*"], HYBRID),  # one kind of attention of two
    ],
)
def test_a_part_kept_by_halves_makes_no_recipe(patterns: list[str], config: dict[str, Any]) -> None:
    assert kept_parts(patterns, config) is None
