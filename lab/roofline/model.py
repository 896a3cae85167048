"""What a model costs per decode step, from its checkpoint's header.

Without it, "4 bits per weight" stands in for bytes that really differ tensor by tensor (embeddings stay at
8 bits, norms at 32), and the bound is off by a third before anything is measured.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.errors import InputError
from lab.files import suggest

if TYPE_CHECKING:
    import gguf

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
# The names that SGLang and vLLM write for theirs (torch dtypes): bytes of an element.
KV_TORCH_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}

# Tables of which a step reads one row per token. `token_embd` joins them where the output has its own matrix.
ROW_TABLES = ("position_embd.weight", "token_types.weight", "per_layer_token_embd.weight")

# Header keys that mean a step reads something other than all weights and the whole cache of every layer.
NOT_MODELLED = {
    "expert_count": "mixture of experts: how many a step reads is not modelled yet",
    "attention.sliding_window": "sliding-window attention is not modelled yet",
    "attention.kv_lora_rank": "latent attention (MLA) is not modelled yet",
    "ssm.state_size": "recurrent layers are not modelled yet",
    "nextn_predict_layers": "layers for next-token prediction are not modelled yet",
}


@dataclass(frozen=True)
class Model:
    """A model as the roofline sees it.

    name                  general.name of the header, else the file's name
    architecture          general.architecture
    format                tensor type that holds most parameters, such as Q4_1
    layers heads kv_heads head_dim_k head_dim_v vocab n_experts (0: dense)   counts
    context_length        longest context the model was trained for, tokens; None if the header does not say
    params                parameters in all tensors
    weight_bytes          bytes of all tensors
    weight_bytes_per_step bytes every decode step reads: all but the tables of which it takes single rows
    not_modelled          why no bound can be given for this architecture; None if it can
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

    def kv_bytes_per_token(self, dtype_k: str = "f16", dtype_v: str = "f16") -> float:
        """Bytes of cache that one token of context takes and every later step reads, all layers.

        layers x kv_heads x (head_dim_k x bytes of a K element + head_dim_v x bytes of a V element); types
        as llama.cpp names them. Raises InputError for a type it does not know.
        """
        per_head = self.head_dim_k * _element_bytes(dtype_k) + self.head_dim_v * _element_bytes(dtype_v)
        return self.layers * self.kv_heads * per_head


def from_gguf(path: str | Path) -> Model:
    """Read a model from the header of a GGUF file; the weights themselves are not touched.

    Raises InputError, naming the file: absent, not GGUF, damaged, or without the keys of a decoder.
    """
    import gguf

    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file; give the path of a GGUF checkpoint")
    try:
        reader = gguf.GGUFReader(path)
    except (OSError, ValueError, KeyError, IndexError, OverflowError, MemoryError) as error:
        raise InputError(f"{path}: not a readable GGUF file ({error}); fetch it again") from error
    return _from_header(path, reader.fields, reader.tensors)


def _from_header(path: Path, fields: dict[str, gguf.ReaderField], tensors: list[gguf.ReaderTensor]) -> Model:
    def value(key: str, default: Any = None) -> Any:
        return fields[key].contents() if key in fields else default

    def required(key: str) -> Any:
        found = value(key)
        if found is None:
            raise InputError(f"{path}: the header lacks {key}, so no bound can be computed for it")
        return found

    parts = value("split.count", 1)
    if parts > 1:
        raise InputError(f"{path}: one of {parts} parts, each listing some of the weights; merge them first")
    embedding = next((tensor for tensor in tensors if tensor.name == "token_embd.weight"), None)
    if embedding is None:
        raise InputError(f"{path}: no token_embd.weight; not the checkpoint of a decoder")
    architecture = required("general.architecture")
    heads, heads_vary = _one_count(required(f"{architecture}.attention.head_count"))
    kv_heads, kv_heads_vary = _one_count(value(f"{architecture}.attention.head_count_kv", heads))
    if not heads:
        raise InputError(f"{path}: no attention heads; not the checkpoint of a decoder with attention")
    width = required(f"{architecture}.embedding_length")
    head_dim = value(f"{architecture}.attention.key_length", width // heads)
    reasons = [why for key, why in NOT_MODELLED.items() if value(f"{architecture}.{key}")]
    if heads_vary or kv_heads_vary:
        reasons.append("layers with different head counts are not modelled yet")

    parameters_by_type: Counter[str] = Counter()
    for tensor in tensors:
        parameters_by_type[tensor.tensor_type.name] += int(tensor.n_elements)
    names = {tensor.name for tensor in tensors}
    gathered = {*ROW_TABLES, "token_embd.weight"} if "output.weight" in names else set(ROW_TABLES)
    return Model(
        name=value("general.name", path.stem),
        architecture=architecture,
        format=parameters_by_type.most_common(1)[0][0],
        layers=required(f"{architecture}.block_count"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim_k=head_dim,
        head_dim_v=value(f"{architecture}.attention.value_length", head_dim),
        vocab=int(embedding.shape[1]),
        n_experts=value(f"{architecture}.expert_count", 0),
        context_length=value(f"{architecture}.context_length"),
        params=parameters_by_type.total(),
        weight_bytes=sum(int(tensor.n_bytes) for tensor in tensors),
        weight_bytes_per_step=sum(int(tensor.n_bytes) for tensor in tensors if tensor.name not in gathered),
        not_modelled="; ".join(reasons) or None,
    )


def _one_count(counts: int | list[int]) -> tuple[int, bool]:
    """The head count, and whether layers differ in it (the header gives one number or one per layer)."""
    if isinstance(counts, list):
        return max(counts, default=0), len(set(counts)) > 1
    return counts, False


def _element_bytes(dtype: str) -> float:
    if dtype in KV_TORCH_BYTES:
        return KV_TORCH_BYTES[dtype]
    block = KV_BLOCKS.get(dtype.lower())
    if block is None:
        raise InputError(f"unknown KV cache type {dtype!r}{suggest(dtype, [*KV_BLOCKS, *KV_TORCH_BYTES])}")
    elements, size = block
    return size / elements
