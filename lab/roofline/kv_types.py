"""Bytes of one element of a KV cache or recurrent state, under the names that engines write.

Without it, "fp8", "float8_e4m3fn" and "q8_0" each mean what the reader guesses, and a cache is believed half its size.
"""

from __future__ import annotations

from dataclasses import dataclass

from lab.errors import InputError
from lab.files import quoted, suggest

# KV cache types of llama.cpp: elements and bytes of one block (ggml-common.h).
KV_BLOCKS: dict[str, tuple[int, int]] = {
    "f32": (1, 4),
    "f16": (1, 2),
    "bf16": (1, 2),
    "q8_0": (32, 34),
    "q5_1": (32, 24),
    "q5_0": (32, 22),
    "q4_1": (32, 20),
    "q4_0": (32, 18),
    "iq4_nl": (32, 18),
}
# The names that SGLang and vLLM write for theirs (torch dtypes, and their flags' short names): bytes of an element.
# nvfp4: 4 bits and an 8-bit scale for 16 elements.
KV_TORCH_BYTES: dict[str, float] = {
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "fp8": 1,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
    "nvfp4": 0.5625,
}
# The smallest cache that an engine offers is 4-bit with scales (nvfp4, q4_0), the smallest recurrent state 16-bit
# (`mamba_ssm_cache_dtype` of vLLM and SGLang).
SMALLEST_KV_BYTES = 0.5625
SMALLEST_STATE_BYTES = 2.0


@dataclass(frozen=True)
class ElementBytes:
    """Bytes of one cached element: keys (and latents, which have one type), values, recurrent state."""

    key: float
    value: float
    state: float


def element_bytes(dtype: str) -> float:
    """Bytes of one element of a cache type, in whatever case; raises InputError for a type it does not know."""
    name = dtype.lower()
    if name in KV_TORCH_BYTES:
        return KV_TORCH_BYTES[name]
    block = KV_BLOCKS.get(name)
    if block is None:
        raise InputError(f"unknown KV cache type {quoted(dtype)}{suggest(dtype, [*KV_BLOCKS, *KV_TORCH_BYTES])}")
    elements, size = block
    return size / elements
