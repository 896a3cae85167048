"""A model as the roofline sees it: what a decode step must read and compute.

Without it, "4 bits per weight" stands in for bytes that really differ part by part (embeddings stay at 8 bits,
attention at 16, and of the experts a step reads a few), and the bound is off by a third before anything is measured.
Readers of checkpoints are in files of their own: `gguf_file`, `config_json`, `model_catalogue`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lab.roofline.attention import Attention, Heads, Recurrent, from_record
from lab.roofline.kv_types import KV_BLOCKS, KV_TORCH_BYTES, element_bytes
from lab.roofline.rebuilt import listed, mapping, rebuilt

__all__ = ["KV_BLOCKS", "KV_TORCH_BYTES", "Draft", "Experts", "Model"]


@dataclass(frozen=True)
class Experts:
    """The routed experts; `Model.n_experts` of them in each of `layers` layers.

    per_token  experts that the router picks for a token in one layer
    params     parameters of one expert in one layer
    bytes      the same in bytes, scales included
    compute    native precision of their weights (bf16, fp8, fp4); None if unknown
    """

    per_token: int
    layers: int
    params: float
    bytes: float
    compute: str | None = None


@dataclass(frozen=True)
class Draft:
    """The checkpoint's own layer for next-token prediction (MTP), as a draft model.

    weight_bytes           all it takes in memory, its copies of embedding and output included
    weight_bytes_per_step  what one draft step reads whatever its tokens: all but experts and input embedding
    expert_bytes           bytes of one routed expert; None if its feed-forward part is dense
    attention              its cache
    """

    weight_bytes: float
    weight_bytes_per_step: float
    expert_bytes: float | None
    attention: Attention


@dataclass(frozen=True)
class Model:
    """A checkpoint: counts, bytes by component, and its attention layers.

    name                  what people call it
    architecture          general.architecture of a GGUF, model_type of a config.json
    format                tensor type that holds most parameters (Q4_1), or the recipe's name (NVFP4)
    layers heads kv_heads head_dim_k head_dim_v vocab n_experts (per layer; 0: dense)   counts
    context_length        longest context the model was trained for, tokens; None if the header does not say
    params                parameters in all tensors, draft layers aside
    weight_bytes          bytes of the same
    weight_bytes_per_step bytes every decode step reads whatever its tokens: all but the routed experts and the
                          tables of which it takes single rows
    not_modelled          why no bound can be given for this architecture; None if it can
    hidden                width of the residual stream, which collectives carry; None if unknown
    params_per_step       parameters in weight_bytes_per_step, for FLOPs; None if unknown
    compute               native precision of those weights (bf16, fp8, fp4); None if unknown
    attention             layers by kind; empty: all layers keep keys and values of every token
    experts               None for a dense model
    draft                 None without a layer for next-token prediction
    all_reduces           all-reduces per layer under tensor parallelism: 2, or 1 where attention and MLP are parallel
    """

    name: str
    architecture: str
    format: str
    layers: int
    heads: int
    kv_heads: int
    head_dim_k: int
    head_dim_v: int
    vocab: int
    n_experts: int
    context_length: int | None
    params: int
    weight_bytes: int
    weight_bytes_per_step: int
    not_modelled: str | None = None
    hidden: int | None = None
    params_per_step: int | None = None
    compute: str | None = None
    attention: tuple[Attention, ...] = ()
    experts: Experts | None = None
    draft: Draft | None = None
    all_reduces: int = 2

    @property
    def attention_layers(self) -> tuple[Attention, ...]:
        """The attention layers by kind, never empty."""
        plain = Heads(self.layers, self.heads, self.kv_heads, self.head_dim_k, self.head_dim_v)
        return self.attention or (plain,)

    @property
    def all_expert_bytes(self) -> float:
        """Bytes of all routed experts in all layers."""
        return self.n_experts * self.experts.layers * self.experts.bytes if self.experts else 0.0

    @property
    def gathered_bytes(self) -> float:
        """Bytes of the tables of which a step reads single rows: the input embedding, unless it is the output's too."""
        return self.weight_bytes - self.weight_bytes_per_step - self.all_expert_bytes

    @property
    def state_dtype(self) -> str | None:
        """Type of the recurrent state that the checkpoint asks for; None without one."""
        return next((kind.state_dtype for kind in self.attention if isinstance(kind, Recurrent)), None)

    def kv_bytes_per_token(self, dtype_k: str = "f16", dtype_v: str = "f16") -> float:
        """Bytes of cache that one token of context takes and every later step reads, where all layers keep all tokens.

        layers x kv_heads x (head_dim_k x bytes of a K element + head_dim_v x bytes of a V element); types
        as the engines name them. Raises InputError for a type it does not know.
        """
        per_head = self.head_dim_k * element_bytes(dtype_k) + self.head_dim_v * element_bytes(dtype_v)
        return self.layers * self.kv_heads * per_head

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Model:
        """The model that `dataclasses.asdict` wrote down, be it before attention, experts and draft had fields.

        Raises LabError, naming the field, for a damaged record.
        """
        values = mapping(record, "a model")
        values["attention"] = tuple(from_record(layers) for layers in listed(values, "attention", "a model"))
        if (experts := values.get("experts")) is not None:
            values["experts"] = rebuilt(Experts, experts, "a model's experts")
        if (draft := values.get("draft")) is not None:
            draft = mapping(draft, "a model's draft layer")
            if "attention" in draft:
                draft["attention"] = from_record(draft["attention"])
            values["draft"] = rebuilt(Draft, draft, "a model's draft layer")
        return rebuilt(cls, values, "a model")
