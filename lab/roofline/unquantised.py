"""Which parts of a model a checkpoint's list of exceptions leaves in 16 bits.

Without it the list is read by its first entries, and a checkpoint that keeps three layers or half of the attention in
BF16 is charged as if it kept all or none: such a mixture is found out here, and no recipe is made of it.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping
from typing import Any

# Matrices of each part, under the names that checkpoints give them; of one naming all must be kept, or none.
_LAYER_PARTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "experts": tuple(
        tuple(f"{block}.experts.7.{matrix}" for matrix in matrices)
        for block in ("mlp", "block_sparse_moe", "ffn")
        for matrices in (("gate_proj", "up_proj", "down_proj"), ("w1", "w2", "w3"))
    ),
    "shared": tuple(
        tuple(f"{block}.{matrix}" for matrix in ("gate_proj", "up_proj", "down_proj"))
        for block in ("mlp.shared_experts", "mlp.shared_expert", "ffn.shared_experts")
    ),
    "attention": (
        ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
        (
            "self_attn.q_a_proj",
            "self_attn.q_b_proj",
            "self_attn.kv_a_proj_with_mqa",
            "self_attn.kv_b_proj",
            "self_attn.o_proj",
        ),
        ("attn.wq_a", "attn.wq_b", "attn.wkv", "attn.wo_a", "attn.wo_b"),
    ),
    "linear": (
        ("linear_attn.in_proj_qkvz", "linear_attn.out_proj"),
        ("linear_attn.in_proj_qkv", "linear_attn.out_proj"),
    ),
    "dense": (("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),),
    "router": (("mlp.gate",), ("mlp.router",), ("block_sparse_moe.gate",), ("ffn.gate",)),
}
_OTHER_PARTS = {"lm_head": ("lm_head", "head"), "embedding": ("model.embed_tokens", "embed")}
_STEMS = ("model.", "model.language_model.", "language_model.model.", "")


def kept_parts(patterns: Iterable[str], config: Mapping[str, Any]) -> set[str] | None:
    """Parts (as `recipes.PARTS` names them) that the patterns name in every layer that has them; None where a part is
    kept in some layers or matrices and not in others.

    Patterns: `re:` and a regular expression (compressed-tensors), a glob, a module with all below it (transformers,
    modelopt), or a bare word for every module of that name.
    """
    expression = _compiled(patterns)
    if expression is None:
        return set()
    kept = {part for part, names in _OTHER_PARTS.items() if any(expression.match(name) for name in names)}
    for part, layers in _layers(config).items():
        states = {_state(expression, part, layer) for layer in layers}
        if len(states) > 1 or "some" in states:
            return None
        if states == {"all"}:
            kept.add(part)
    linear = _layers(config)["linear"]
    if linear and ("linear" in kept) != ("attention" in kept):
        return None
    return kept - {"linear"}


def _layers(config: Mapping[str, Any]) -> dict[str, range | list[int]]:
    """The layers that have each part."""
    count = config["num_hidden_layers"]
    types = config.get("layer_types") or ["full_attention"] * count
    mixture = any(config.get(name) for name in ("n_routed_experts", "num_experts", "num_local_experts"))
    first = (config.get("first_k_dense_replace") or 0) if mixture else count
    shared = config.get("n_shared_experts") or config.get("shared_expert_intermediate_size")
    return {
        "experts": range(first, count),
        "shared": range(first, count) if shared else range(0),
        "router": range(first, count),
        "dense": range(first),
        "attention": [layer for layer, kind in enumerate(types) if kind != "linear_attention"],
        "linear": [layer for layer, kind in enumerate(types) if kind == "linear_attention"],
    }


def _state(expression: re.Pattern[str], part: str, layer: int) -> str:
    """all, some or none of the part's matrices in this layer, by the naming that matches best."""
    best = "none"
    for names in _LAYER_PARTS[part]:
        for stem in _STEMS:
            hits = sum(bool(expression.match(f"{stem}layers.{layer}.{name}")) for name in names)
            if hits == len(names):
                return "all"
            best = "some" if hits else best
    return best


def _compiled(patterns: Iterable[str]) -> re.Pattern[str] | None:
    choices = []
    for pattern in patterns:
        if pattern.startswith("re:"):
            choices.append(f"(?:{pattern[3:]})")
        elif pattern.isidentifier():
            choices.append(rf"(?:.*\.)?{pattern}(?:\..*)?\Z")
        else:
            choices += [fnmatch.translate(pattern), fnmatch.translate(f"{pattern}.*")]
    return re.compile("|".join(choices)) if choices else None
