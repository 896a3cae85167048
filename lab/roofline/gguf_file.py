"""A model from the header of a GGUF file, tensor by tensor.

Without it the bytes of a step would be guessed from a format's name, and experts, windows and tied embeddings would be
charged as if every step read them all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.errors import InputError
from lab.files import typed_path
from lab.roofline.attention import Heads
from lab.roofline.fields import ModelType, shown, validated
from lab.roofline.model import Experts, Model

if TYPE_CHECKING:
    import gguf

    from lab.roofline.gguf_header_fields import Shape

# Tables of which a step reads one row per token. `token_embd` joins them where the output has its own matrix.
ROW_TABLES = ("position_embd.weight", "token_types.weight", "per_layer_token_embd.weight")
EXPERT_TENSOR = "_exps."  # blk.N.ffn_{gate,up,down}_exps.{weight,bias}: all experts of a layer in one tensor

# Header keys that mean a step reads something other than weights, chosen experts and the cache of attention heads.
NOT_MODELLED = {
    "kv_lora_rank": "latent attention (MLA) of a GGUF file is not modelled; name the model's config.json",
    "state_size": "recurrent layers of a GGUF file are not modelled; name the model's config.json",
    "nextn_predict_layers": "layers for next-token prediction in a GGUF file are not modelled",
}
# Every n-th layer attends to the whole context, the others to a window: fixed in the source, not in the header
# (llama.cpp src/llama-model.cpp, set_swa_pattern).
WINDOW_PERIODS = {"gpt-oss": 2, "gemma2": 2, "gemma3": 6, "cohere2": 4}
# Attention and MLP of a layer run side by side on the same input (llama.cpp src/llama-model.cpp).
PARALLEL_BLOCKS = ("falcon", "phi2", "command-r", "cohere2")


def from_gguf(path: str | Path) -> Model:
    """Read a model from the header of a GGUF file; the weights themselves are not touched.

    Raises InputError, naming file and key: absent, not GGUF, damaged, without the keys of a decoder, or with one that
    holds what it cannot hold.
    """
    from lab.roofline.gguf_header_fields import opened

    path = typed_path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file; give the path of a GGUF checkpoint")
    reader = opened(path)
    return _Header(path, reader.fields, reader.tensors).model()


class _Header:
    def __init__(self, path: Path, fields: dict[str, gguf.ReaderField], tensors: Sequence[gguf.ReaderTensor]) -> None:
        self.path, self.fields, self.tensors = path, fields, tensors
        self.reasons: list[str] = []

    def read(self, kind: type[ModelType], prefix: str = "") -> ModelType:
        """The keys of `kind`, each behind `prefix`."""
        values = {}
        for name, field in kind.model_fields.items():
            key = field.alias or name
            if prefix + key in self.fields:
                values[key] = self.value(prefix + key)
        return validated(kind, values, str(self.path), prefix)

    def value(self, key: str) -> Any:
        try:
            return self.fields[key].contents()
        except ValueError as error:
            raise InputError(f"{self.path}: {key}: cannot be read ({error})") from None

    def model(self) -> Model:
        from lab.roofline.gguf_header_fields import General, Shape

        general = self.read(General)
        if general.parts > 1:
            raise InputError(
                f"{self.path}: one of {general.parts} parts, each listing some of the weights; merge them first"
            )
        embedding = next((tensor for tensor in self.tensors if tensor.name == "token_embd.weight"), None)
        if embedding is None:
            raise InputError(f"{self.path}: no token_embd.weight; not the checkpoint of a decoder")
        architecture = general.architecture
        shape = self.read(Shape, f"{architecture}.")
        if list(embedding.shape[:1]) != [shape.embedding_length] or len(embedding.shape) != 2 or not embedding.shape[1]:
            dimensions = " x ".join(map(str, embedding.shape))
            raise InputError(
                f"{self.path}: token_embd.weight is {dimensions}, but {architecture}.embedding_length "
                f"{shape.embedding_length}; fetch it again"
            )
        attention = self.windows(architecture, shape, self.heads(architecture, shape))
        self.reasons += [why for key, why in NOT_MODELLED.items() if getattr(shape, key)]
        experts = self.experts(architecture, shape)

        parameters_by_type: Counter[str] = Counter()
        for tensor in self.tensors:
            parameters_by_type[tensor.tensor_type.name] += int(tensor.n_elements)
        read = [tensor for tensor in self.tensors if self.read_by_every_step(tensor.name)]
        return Model(
            name=" ".join((general.name or self.path.stem).split()),
            architecture=architecture,
            format=parameters_by_type.most_common(1)[0][0],
            layers=shape.block_count,
            heads=attention[0].heads,
            kv_heads=attention[0].kv_heads,
            head_dim_k=attention[0].key_dim,
            head_dim_v=attention[0].value_dim,
            vocab=int(embedding.shape[1]),
            n_experts=shape.expert_count,
            context_length=shape.context_length,
            params=parameters_by_type.total(),
            weight_bytes=sum(int(tensor.n_bytes) for tensor in self.tensors),
            weight_bytes_per_step=sum(int(tensor.n_bytes) for tensor in read),
            not_modelled="; ".join(self.reasons) or None,
            hidden=shape.embedding_length,
            params_per_step=sum(int(tensor.n_elements) for tensor in read),
            attention=attention,
            experts=experts,
            all_reduces=1 if architecture in PARALLEL_BLOCKS else 2,
        )

    def read_by_every_step(self, name: str) -> bool:
        own_output = any(tensor.name == "output.weight" for tensor in self.tensors)
        gathered = {*ROW_TABLES, "token_embd.weight"} if own_output else set(ROW_TABLES)
        return name not in gathered and EXPERT_TENSOR not in name

    def heads(self, architecture: str, shape: Shape) -> Heads:
        """The layers as if all saw everything."""
        heads, heads_vary = self.one_count(f"{architecture}.attention.head_count", shape.head_count, shape.block_count)
        key, counts = f"{architecture}.attention.head_count_kv", shape.head_count_kv
        kv_heads, kv_heads_vary = self.one_count(key, heads if counts is None else counts, shape.block_count)
        if not heads:
            raise InputError(f"{self.path}: no attention heads; not the checkpoint of a decoder with attention")
        if heads_vary or kv_heads_vary:
            self.reasons.append("layers with different head counts are not modelled")
        elif not kv_heads or heads % kv_heads:
            raise InputError(f"{self.path}: {key}: expected a divisor of {heads} attention heads, got {kv_heads}")
        key_dim = shape.key_length or shape.embedding_length // heads
        if not key_dim:
            raise InputError(
                f"{self.path}: {architecture}.attention.head_count: expected at most {shape.embedding_length}, the "
                f"embedding_length, got {heads}"
            )
        return Heads(shape.block_count, heads, kv_heads, key_dim, shape.value_length or key_dim)

    def one_count(self, key: str, counts: int | list[int], layers: int) -> tuple[int, bool]:
        """The head count, and whether layers differ in it (the header gives one number or one per layer)."""
        if isinstance(counts, int):
            return counts, False
        if len(counts) < layers:
            raise InputError(f"{self.path}: {key}: expected one count for each of {layers} layers, got {shown(counts)}")
        return max(counts), len(set(counts)) > 1

    def experts(self, architecture: str, shape: Shape) -> Experts | None:
        count, per_token = shape.expert_count, shape.expert_used_count
        tensors = [tensor for tensor in self.tensors if EXPERT_TENSOR in tensor.name]
        if not count and not tensors:
            return None
        if count and per_token > count:
            raise InputError(
                f"{self.path}: {architecture}.expert_used_count: expected at most the {count} experts, got {per_token}"
            )
        if not (count and tensors and per_token):
            self.reasons.append("mixture of experts: the header lacks expert_count, expert_used_count or the experts")
            return None
        if any(int(tensor.shape[-1]) != count for tensor in tensors):
            self.reasons.append(f"mixture of experts: the tensors hold other than the {count} experts of the header")
            return None
        layers = len({tensor.name.split(".")[1] for tensor in tensors})
        return Experts(
            per_token=per_token,
            layers=layers,
            params=sum(int(tensor.n_elements) for tensor in tensors) / (layers * count),
            bytes=sum(int(tensor.n_bytes) for tensor in tensors) / (layers * count),
        )

    def windows(self, architecture: str, shape: Shape, plain: Heads) -> tuple[Heads, ...]:
        """The layers that see everything and those that see a window; one kind where the header has no window."""
        if not shape.sliding_window:
            return (plain,)
        pattern = shape.sliding_window_pattern
        pattern = WINDOW_PERIODS.get(architecture) if pattern is None else pattern
        if isinstance(pattern, list):
            if len(pattern) < plain.layers:
                raise InputError(
                    f"{self.path}: {architecture}.attention.sliding_window_pattern: expected one entry for each of "
                    f"{plain.layers} layers, got {shown(pattern)}"
                )
            windowed = sum(bool(layer) for layer in pattern[: plain.layers])
        elif pattern:
            windowed = plain.layers - plain.layers // pattern
        else:
            self.reasons.append("sliding-window attention: the header does not tell which layers have the window")
            return (plain,)
        return replace(plain, layers=plain.layers - windowed), replace(
            plain, layers=windowed, window=shape.sliding_window
        )
