"""The fields of a Hugging Face config.json that the roofline reads, with the values that they can have.

Without it more chosen experts than there are, a list of layers that ends early or `"false"` for tied embeddings would
give a model that looks like any other, with the wrong bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from lab.errors import InputError
from lab.roofline.fields import Foreign, expected, shown, validated, whole, without_nulls

MOST_LAYERS = 10_000
EXPERT_COUNTS = ("n_routed_experts", "num_experts", "num_local_experts")
EXPERTS_PER_TOKEN = ("num_experts_per_tok", "experts_per_token")
PER_LAYER = ("layer_types", "compress_ratios")

Layers = Annotated[int, whole(1, MOST_LAYERS)]
SomeLayers = Annotated[int, whole(0, MOST_LAYERS)]
Size = Annotated[int, whole(1, 10**7)]
SizeOrNone = Annotated[int, whole(0, 10**7)]  # of a part that the model may lack, which is then written as 0
Count = Annotated[int, whole(0, 10**6)]
Tokens = Annotated[int, whole(1, 10**12)]
Text = Annotated[str, expected("text")]
Truth = Annotated[bool, expected("true or false")]
Texts = Annotated[list[str], expected("a list of texts")]
Names = Annotated[list[Annotated[str, Field(pattern=r"^\w{1,60}$")]], expected("a list of names")]
Numbers = Annotated[list[Annotated[int, Field(ge=0, le=10**9)]], expected("a list of whole numbers")]
NumberOrNumbers = Annotated[
    Annotated[int, Field(ge=0, le=MOST_LAYERS)] | list[Annotated[int, Field(ge=0, le=MOST_LAYERS)]],
    expected("a whole number, or a list of them"),
]
StateType = Annotated[str, expected("float32, float16 or bfloat16", ("float32", "float16", "bfloat16"))]


class Weights(Foreign):
    """How one group of compressed-tensors stores its weights."""

    num_bits: Annotated[int, whole(1, 64)] | None = None
    type: Text | None = None
    group_size: Annotated[int, whole(-1, 10**6)] | None = None


class Group(Foreign):
    """One group of compressed-tensors or modelopt."""

    targets: Texts | None = None
    weights: Weights | None = None


class Quantisation(Foreign):
    """`quantization_config` as transformers, compressed-tensors and modelopt write it."""

    quant_method: Text | None = None
    quant_algo: Text | None = None
    moe_quant_algo: Text | None = None
    bits: Annotated[int, whole(1, 64)] | None = None
    group_size: Annotated[int, whole(-1, 10**6)] | None = None
    config_groups: dict[str, Group] | None = None
    quantized_layers: dict[str, Any] | None = None
    ignore: Texts | None = None
    modules_to_not_convert: Texts | None = None
    exclude_modules: Texts | None = None


class Fields(Foreign):
    """Every field of the architectures that are modelled."""

    num_hidden_layers: Layers | None = None
    hidden_size: Size | None = None
    vocab_size: Annotated[int, whole(1, 10**8)] | None = None
    intermediate_size: Size | None = None
    max_position_embeddings: Tokens | None = None
    tie_word_embeddings: Truth | None = None
    torch_dtype: Text | None = None
    dtype: Text | None = None
    expert_dtype: Text | None = None
    quantization_config: Quantisation | None = None

    num_attention_heads: Size | None = None
    num_key_value_heads: Size | None = None
    head_dim: Size | None = None
    v_head_dim: Size | None = None
    attn_output_gate: Truth | None = None
    layer_types: Names | None = None
    sliding_window: Tokens | None = None
    use_sliding_window: Truth | None = None
    full_attention_interval: Layers | None = None

    q_lora_rank: Size | None = None
    kv_lora_rank: Size | None = None
    qk_rope_head_dim: Size | None = None
    qk_nope_head_dim: Size | None = None
    index_head_dim: Size | None = None
    index_n_heads: Size | None = None
    index_topk: Tokens | None = None
    o_lora_rank: Size | None = None
    o_groups: Size | None = None
    compress_ratios: Numbers | None = None

    linear_num_key_heads: Size | None = None
    linear_num_value_heads: Size | None = None
    linear_key_head_dim: Size | None = None
    linear_value_head_dim: Size | None = None
    linear_conv_kernel_dim: Size | None = None
    mamba_ssm_dtype: StateType | None = None

    n_routed_experts: Count | None = None
    num_experts: Count | None = None
    num_local_experts: Count | None = None
    num_experts_per_tok: Count | None = None
    experts_per_token: Count | None = None
    moe_intermediate_size: SizeOrNone | None = None
    shared_expert_intermediate_size: SizeOrNone | None = None
    n_shared_experts: Count | None = None
    first_k_dense_replace: SomeLayers | None = None
    moe_layer_freq: NumberOrNumbers | None = None
    decoder_sparse_step: SomeLayers | None = None
    mlp_only_layers: Numbers | None = None

    num_nextn_predict_layers: SomeLayers | None = None
    mtp_num_hidden_layers: SomeLayers | None = None
    num_mtp_modules: SomeLayers | None = None


def text_part(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The fields of the language model, those of a nested `text_config` before those around it, nulls left out.

    Raises InputError for a `text_config` that is no mapping, or a `model_type` that is no text.
    """
    nested = config.get("text_config")
    if nested is not None and not isinstance(nested, Mapping):
        raise InputError(f"{where}: text_config: expected a mapping, got {shown(nested)}")
    text = {**without_nulls(config), **without_nulls(nested or {})}
    kind = text.get("model_type")
    if kind is not None and not isinstance(kind, str):
        raise InputError(f"{where}: model_type: expected text, got {shown(kind)}")
    return text


def checked(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The config with as many entries in its lists by layer as it has layers; of longer ones the rest belongs to layers
    for next-token prediction.

    Raises InputError naming `where` and the field: absent, of a wrong type, out of range, or at odds with another.
    """
    validated(Fields, dict(config), where)
    layers = config.get("num_hidden_layers")
    if layers is None:
        raise InputError(f"{where}: lacks num_hidden_layers, so no bound can be computed for it")

    def refuse(field: str, words: str, got: Any) -> None:
        raise InputError(f"{where}: {field}: expected {words}, got {shown(got)}")

    for field in (name for name in PER_LAYER if name in config):
        if len(config[field]) < layers:
            refuse(field, f"one entry for each of {layers} layers", config[field])
    if experts := expert_count(config):
        chosen = next((name for name in EXPERTS_PER_TOKEN if name in config), None)
        if chosen and not 1 <= config[chosen] <= experts:
            refuse(chosen, f"a whole number from 1 to the {experts} experts", config[chosen])
        if config.get("moe_intermediate_size") == 0:
            refuse("moe_intermediate_size", "a whole number from 1 in a model with experts", 0)
        if config.get("first_k_dense_replace", 0) >= layers:
            words = f"fewer than the {layers} layers of a model with experts"
            refuse("first_k_dense_replace", words, config["first_k_dense_replace"])
    return {**config, **{field: config[field][:layers] for field in PER_LAYER if field in config}}


def expert_count(config: Mapping[str, Any]) -> int:
    """Routed experts of a layer; 0 in a dense model."""
    return next((config[name] for name in EXPERT_COUNTS if config.get(name)), 0)


def whole_or_zero(config: Mapping[str, Any], *fields: str) -> int:
    """The first of these fields that holds a count, for a model of an unknown architecture; 0 where none does."""
    return next((value for field in fields if type(value := config.get(field)) is int and value > 0), 0)
