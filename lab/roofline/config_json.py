"""A model from its Hugging Face config.json and the recipe of its weights.

Without it a model could be bounded only once its checkpoint lies on this machine, and an architecture that reads
something else per step would silently be charged as a plain one: what is not known here is `not_modelled`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from lab.errors import InputError
from lab.roofline import config_attention as attention
from lab.roofline import config_file
from lab.roofline.attention import Compressed, Heads
from lab.roofline.config_attention import Config, NotModelled, need
from lab.roofline.config_fields import EXPERT_COUNTS, checked, expert_count, text_part, whole_or_zero
from lab.roofline.fields import shown
from lab.roofline.model import Draft, Experts, Model
from lab.roofline.recipes import Recipe, of_config, plain

# How the attention of each model_type is read.
_ATTENTION = {
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "qwen3_vl_text"), attention.heads),
    **dict.fromkeys(("mixtral", "qwen3_moe", "qwen3_vl_moe_text"), attention.heads),
    **dict.fromkeys(("gpt_oss", "minimax_m2", "glm4_moe"), attention.heads),
    **dict.fromkeys(("deepseek_v3", "kimi_k2", "deepseek_v32", "glm_moe_dsa"), attention.latent),
    "deepseek_v4": attention.compressed,
    **dict.fromkeys(("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"), attention.hybrid),
}
# Families of linear and full attention, which gate the output of the latter unless the config says otherwise.
_HYBRID = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
# Families in which `sliding_window` is written but the layers attend to everything unless `use_sliding_window` is true.
_WINDOW_OFF_BY_DEFAULT = ("qwen2", "qwen3", "qwen3_moe")


@dataclass(frozen=True)
class _Feed:
    """Feed-forward parts of all layers, in parameters."""

    experts: int = 0
    per_token: int = 0
    moe_layers: int = 0
    expert: float = 0.0
    shared: float = 0.0
    router: float = 0.0
    dense: float = 0.0


def from_config(config: Config | str | Path, name: str | None = None, recipe: Recipe | str | None = None) -> Model:
    """Read a model from a config.json: its parsed content, the file, or the folder that holds it.

    `recipe`: how the weights are stored, by name or part by part; None: as `quantization_config` declares (an older
    `hf_quant_config.json` beside the file counts). Nested `text_config` is followed; a vision tower is left out, since
    a decode step does not read it. An unknown architecture or recipe gives a model that is `not_modelled`.

    Raises InputError, naming file and field: no such file, not JSON, a field that the architecture needs and the config
    lacks, or one that holds what it cannot hold.
    """
    where = "config.json"
    if isinstance(config, str | Path):
        path = config_file.config_path(config)
        config, name, where = config_file.read(path), name or path.resolve().parent.name, str(path)
    text = text_part(config, where)
    kind = str(text.get("model_type"))
    name = name or str(config.get("_name_or_path") or kind)
    if kind not in _ATTENTION:
        return _unknown(text, name, f"the architecture {shown(kind)} is not modelled")
    text = checked(text, where)
    if kind in _HYBRID:
        text = {"attn_output_gate": True, "layer_types": _every_nth_full(text), **text}
    if isinstance(recipe, str):
        recipe = plain(recipe, bool(expert_count(text)))
    recipe = recipe or _declared(text, where)
    if recipe is None:
        return _unknown(
            text, name, "its quantization_config is of an unknown kind or differs within a part; name a recipe"
        )
    if kind in _WINDOW_OFF_BY_DEFAULT and not text.get("use_sliding_window"):
        text["sliding_window"] = None
    try:
        return _model(text, kind, name, recipe)
    except NotModelled as why:
        return _unknown(text, name, str(why))
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _declared(config: Config, where: str) -> Recipe | None:
    try:
        return of_config(config)
    except (re.error, OverflowError, RecursionError) as error:
        raise InputError(
            f"{where}: quantization_config: a pattern in its list of exceptions is wrong: {error}"
        ) from None


def _model(config: Config, kind: str, name: str, recipe: Recipe) -> Model:
    kinds, attention_params = _ATTENTION[kind](config)
    feed = _feed(config)
    hidden, vocab = need(config, "hidden_size"), need(config, "vocab_size")
    tied = bool(config.get("tie_word_embeddings"))
    parts = {"attention": attention_params, "shared": feed.shared, "router": feed.router, "dense": feed.dense}
    parts["lm_head"] = vocab * hidden
    embedding = 0 if tied else vocab * hidden
    read_bytes = sum(params * recipe.format(part).bytes for part, params in parts.items())
    form = recipe.format("experts")
    routed = feed.experts * feed.moe_layers * feed.expert
    count, kv_heads, key_dim, value_dim = attention.head_shape(config)
    experts = Experts(feed.per_token, feed.moe_layers, feed.expert, feed.expert * form.bytes, form.compute)
    model = Model(
        name=name,
        architecture=kind,
        format=recipe.name,
        layers=need(config, "num_hidden_layers"),
        heads=count,
        kv_heads=kv_heads,
        head_dim_k=key_dim,
        head_dim_v=value_dim,
        vocab=vocab,
        n_experts=feed.experts,
        context_length=config.get("max_position_embeddings"),
        params=round(sum(parts.values()) + embedding + routed),
        weight_bytes=round(read_bytes + embedding * recipe.format("embedding").bytes + routed * form.bytes),
        weight_bytes_per_step=round(read_bytes),
        hidden=hidden,
        params_per_step=round(sum(parts.values())),
        compute=recipe.format("attention").compute,
        attention=kinds,
        experts=experts if feed.experts else None,
    )
    return replace(model, draft=_draft(config, model, feed, attention_params, recipe))


def _feed(config: Config) -> _Feed:
    """Gate, up and down projections: of dense layers, shared and routed experts (one router row per expert)."""
    hidden, layers, count = need(config, "hidden_size"), need(config, "num_hidden_layers"), expert_count(config)
    if not count:
        return _Feed(dense=layers * 3 * hidden * need(config, "intermediate_size"))
    steps = config.get("moe_layer_freq", 1), config.get("decoder_sparse_step", 1)
    if config.get("mlp_only_layers") or steps != (1, 1):
        raise NotModelled("dense layers between mixtures of experts")
    first = config.get("first_k_dense_replace") or 0
    width = need(config, "moe_intermediate_size", "intermediate_size")
    shared = config.get("shared_expert_intermediate_size") or (config.get("n_shared_experts") or 0) * width
    gate = hidden if config.get("shared_expert_intermediate_size") else 0
    moe = layers - first
    return _Feed(
        experts=count,
        per_token=need(config, "num_experts_per_tok", "experts_per_token"),
        moe_layers=moe,
        expert=3 * hidden * width,
        shared=moe * (3 * hidden * shared + gate),
        router=moe * hidden * count,
        dense=first * 3 * hidden * need(config, "intermediate_size") if first else 0.0,
    )


def _draft(config: Config, model: Model, feed: _Feed, attention_params: float, recipe: Recipe) -> Draft | None:
    """Modules of one layer with the model's own attention (DeepSeek-V4: its window only) and a projection of twice
    the hidden width; copies of embedding and output; all in the format of the model's attention
    (nvidia/Qwen3.5-397B-A17B-NVFP4 takes 4.05 GiB a rank at TP4, SemiAnalysisAI/InferenceX PR 2312)."""
    keys = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
    modules = next((config[key] for key in keys if config.get(key)), 0)
    if not modules:
        return None
    layer = replace(model.attention[0], layers=modules)
    params = attention_params / model.layers
    if isinstance(layer, Compressed):
        layer = replace(layer, fine_layers=0, coarse_layers=0)
    if isinstance(layer, Heads):
        params = attention.head_params(config)
    params += 2 * model.hidden**2
    params += (feed.shared + feed.router) / feed.moe_layers if feed.experts else feed.dense / model.layers
    width = recipe.format("attention").bytes
    table = model.vocab * model.hidden * width
    experts = feed.experts * feed.expert * width
    return Draft(
        weight_bytes=modules * (params * width + experts) + 2 * table,
        weight_bytes_per_step=params * width + table,
        expert_bytes=feed.expert * width if feed.experts else None,
        attention=layer,
    )


def _every_nth_full(config: Config) -> list[str]:
    """The layers of a hybrid model that does not list them: each `full_attention_interval`-th is full."""
    every = config.get("full_attention_interval") or 4
    layers = range(1, need(config, "num_hidden_layers") + 1)
    return ["linear_attention" if layer % every else "full_attention" for layer in layers]


def _unknown(config: Config, name: str, why: str) -> Model:
    return Model(
        name=name,
        architecture=str(config.get("model_type")),
        format="unknown",
        layers=whole_or_zero(config, "num_hidden_layers"),
        heads=whole_or_zero(config, "num_attention_heads"),
        kv_heads=whole_or_zero(config, "num_key_value_heads", "num_attention_heads"),
        head_dim_k=whole_or_zero(config, "head_dim"),
        head_dim_v=whole_or_zero(config, "head_dim"),
        vocab=whole_or_zero(config, "vocab_size"),
        n_experts=whole_or_zero(config, *EXPERT_COUNTS),
        context_length=whole_or_zero(config, "max_position_embeddings") or None,
        params=0,
        weight_bytes=0,
        weight_bytes_per_step=0,
        not_modelled=why,
    )
