"""What each kind of attention keeps per sequence, and what a decode step reads of it.

Without it a latent cache is divided by the ranks that each hold all of it, a sliding window is charged for the whole
context, and the bound at long contexts is off by the number of GPUs.

All bytes are per GPU and per sequence, all layers of the kind together; `length` is tokens of context, a number or an
array. Formulas: ai-dynamo/aiconfigurator sdk/models/{qwen35,deepseek_v4}.py, sdk/common.py,
rust/aiconfigurator-core/src/perf_database/dsv4.rs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from lab.errors import LabError
from lab.roofline.arrays import Numbers
from lab.roofline.fields import shown
from lab.roofline.kv_types import ElementBytes
from lab.roofline.rebuilt import mapping, rebuilt

INDEX_SCALE_BLOCK = 128  # FP8 index keys carry one 4-byte scale for so many elements
BF16_BYTES = 2


@dataclass(frozen=True)
class Attention:
    """Layers of one kind. What a kind does not have is free: the methods below return 0."""

    layers: int

    def read_bytes(self, length: Numbers, tp: int, of: ElementBytes) -> Numbers:
        """Cache that one step reads for one sequence."""
        return 0.0 * length

    def stored_bytes(self, length: Numbers, tp: int, of: ElementBytes) -> Numbers:
        """Cache that one sequence of this length takes, its fixed part aside."""
        return self.read_bytes(length, tp, of)

    def growth_bytes(self, tp: int, of: ElementBytes) -> float:
        """Cache that one more token takes at a long context."""
        return 0.0

    def fixed_bytes(self, tp: int, of: ElementBytes) -> float:
        """What a sequence takes whatever its length: recurrent or compressor state."""
        return 0.0

    def moved_state_bytes(self, tp: int, of: ElementBytes) -> float:
        """State that one step reads and writes back for one sequence."""
        return 0.0

    def flops(self, length: Numbers, tp: int) -> Numbers:
        """FLOPs of one token against its cache, projections aside."""
        return 0.0 * length

    def prefill_flops(self, tokens: Numbers, tp: int) -> Numbers:
        """FLOPs of a causal prompt of so many tokens: each meets half of them on average."""
        return tokens * self.flops(tokens / 2, tp)

    def refusal(self, tp: int) -> str | None:
        """Why the heads cannot be split over `tp` ranks; None if they can."""
        return None


@dataclass(frozen=True)
class Heads(Attention):
    """Keys and values by head (MHA, GQA, MQA), of every token or of the last `window` ones.

    With more ranks than KV heads each rank holds one head: the heads are replicated.
    """

    heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    window: int | None = None
    kind: str = "heads"

    def _seen(self, length: Numbers) -> Numbers:
        return length if self.window is None else np.minimum(length, self.window)

    def _token_bytes(self, tp: int, of: ElementBytes) -> float:
        heads = math.ceil(self.kv_heads / tp)
        return self.layers * heads * (self.key_dim * of.key + self.value_dim * of.value)

    def read_bytes(self, length: Numbers, tp: int, of: ElementBytes) -> Numbers:
        return self._token_bytes(tp, of) * self._seen(length)

    def growth_bytes(self, tp: int, of: ElementBytes) -> float:
        return self._token_bytes(tp, of) if self.window is None else 0.0

    def flops(self, length: Numbers, tp: int) -> Numbers:
        return 2 * self.layers * self.heads / tp * (self.key_dim + self.value_dim) * self._seen(length)

    def refusal(self, tp: int) -> str | None:
        if self.heads % tp:
            return f"{self.heads} attention heads do not divide into {tp}"
        if self.kv_heads % tp and tp % self.kv_heads:
            return f"{self.kv_heads} KV heads neither divide into {tp} nor replicate over it"
        return None


@dataclass(frozen=True)
class Latent(Attention):
    """One compressed latent for all heads (MLA), in full on every rank; with an indexer (DSA) only `top_tokens` of it
    are read, and all index keys.

    latent_dim  elements kept per token and layer: kv_lora_rank + rope
    output_dim  elements of the latent that values are made of: kv_lora_rank
    key_dim     width of one head's query and key during prefill; value_dim likewise
    index_dim   width of an index key, None without an indexer
    """

    heads: int
    latent_dim: int
    output_dim: int
    key_dim: int
    value_dim: int
    index_dim: int | None = None
    top_tokens: int | None = None
    kind: str = "latent"

    def _index_bytes(self) -> int:
        if self.index_dim is None:
            return 0
        return self.layers * (self.index_dim + 4 * math.ceil(self.index_dim / INDEX_SCALE_BLOCK))

    def _seen(self, length: Numbers) -> Numbers:
        return length if self.top_tokens is None else np.minimum(length, self.top_tokens)

    def read_bytes(self, length: Numbers, tp: int, of: ElementBytes) -> Numbers:
        return self.layers * self.latent_dim * of.key * self._seen(length) + self._index_bytes() * length

    def stored_bytes(self, length: Numbers, tp: int, of: ElementBytes) -> Numbers:
        return self.growth_bytes(tp, of) * length

    def growth_bytes(self, tp: int, of: ElementBytes) -> float:
        return self.layers * self.latent_dim * of.key + self._index_bytes()

    def flops(self, length: Numbers, tp: int) -> Numbers:
        return 2 * self.layers * self.heads / tp * (self.latent_dim + self.output_dim) * self._seen(length)

    def prefill_flops(self, tokens: Numbers, tp: int) -> Numbers:
        per_pair = 2 * self.layers * self.heads / tp * (self.key_dim + self.value_dim)
        return per_pair * tokens * self._seen(tokens / 2)

    def refusal(self, tp: int) -> str | None:
        return f"{self.heads} attention heads do not divide into {tp}" if self.heads % tp else None


@dataclass(frozen=True)
class Compressed(Attention):
    """DeepSeek-V4: every layer keeps a window; some also one entry per 4 tokens, found by an indexer with FP4 keys,
    some one entry per 128. One KV head, in full on every rank; the compressors keep an FP32 state.

    entry_dim                 elements of one entry; fine_layers, coarse_layers: layers of ratio 4 and 128
    window                    tokens kept uncompressed
    index_dim, top_entries    width of an index key, entries of ratio 4 read per step
    """

    heads: int
    entry_dim: int
    window: int
    fine_layers: int
    coarse_layers: int
    index_dim: int
    top_entries: int
    kind: str = "compressed"

    FINE = 4
    COARSE = 128

    def _bytes(self, length: Numbers, fine: Numbers, of: ElementBytes) -> Numbers:
        entries = self.layers * np.minimum(length, self.window) + self.fine_layers * fine
        entries = entries + self.coarse_layers * np.floor(length / self.COARSE)
        index = self.fine_layers * np.floor(length / self.FINE) * self.index_dim / 2
        return entries * self.entry_dim * of.key + index

    def read_bytes(self, length: Numbers, tp: int, of: ElementBytes) -> Numbers:
        before = np.maximum(np.asarray(length) - 1.0, 0.0)
        return self._bytes(before, np.minimum(np.floor(before / self.FINE), self.top_entries), of)

    def stored_bytes(self, length: Numbers, tp: int, of: ElementBytes) -> Numbers:
        return self._bytes(length, np.floor(length / self.FINE), of)

    def growth_bytes(self, tp: int, of: ElementBytes) -> float:
        entries = self.fine_layers / self.FINE + self.coarse_layers / self.COARSE
        return entries * self.entry_dim * of.key + self.fine_layers / self.FINE * self.index_dim / 2

    def fixed_bytes(self, tp: int, of: ElementBytes) -> float:
        fine = 2 * self.FINE * 2 * (self.entry_dim + self.index_dim) * 4
        return self.fine_layers * fine + self.coarse_layers * 2 * self.COARSE * self.entry_dim * 4

    def flops(self, length: Numbers, tp: int) -> Numbers:
        fine = np.minimum(np.floor(length / self.FINE), self.top_entries)
        entries = self.layers * np.minimum(length, self.window) + self.fine_layers * fine
        entries = entries + self.coarse_layers * np.floor(length / self.COARSE)
        return 4 * self.heads / tp * self.entry_dim * entries

    def refusal(self, tp: int) -> str | None:
        return f"{self.heads} attention heads do not divide into {tp}" if self.heads % tp else None


@dataclass(frozen=True)
class Recurrent(Attention):
    """Gated linear attention (GatedDeltaNet): a matrix per value head and the last inputs of a convolution, of constant
    size, read and written back by every step; sharded over the ranks.

    state_dtype  the type that the checkpoint asks for (`mamba_ssm_dtype`)
    """

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    convolution: int
    state_dtype: str = "float32"
    kind: str = "recurrent"

    def fixed_bytes(self, tp: int, of: ElementBytes) -> float:
        matrices = self.value_heads / tp * self.key_dim * self.value_dim * of.state
        channels = (2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim) / tp
        return self.layers * (matrices + channels * (self.convolution - 1) * BF16_BYTES)

    def moved_state_bytes(self, tp: int, of: ElementBytes) -> float:
        return 2 * self.fixed_bytes(tp, of)

    def refusal(self, tp: int) -> str | None:
        for name, count in (("key", self.key_heads), ("value", self.value_heads)):
            if count % tp:
                return f"{count} linear-attention {name} heads do not divide into {tp}"
        return None


KINDS: dict[str, type[Attention]] = {kind.kind: kind for kind in (Heads, Latent, Compressed, Recurrent)}
_LAYERS = "attention layers"


def from_record(record: Any) -> Attention:
    """The layers that `dataclasses.asdict` wrote down; raises LabError for a damaged record."""
    name = mapping(record, _LAYERS).get("kind")
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise LabError(f"the record of {_LAYERS} is damaged: kind: expected {' or '.join(KINDS)}, got {shown(name)}")
    return rebuilt(kind, record, _LAYERS)
