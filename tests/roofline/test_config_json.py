"""A config.json is read for what it says, and what is not understood is never guessed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab.errors import InputError, LabError
from lab.roofline import Layout, bound
from lab.roofline.attention import Compressed, Heads, Latent, Recurrent
from lab.roofline.config_json import from_config
from lab.roofline.hardware_catalogue import find
from lab.roofline.recipes import Recipe

DENSE: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 100,
    "max_position_embeddings": 512,
    "torch_dtype": "bfloat16",
}
ATTENTION, FEED, TABLE = 64 * (4 + 2 + 2 + 4) * 16, 3 * 64 * 128, 100 * 64
MODULES = ["lm_head", *(f"model.layers.{n}.{part}" for n in (0, 1) for part in ("self_attn*", "mlp.gate"))]
FP4 = {"weights": {"num_bits": 4, "type": "float", "group_size": 16}}
INT4 = {"weights": {"num_bits": 4, "type": "int", "group_size": 32}}
MIXTURE = {**DENSE, "model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}


def test_a_dense_model_is_counted_by_hand() -> None:
    model = from_config(DENSE, "tiny")
    assert model.params == 2 * (ATTENTION + FEED) + 2 * TABLE
    assert model.params_per_step == 2 * (ATTENTION + FEED) + TABLE
    assert (model.weight_bytes, model.weight_bytes_per_step) == (2 * model.params, 2 * model.params_per_step)
    assert (model.name, model.format, model.hidden, model.context_length) == ("tiny", "BF16", 64, 512)
    assert model.attention == (Heads(2, 4, 2, 16, 16),)


def test_a_tied_embedding_is_read_as_the_output_and_stored_once() -> None:
    model = from_config({**DENSE, "tie_word_embeddings": True})
    assert model.params == model.params_per_step == 2 * (ATTENTION + FEED) + TABLE


def test_experts_shared_experts_and_dense_layers_are_counted_apart() -> None:
    config = {
        **MIXTURE,
        "model_type": "glm4_moe",
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "first_k_dense_replace": 1,
    }
    model = from_config(config)
    expert = 3 * 64 * 32
    assert model.experts is not None
    assert (model.experts.layers, model.experts.per_token, model.experts.params) == (1, 2, expert)
    assert model.params_per_step == 2 * ATTENTION + FEED + expert + 64 * 8 + TABLE
    assert model.params == model.params_per_step + 8 * expert + TABLE


def test_the_text_part_of_a_nested_config_counts() -> None:
    nested = {
        "model_type": "some_vl",
        "vision_config": {"depth": 27},
        "text_config": DENSE,
        "tie_word_embeddings": False,
    }
    assert from_config(nested, "x") == from_config(DENSE, "x")


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ({"model_type": "mistral", "sliding_window": 128}, [(2, 128)]),
        ({"model_type": "qwen2", "sliding_window": 128, "use_sliding_window": False}, [(2, None)]),
        ({"model_type": "qwen3", "sliding_window": 128}, [(2, None)]),
        ({"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 128}, [(1, None), (1, 128)]),
    ],
)
def test_windows(changes: dict[str, Any], kinds: list[tuple[int, int | None]]) -> None:
    model = from_config({**DENSE, **changes})
    assert [(kind.layers, kind.window) for kind in model.attention if isinstance(kind, Heads)] == kinds


def test_the_kinds_of_attention_of_known_families() -> None:
    from lab.roofline.model_catalogue import find as find_model

    assert find_model("DeepSeek-V3").attention == (Latent(61, 128, 576, 512, 192, 128),)
    assert find_model("DeepSeek-V3.2").attention == (Latent(61, 128, 576, 512, 192, 128, 128, 2048),)
    assert find_model("DeepSeek-V4-Flash").attention == (Compressed(43, 64, 512, 128, 21, 20, 128, 512),)
    assert find_model("Qwen3.5-397B-A17B").attention == (Heads(15, 32, 2, 256, 256), Recurrent(45, 16, 64, 128, 128, 4))
    assert find_model("gpt-oss-20b").attention == (Heads(12, 64, 8, 64, 64), Heads(12, 64, 8, 64, 64, 128))


def test_a_hybrid_that_does_not_list_its_layers_has_every_fourth_full() -> None:
    linear = {
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "linear_conv_kernel_dim": 4,
    }
    model = from_config({**MIXTURE, **linear, "model_type": "qwen3_next", "num_hidden_layers": 8})
    assert [kind.layers for kind in model.attention] == [2, 6]
    full = 64 * (2 * 4 + 2 + 2 + 4) * 16  # queries, their gate, keys, values, output
    gated_delta = 64 * (16 + 16 + 32 + 2 * 32 + 2 * 4) + 64 * 4
    assert model.params_per_step == 2 * full + 6 * gated_delta + 8 * 64 * 8 + TABLE


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"model_type": "mamba2"}, "the architecture 'mamba2' is not modelled"),
        ({"model_type": None}, "the architecture 'None' is not modelled"),
        ({"quantization_config": {"quant_method": "aqlm"}}, "quantization_config is of an unknown kind"),
        ({"torch_dtype": "float32"}, "quantization_config is of an unknown kind"),
        (
            {"quantization_config": {"quant_method": "modelopt", "config_groups": {"a": FP4, "b": FP4}}},
            "of an unknown kind",
        ),
        ({"quantization_config": {"quant_algo": "NVFP4", "ignore": ["*.o_proj"]}}, "differs within a part"),
        ({"quantization_config": {"quant_algo": "NVFP4", "ignore": ["model.layers.1.*"]}}, "differs within a part"),
        ({"layer_types": ["chunked_attention", "full_attention"]}, "layers of type chunked_attention"),
        (
            {"model_type": "qwen2", "sliding_window": 8, "use_sliding_window": True},
            "use_sliding_window without layer_types",
        ),
        ({**MIXTURE, "decoder_sparse_step": 2}, "dense layers between mixtures"),
    ],
)
def test_what_is_not_understood_has_no_bound(changes: dict[str, Any], why: str) -> None:
    model = from_config({**DENSE, **changes}, "odd")
    assert model.not_modelled is not None and why in model.not_modelled
    with pytest.raises(LabError, match="no bound for odd"):
        bound(model, find("h200_sxm"), Layout(), 1, 10)


def test_a_missing_field_is_named() -> None:
    with pytest.raises(InputError, match=r"config\.json: lacks hidden_size"):
        from_config({key: value for key, value in DENSE.items() if key != "hidden_size"})


@pytest.mark.parametrize(
    ("declared", "name", "experts", "attention", "lm_head"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "FP8", 1, 1, 1),
        ({"quant_method": "fp8", "modules_to_not_convert": ["gate", "lm_head"]}, "FP8", 1, 1, 2),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": MODULES}, "NVFP4", 0.5625, 2, 2),
        (
            {"quant_method": "modelopt", "config_groups": {"group_0": FP4}, "ignore": MODULES[:1]},
            "NVFP4",
            0.5625,
            0.5625,
            2,
        ),
        (
            {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]},
            "MXFP4",
            0.53125,
            2,
            0.53125,
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"g": INT4},
                "ignore": ["lm_head", "re:.*self_attn.*"],
            },
            *("INT4-g32", 0.5625, 2, 2),
        ),
        (
            {"quant_method": "awq", "bits": 4, "group_size": 128, "modules_to_not_convert": ["lm_head"]},
            "INT4-g128",
            0.515625,
            0.515625,
            2,
        ),
    ],
)
def test_a_declared_recipe_is_read_part_by_part(
    declared: dict[str, Any], name: str, experts: float, attention: float, lm_head: float
) -> None:
    model = from_config({**MIXTURE, "quantization_config": declared})
    router = 1 if declared["quant_method"] == "fp8" and "modules_to_not_convert" not in declared else 2
    assert model.format == name
    assert model.experts.bytes == 3 * 64 * 32 * experts
    assert model.weight_bytes_per_step == 2 * ATTENTION * attention + 2 * 64 * 8 * router + TABLE * lm_head


def test_a_recipe_may_be_named_or_given_part_by_part() -> None:
    assert from_config(MIXTURE, recipe="NVFP4").weight_bytes_per_step == 2 * (2 * ATTENTION + 2 * 64 * 8 + TABLE)
    dense = from_config(DENSE, recipe="INT4-g128")
    assert dense.weight_bytes_per_step == round(0.515625 * 2 * (ATTENTION + FEED)) + 2 * TABLE
    own = Recipe("mine", "NVFP4", "FP8", {"lm_head": "BF16"})
    assert from_config(MIXTURE, recipe=own).weight_bytes_per_step == 2 * ATTENTION + 2 * 64 * 8 + 2 * TABLE


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: from_config(DENSE, recipe="FP9"), "unknown weight format 'FP9'; did you mean 'FP8'"),
        (lambda: Recipe("mine", "FP8", "BF1"), "recipe mine: unknown weight format 'BF1'"),
        (lambda: Recipe("mine", "FP8", "FP8", {"lm-head": "BF16"}), "unknown part 'lm-head'; did you mean 'lm_head'"),
    ],
)
def test_a_wrong_recipe_gets_a_suggestion(build: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build()


def test_files_and_folders_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "tiny-8x"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(MIXTURE))
    assert from_config(folder) == from_config(folder / "config.json") == from_config(MIXTURE, "tiny-8x")
    quantised = {"quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}}
    (folder / "hf_quant_config.json").write_text(json.dumps(quantised))
    assert from_config(folder).format == "NVFP4"


@pytest.mark.parametrize(
    ("text", "message"), [(None, "no such file"), ("{", "cannot be read as JSON"), ("[]", "no mapping")]
)
def test_a_file_that_is_no_config_is_named(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "config.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=message):
        from_config(path)
