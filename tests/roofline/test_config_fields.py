"""Whatever a field of a config.json holds, it gives a sound model or one line that names the field."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab.errors import InputError
from lab.roofline import model_catalogue
from lab.roofline.config_fields import Fields
from lab.roofline.config_json import from_config
from lab.roofline.model import Model
from tests.roofline.test_config_json import DENSE, MIXTURE

LATENT: dict[str, Any] = {
    **{**MIXTURE, "model_type": "glm_moe_dsa", "n_shared_experts": 1, "first_k_dense_replace": 1},
    **{"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8},
    **{"index_head_dim": 8, "index_n_heads": 2, "index_topk": 16, "num_nextn_predict_layers": 1},
}
COMPRESSED: dict[str, Any] = {
    **{**LATENT, "model_type": "deepseek_v4", "head_dim": 16, "o_lora_rank": 8, "o_groups": 2, "sliding_window": 8},
    "compress_ratios": [4, 128],
}
HYBRID: dict[str, Any] = {
    **{**MIXTURE, "model_type": "qwen3_5_moe_text", "linear_num_key_heads": 2, "linear_num_value_heads": 4},
    **{"linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4},
    **{"shared_expert_intermediate_size": 32, "layer_types": ["linear_attention", "full_attention"]},
}
GOOD = {"dense": DENSE, "mixture": MIXTURE, "latent": LATENT, "compressed": COMPRESSED, "hybrid": HYBRID}
NO_SIZES = [-3, 0, 2.5, 2.0, True, "2", math.nan, math.inf, 10**400, [2], {"a": 1}]
SIZES = ["num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size", "intermediate_size", "head_dim"]


def refusal(config: dict[str, Any]) -> str:
    with pytest.raises(InputError) as error:
        from_config(config)
    assert "\n" not in str(error.value) and len(str(error.value)) < 300
    return str(error.value)


@pytest.mark.parametrize("name", GOOD)
def test_the_configs_that_the_others_are_made_from_are_sound(name: str) -> None:
    assert_sound(from_config(GOOD[name]))
    assert from_config(GOOD[name]).not_modelled is None


@pytest.mark.parametrize("value", NO_SIZES, ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize("field", SIZES)
def test_what_is_no_size_is_refused_with_what_is(field: str, value: Any) -> None:
    assert refusal({**DENSE, field: value}).startswith(f"config.json: {field}: expected a whole number from 1 to 10")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 10_001}, "num_hidden_layers: expected a whole number from 1 to 10000, got 10001"),
        ({"num_experts": 10**6 + 1}, "num_experts: expected a whole number from 0 to 1000000"),
        ({"num_experts_per_tok": 9}, "num_experts_per_tok: expected a whole number from 1 to the 8 experts, got 9"),
        ({"num_experts_per_tok": 0}, "num_experts_per_tok: expected a whole number from 1 to the 8 experts, got 0"),
        ({"moe_intermediate_size": 0}, "moe_intermediate_size: expected a whole number from 1"),
        ({"first_k_dense_replace": 2}, "first_k_dense_replace: expected fewer than the 2 layers"),
        ({"num_key_value_heads": 3}, "num_key_value_heads: expected a divisor of 4 attention heads, got 3"),
        ({"num_attention_heads": 128}, "num_attention_heads: expected at most hidden_size (64)"),
        ({"tie_word_embeddings": "false"}, "tie_word_embeddings: expected true or false, got 'false'"),
        ({"use_sliding_window": 1}, "use_sliding_window: expected true or false, got 1"),
        ({"layer_types": ["full_attention"]}, "layer_types: expected one entry for each of 2 layers"),
        ({"layer_types": "full_attention"}, "layer_types: expected a list of names"),
        ({"layer_types": ["a\nb", "c"]}, "layer_types: expected a list of names"),
        ({"torch_dtype": ["bfloat16"]}, "torch_dtype: expected text"),
        ({"model_type": 3}, "model_type: expected text, got 3"),
        ({"text_config": 3}, "text_config: expected a mapping, got 3"),
        ({"quantization_config": "fp8"}, "quantization_config: expected a mapping, got 'fp8'"),
        ({"quantization_config": {"bits": "4"}}, "quantization_config.bits: expected a whole number from 1 to 64"),
        ({"quantization_config": {"config_groups": [3]}}, "quantization_config.config_groups: expected a mapping"),
        (
            {"quantization_config": {"config_groups": {"g": {"weights": {"num_bits": True}}}}},
            "quantization_config.config_groups.g.weights.num_bits: expected a whole number",
        ),
        ({"quantization_config": {"ignore": "lm_head"}}, "quantization_config.ignore: expected a list of texts"),
        (
            {"quantization_config": {"quant_method": "fp8", "ignore": ["re:("]}},
            "quantization_config: a pattern in its list of exceptions is wrong: missing )",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_is_out_of_range_or_at_odds_with_another_field_is_named(changes: dict[str, Any], message: str) -> None:
    config = {**MIXTURE, "num_key_value_heads": 1, **changes}
    assert refusal(config).startswith(f"config.json: {message}")


@pytest.mark.parametrize(
    "changes",
    [
        {"num_experts_per_tok": 8},
        {"first_k_dense_replace": 1},
        {"num_key_value_heads": 4},
        {"tie_word_embeddings": False},
        {"layer_types": ["full_attention", "full_attention"]},
        {"quantization_config": {"quant_method": "fp8", "ignore": ["re:.*lm_head"], "weight_block_size": [128, 128]}},
        {"rope_scaling": math.nan, "a field of the future": [{}]},
    ],
    ids=lambda value: next(iter(value)),
)
def test_what_is_in_range_is_read(changes: dict[str, Any]) -> None:
    assert from_config({**MIXTURE, **changes}).not_modelled is None


@pytest.mark.parametrize("name", GOOD)
def test_null_is_as_good_as_absent(name: str) -> None:
    config = GOOD[name]
    nulls = {field: None for field in Fields.model_fields if field not in config}
    assert from_config({**config, **nulls}, "x") == from_config(config, "x")
    assert from_config({**config, "text_config": nulls}, "x") == from_config(config, "x")


def test_without_the_number_of_layers_nothing_can_be_said() -> None:
    assert "lacks num_hidden_layers" in refusal({**DENSE, "num_hidden_layers": None})
    assert "lacks num_hidden_layers" in refusal({**HYBRID, "num_hidden_layers": None})


def test_a_list_by_layer_may_go_on_to_the_draft_layers() -> None:
    longer = {**HYBRID, "layer_types": [*HYBRID["layer_types"], "full_attention"]}
    assert from_config(longer) == from_config(HYBRID)


def test_the_figures_of_an_unknown_architecture_are_taken_where_they_are_counts() -> None:
    odd = {"num_attention_heads": [4, 8], "num_key_value_heads": math.nan, "vocab_size": 10, "num_experts": -3}
    model = from_config({"model_type": "new", **odd})
    assert (model.layers, model.heads, model.kv_heads, model.vocab, model.n_experts) == (0, 0, 0, 10, 0)


def test_long_values_are_shortened() -> None:
    assert refusal({**DENSE, "layer_types": [3] * 10_000}).endswith("…")


def test_the_catalogue_holds_no_field_that_is_not_read() -> None:
    known = {*Fields.model_fields, "model_type"}
    for key, entry in model_catalogue._entries().items():
        assert set(entry) == {"source", "config", "recipes"} and isinstance(entry["source"], str)
        assert set(entry["config"]) <= known, key
        for recipe in (None, *entry["recipes"]):
            assert_sound(model_catalogue.find(key, recipe))


ANYTHING: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 12) | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
GROUPS = st.dictionaries(
    st.text(max_size=3),
    st.fixed_dictionaries({}, optional={"weights": ANYTHING, "targets": ANYTHING}) | ANYTHING,
    max_size=2,
)
QUANTISATION = st.fixed_dictionaries(
    {},
    optional={
        "quant_method": st.sampled_from(["fp8", "mxfp4", "awq"]) | ANYTHING,
        "quant_algo": st.sampled_from(["NVFP4", "FP8"]) | ANYTHING,
        "bits": ANYTHING,
        "group_size": ANYTHING,
        "config_groups": GROUPS | ANYTHING,
        "ignore": st.lists(st.text(max_size=8) | st.sampled_from(["lm_head", "re:(", "re:.*mlp.*", "*gate*"]))
        | ANYTHING,
        "quantized_layers": ANYTHING,
    },
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=300)
@given(name=st.sampled_from(sorted(GOOD)), field=st.sampled_from([*Fields.model_fields, "model_type"]), value=ANYTHING)
def test_whatever_a_field_holds_the_model_is_sound_or_refused(
    tmp_path: Path, name: str, field: str, value: Any
) -> None:
    sound_or_refused(tmp_path, {**GOOD[name], field: value})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(name=st.sampled_from(sorted(GOOD)), declared=QUANTISATION)
def test_whatever_a_quantisation_declares_the_model_is_sound_or_refused(
    tmp_path: Path, name: str, declared: Any
) -> None:
    sound_or_refused(tmp_path, {**GOOD[name], "quantization_config": declared})


def sound_or_refused(folder: Path, config: dict[str, Any]) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    try:
        model = from_config(path)
    except InputError as error:
        assert str(error).startswith(f"{path}: ") and "\n" not in str(error)
    else:
        assert_sound(model)


def assert_sound(model: Model) -> None:
    if model.not_modelled:
        return
    assert 0 < model.weight_bytes_per_step <= model.weight_bytes < math.inf
    assert model.all_expert_bytes < math.inf and model.gathered_bytes > -1
    for kind in model.attention_layers:
        assert type(kind.layers) is int and kind.layers >= 0
    assert sum(kind.layers for kind in model.attention_layers) == model.layers
    if model.draft:
        assert 0 < model.draft.weight_bytes_per_step <= model.draft.weight_bytes < math.inf
