"""Which parts of a checkpoint are stored in which format: the recipe behind a name such as NVFP4.

Without it "NVFP4" is read as half a byte per weight throughout, while the usual checkpoint keeps attention, shared
experts and output in BF16: four fifths of what a single stream reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lab.errors import InputError
from lab.files import quoted, suggest
from lab.roofline.unquantised import kept_parts

# Parts of a model that a recipe may treat differently.
PARTS = ("experts", "shared", "attention", "dense", "router", "lm_head", "embedding")


@dataclass(frozen=True)
class Format:
    """Bytes per parameter, payload and scales, and the native precision of its matrix products."""

    bytes: float
    compute: str


# FP8 block 128x128 (scales 0.02 %, not counted); NVFP4: 4 bits and 8 per 16 weights; MXFP4: 4 bits and 8 per 32 (OCP
# microscaling formats 1.0); INT4: 4 bits and 16 per group. Integer weights are multiplied in BF16 (Marlin, W4A16).
FORMATS = {
    "BF16": Format(2.0, "bf16"),
    "FP8": Format(1.0, "fp8"),
    "INT8": Format(1.0, "bf16"),
    "NVFP4": Format(0.5625, "fp4"),
    "MXFP4": Format(0.53125, "fp4"),
    "INT4-g32": Format(0.5625, "bf16"),
    "INT4-g128": Format(0.515625, "bf16"),
}


@dataclass(frozen=True)
class Recipe:
    """Formats by part: `experts` for routed experts, `others` for the rest, `except_for` part by part."""

    name: str
    experts: str
    others: str
    except_for: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in (self.experts, self.others, *self.except_for.values()):
            if name not in FORMATS:
                raise InputError(f"recipe {self.name}: unknown weight format {name!r}{suggest(name, FORMATS)}")
        for part in self.except_for:
            if part not in PARTS:
                raise InputError(f"recipe {self.name}: unknown part {part!r}{suggest(part, PARTS)}")

    def format(self, part: str) -> Format:
        """The format of one of PARTS."""
        return FORMATS[self.except_for.get(part, self.experts if part == "experts" else self.others)]


def known_recipe(name: str, known: Iterable[str], what: str = "recipe") -> str:
    """The one of `known` that is called so, in whatever case; raises InputError, with the nearest, where none is.
    `what`: they are called in the message."""
    by_lower = {word.lower(): word for word in known}
    if name.lower() not in by_lower:
        raise InputError(f"unknown {what} {quoted(name)}{suggest(name, by_lower.values())}")
    return by_lower[name.lower()]


def plain(name: str, mixture: bool) -> Recipe:
    """The usual recipe of that format: 4-bit mixtures quantise the routed experts alone, 4-bit dense models all but
    embedding and output; 8 and 16 bits hold throughout. Raises InputError as `known_recipe`."""
    name = known_recipe(name, FORMATS, "weight format")
    if FORMATS[name].bytes >= 1:
        return Recipe(name, name, name)
    if mixture:
        return Recipe(name, name, "BF16")
    return Recipe(name, name, name, {"embedding": "BF16", "lm_head": "BF16"})


def of_config(config: Mapping[str, Any]) -> Recipe | None:
    """The recipe that a config.json declares; None where its quantization_config is of an unknown kind, or leaves a
    part in 16 bits in some layers or matrices only.

    Read from `quantization_config` as transformers, compressed-tensors and modelopt write it.
    """
    declared = config.get("quantization_config")
    if declared is None:
        dtype = str(config.get("torch_dtype") or config.get("dtype") or "bfloat16")
        return Recipe("BF16", "BF16", "BF16") if dtype in ("bfloat16", "float16") else None
    if declared.get("moe_quant_algo") == "NVFP4":
        return Recipe("NVFP4", "NVFP4", "FP8")
    name = _format_of(declared)
    if name is None:
        return None
    left = declared.get("ignore") or declared.get("modules_to_not_convert") or declared.get("exclude_modules") or []
    kept = kept_parts(left, config)
    if kept is None or "experts" in kept:
        return None
    if FORMATS[name].bytes < 1:
        kept |= {"embedding", "router"}  # no engine stores a router in 4 bits, and lists need not say so
    exceptions = dict.fromkeys(sorted(kept), "BF16")
    if name == "FP8" and config.get("expert_dtype") == "fp4":
        return Recipe("MXFP4", "MXFP4", "FP8", exceptions)
    return Recipe(name, name, name, exceptions)


def _format_of(declared: Mapping[str, Any]) -> str | None:
    """The one format that is declared for all linear layers; None for several, or one of an unknown kind."""
    groups = list((declared.get("config_groups") or {}).values())
    listed = any(group.get("targets", ["Linear"]) != ["Linear"] for group in groups)
    if len(groups) > 1 or listed or declared.get("quantized_layers"):
        return None
    method, weights = declared.get("quant_method"), (groups[0].get("weights") or {}) if groups else {}
    if method == "fp8" or declared.get("quant_algo") == "FP8":
        return "FP8"
    if method == "mxfp4":
        return "MXFP4"
    if declared.get("quant_algo") == "NVFP4":
        return "NVFP4"
    bits = weights.get("num_bits") or declared.get("bits")
    group = weights.get("group_size") or declared.get("group_size")
    if bits == 8:
        return "FP8" if weights.get("type") == "float" else "INT8"
    if bits == 4 and weights.get("type") == "float":
        return "NVFP4" if group == 16 else None
    if bits == 4 and f"INT4-g{group}" in FORMATS:
        return f"INT4-g{group}"
    return None
