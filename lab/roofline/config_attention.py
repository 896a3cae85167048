"""Attention layers of a Hugging Face config.json: their cache and their parameters, by kind of attention.

Without it every architecture would count its own projections, each with other omissions. Parameter counts follow the
modelling code of transformers (`modeling_<model_type>.py`); norms and biases, under 0.1 % of a model, are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.errors import InputError
from lab.roofline.attention import Attention, Compressed, Heads, Latent, Recurrent

Config = Mapping[str, Any]
Layers = tuple[tuple[Attention, ...], float]  # by kind, and the parameters of them all


class NotModelled(Exception):
    """A config.json of a known model_type that asks for something the roofline has no formula for."""


def need(config: Config, *keys: str) -> Any:
    """The first of `keys` that the config has; raises InputError naming them when none is there."""
    for key in keys:
        if config.get(key) is not None:
            return config[key]
    raise InputError(f"lacks {' or '.join(keys)}, so no bound can be computed for it")


def heads(config: Config) -> Layers:
    """Full attention, or full and sliding layers as `layer_types` tells."""
    layers = need(config, "num_hidden_layers")
    types = config.get("layer_types") or ["full_attention"] * layers
    unknown = set(types) - {"full_attention", "sliding_attention"}
    if unknown:
        raise NotModelled(f"layers of type {', '.join(sorted(unknown))}")
    if config.get("sliding_window") and "layer_types" not in config:
        if config.get("use_sliding_window"):
            raise NotModelled("use_sliding_window without layer_types")
        types = ["sliding_attention"] * layers
    shape = _even_shape(config)
    windowed = types.count("sliding_attention")
    kinds = []
    if layers > windowed:
        kinds.append(Heads(layers - windowed, *shape))
    if windowed:
        kinds.append(Heads(windowed, *shape, window=need(config, "sliding_window")))
    return tuple(kinds), layers * head_params(config)


def head_shape(config: Config) -> tuple[int, int, int, int]:
    """Query heads, KV heads, key and value width."""
    count = need(config, "num_attention_heads")
    width = config.get("head_dim") or need(config, "hidden_size") // count
    return count, config.get("num_key_value_heads") or count, width, config.get("v_head_dim") or width


def _even_shape(config: Config) -> tuple[int, int, int, int]:
    """`head_shape`; raises InputError where query heads cannot share the KV heads, or have no width."""
    count, kv_heads, key_dim, value_dim = head_shape(config)
    if count % kv_heads:
        raise InputError(f"num_key_value_heads: expected a divisor of {count} attention heads, got {kv_heads}")
    if not key_dim:
        hidden = need(config, "hidden_size")
        raise InputError(f"num_attention_heads: expected at most hidden_size ({hidden}) without head_dim, got {count}")
    return count, kv_heads, key_dim, value_dim


def head_params(config: Config) -> float:
    """Query, key, value and output projections of one layer; a gate on the output is as wide as the queries."""
    hidden, (count, kv, key, value) = need(config, "hidden_size"), head_shape(config)
    queries = count * key * (2 if config.get("attn_output_gate") else 1)
    return hidden * (queries + kv * (key + value) + count * value)


def latent(config: Config) -> Layers:
    """MLA, with the DSA indexer where the config has one (modeling_deepseek_v3.py; DeepSeek-V3.2 model.py)."""
    layers, hidden, count = (need(config, key) for key in ("num_hidden_layers", "hidden_size", "num_attention_heads"))
    rank, rope, nope = (need(config, key) for key in ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim"))
    value, query_rank = need(config, "v_head_dim"), config.get("q_lora_rank")
    queries = count * (nope + rope)
    params = hidden * (rank + rope) + rank * count * (nope + value) + count * value * hidden
    params += query_rank * (hidden + queries) if query_rank else hidden * queries
    index_dim = config.get("index_head_dim")
    if index_dim:
        index_heads = need(config, "index_n_heads")
        params += need(config, "q_lora_rank") * index_heads * index_dim + hidden * (index_dim + index_heads)
    top_tokens = need(config, "index_topk") if index_dim else None
    kind = Latent(layers, count, rank + rope, rank, nope + rope, value, index_dim, top_tokens)
    return (kind,), layers * params


def compressed(config: Config) -> Layers:
    """DeepSeek-V4: the sizes of compressors and indexers are an estimate, checked against the published totals
    (284 and 1600 billion parameters)."""
    layers, hidden, count = (need(config, key) for key in ("num_hidden_layers", "hidden_size", "num_attention_heads"))
    entry, index_dim, index_heads = (need(config, key) for key in ("head_dim", "index_head_dim", "index_n_heads"))
    query_rank, out_rank, groups = (need(config, key) for key in ("q_lora_rank", "o_lora_rank", "o_groups"))
    ratios = need(config, "compress_ratios")[:layers]
    fine, coarse = ratios.count(Compressed.FINE), ratios.count(Compressed.COARSE)
    if fine + coarse + ratios.count(0) != layers:
        raise NotModelled(f"compress_ratios other than 0, {Compressed.FINE} and {Compressed.COARSE}")
    params = layers * (query_rank * (hidden + count * entry) + hidden * entry)
    params += layers * (count * entry * out_rank + groups * out_rank * hidden)
    params += coarse * 2 * hidden * entry + fine * 4 * hidden * entry
    params += fine * (query_rank * index_heads * index_dim + hidden * index_heads + 4 * hidden * index_dim)
    kind = Compressed(
        layers, count, entry, need(config, "sliding_window"), fine, coarse, index_dim, need(config, "index_topk")
    )
    return (kind,), params


def hybrid(config: Config) -> Layers:
    """GatedDeltaNet layers and full attention (modeling_qwen3_next.py, modeling_qwen3_5.py)."""
    hidden, types = need(config, "hidden_size"), need(config, "layer_types")
    full, linear = types.count("full_attention"), types.count("linear_attention")
    if full + linear != len(types):
        raise NotModelled(f"layers of type {', '.join(sorted(set(types) - {'full_attention', 'linear_attention'}))}")
    keys, values = need(config, "linear_num_key_heads"), need(config, "linear_num_value_heads")
    key_dim, value_dim = need(config, "linear_key_head_dim"), need(config, "linear_value_head_dim")
    convolution = need(config, "linear_conv_kernel_dim")
    channels = 2 * keys * key_dim + values * value_dim
    params = hidden * (channels + 2 * values * value_dim + 2 * values) + channels * convolution
    recurrent = Recurrent(
        linear, keys, values, key_dim, value_dim, convolution, config.get("mamba_ssm_dtype") or "float32"
    )
    return (Heads(full, *_even_shape(config)), recurrent), full * head_params(config) + linear * params
