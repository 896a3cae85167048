"""A model from the header of a GGUF file, tensor by tensor.

Without it the bytes of a step would be guessed from a format's name, and experts, windows and tied embeddings would be
charged as if every step read them all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.errors import InputError
from lab.roofline.attention import Attention, Heads
from lab.roofline.model import Experts, Model

if TYPE_CHECKING:
    import gguf

# Tables of which a step reads one row per token. `token_embd` joins them where the output has its own matrix.
ROW_TABLES = ("position_embd.weight", "token_types.weight", "per_layer_token_embd.weight")
EXPERT_TENSOR = "_exps."  # blk.N.ffn_{gate,up,down}_exps.{weight,bias}: all experts of a layer in one tensor

# Header keys that mean a step reads something other than weights, chosen experts and the cache of attention heads.
NOT_MODELLED = {
    "attention.kv_lora_rank": "latent attention (MLA) of a GGUF file is not modelled; name the model's config.json",
    "ssm.state_size": "recurrent layers of a GGUF file are not modelled; name the model's config.json",
    "nextn_predict_layers": "layers for next-token prediction in a GGUF file are not modelled",
}
# Every n-th layer attends to the whole context, the others to a window: fixed in the source, not in the header
# (llama.cpp src/llama-model.cpp, set_swa_pattern).
WINDOW_PERIODS = {"gpt-oss": 2, "gemma2": 2, "gemma3": 6, "cohere2": 4}
# Attention and MLP of a layer run side by side on the same input (llama.cpp src/llama-model.cpp).
PARALLEL_BLOCKS = ("falcon", "phi2", "command-r", "cohere2")


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
    return _Header(path, reader.fields, reader.tensors).model()


class _Header:
    def __init__(self, path: Path, fields: dict[str, gguf.ReaderField], tensors: Sequence[gguf.ReaderTensor]) -> None:
        self.path, self.fields, self.tensors = path, fields, tensors
        self.reasons: list[str] = []

    def value(self, key: str, default: Any = None) -> Any:
        return self.fields[key].contents() if key in self.fields else default

    def required(self, key: str) -> Any:
        found = self.value(key)
        if found is None:
            raise InputError(f"{self.path}: the header lacks {key}, so no bound can be computed for it")
        return found

    def model(self) -> Model:
        parts = self.value("split.count", 1)
        if parts > 1:
            raise InputError(f"{self.path}: one of {parts} parts, each listing some of the weights; merge them first")
        embedding = next((tensor for tensor in self.tensors if tensor.name == "token_embd.weight"), None)
        if embedding is None:
            raise InputError(f"{self.path}: no token_embd.weight; not the checkpoint of a decoder")
        architecture = self.required("general.architecture")
        layers = self.required(f"{architecture}.block_count")
        heads, heads_vary = _one_count(self.required(f"{architecture}.attention.head_count"))
        kv_heads, kv_heads_vary = _one_count(self.value(f"{architecture}.attention.head_count_kv", heads))
        if not heads:
            raise InputError(f"{self.path}: no attention heads; not the checkpoint of a decoder with attention")
        width = self.required(f"{architecture}.embedding_length")
        key_dim = self.value(f"{architecture}.attention.key_length", width // heads)
        value_dim = self.value(f"{architecture}.attention.value_length", key_dim)
        self.reasons += [why for key, why in NOT_MODELLED.items() if self.value(f"{architecture}.{key}")]
        if heads_vary or kv_heads_vary:
            self.reasons.append("layers with different head counts are not modelled")
        experts = self.experts(architecture)
        attention = self.windows(architecture, Heads(layers, heads, kv_heads, key_dim, value_dim))

        parameters_by_type: Counter[str] = Counter()
        for tensor in self.tensors:
            parameters_by_type[tensor.tensor_type.name] += int(tensor.n_elements)
        read = [tensor for tensor in self.tensors if self.read_by_every_step(tensor.name)]
        return Model(
            name=self.value("general.name", self.path.stem),
            architecture=architecture,
            format=parameters_by_type.most_common(1)[0][0],
            layers=layers,
            heads=heads,
            kv_heads=kv_heads,
            head_dim_k=key_dim,
            head_dim_v=value_dim,
            vocab=int(embedding.shape[1]),
            n_experts=self.value(f"{architecture}.expert_count", 0),
            context_length=self.value(f"{architecture}.context_length"),
            params=parameters_by_type.total(),
            weight_bytes=sum(int(tensor.n_bytes) for tensor in self.tensors),
            weight_bytes_per_step=sum(int(tensor.n_bytes) for tensor in read),
            not_modelled="; ".join(self.reasons) or None,
            hidden=width,
            params_per_step=sum(int(tensor.n_elements) for tensor in read),
            attention=attention,
            experts=experts,
            all_reduces=1 if architecture in PARALLEL_BLOCKS else 2,
        )

    def read_by_every_step(self, name: str) -> bool:
        own_output = any(tensor.name == "output.weight" for tensor in self.tensors)
        gathered = {*ROW_TABLES, "token_embd.weight"} if own_output else set(ROW_TABLES)
        return name not in gathered and EXPERT_TENSOR not in name

    def experts(self, architecture: str) -> Experts | None:
        count = self.value(f"{architecture}.expert_count", 0)
        tensors = [tensor for tensor in self.tensors if EXPERT_TENSOR in tensor.name]
        per_token = self.value(f"{architecture}.expert_used_count")
        if not count and not tensors:
            return None
        if not (count and tensors and per_token):
            self.reasons.append("mixture of experts: the header lacks expert_count, expert_used_count or the experts")
            return None
        layers = len({tensor.name.split(".")[1] for tensor in tensors})
        return Experts(
            per_token=per_token,
            layers=layers,
            params=sum(int(tensor.n_elements) for tensor in tensors) / (layers * count),
            bytes=sum(int(tensor.n_bytes) for tensor in tensors) / (layers * count),
        )

    def windows(self, architecture: str, plain: Heads) -> tuple[Attention, ...]:
        """The layers that see everything and those that see a window; one kind where the header has no window."""
        window = self.value(f"{architecture}.attention.sliding_window")
        if not window:
            return (plain,)
        pattern = self.value(f"{architecture}.attention.sliding_window_pattern", WINDOW_PERIODS.get(architecture))
        if isinstance(pattern, list):
            windowed = sum(bool(layer) for layer in pattern[: plain.layers])
        elif pattern:
            windowed = plain.layers - plain.layers // pattern
        else:
            self.reasons.append("sliding-window attention: the header does not tell which layers have the window")
            return (plain,)
        shape = (plain.heads, plain.kv_heads, plain.key_dim, plain.value_dim)
        return Heads(plain.layers - windowed, *shape), Heads(windowed, *shape, window=window)


def _one_count(counts: int | list[int]) -> tuple[int, bool]:
    """The head count, and whether layers differ in it (the header gives one number or one per layer)."""
    if isinstance(counts, list):
        return max(counts, default=0), len(set(counts)) > 1
    return counts, False
