"""The bytes a step reads must be those of the checkpoint, tensor by tensor."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from lab.errors import InputError
from lab.roofline.attention import Heads
from lab.roofline.gguf_file import from_gguf

WIDTH, HEADS, KV_HEADS, VOCAB, LAYERS = 64, 4, 2, 96, 3
EMBEDDING_BYTES = VOCAB * WIDTH * 2  # F16
MATRIX_BYTES = WIDTH * WIDTH // 32 * 18  # Q4_0
BLOCK_BYTES = MATRIX_BYTES + WIDTH * 4  # one matrix and one F32 norm
EXPERTS = 8


def write_gguf(
    path: Path,
    *,
    architecture: str = "llama",
    tied: bool = False,
    kv_heads: int | list[int] = KV_HEADS,
    experts: int = 0,
    windowed: list[bool] | None = None,
    **extra: int,
) -> Path:
    """A decoder of three layers whose every byte is known; experts are in all but the first."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("tiny")
    writer.add_block_count(LAYERS)
    writer.add_embedding_length(WIDTH)
    writer.add_context_length(512)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(kv_heads)
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(2)
    if windowed:
        writer.add_sliding_window_pattern(windowed)
    for key, value in extra.items():
        writer.add_uint32(key.replace("__", "."), value)
    table = np.zeros((VOCAB, WIDTH), dtype=np.float16)
    writer.add_tensor("token_embd.weight", table)
    if not tied:
        writer.add_tensor("output.weight", table)
    matrix = gguf.quantize(np.zeros((WIDTH, WIDTH), dtype=np.float32), gguf.GGMLQuantizationType.Q4_0)
    for layer in range(LAYERS):
        writer.add_tensor(f"blk.{layer}.ffn_up.weight", matrix, raw_dtype=gguf.GGMLQuantizationType.Q4_0)
        writer.add_tensor(f"blk.{layer}.attn_norm.weight", np.zeros(WIDTH, dtype=np.float32))
        if experts and layer:
            stacked = np.stack([matrix] * experts)
            writer.add_tensor(f"blk.{layer}.ffn_up_exps.weight", stacked, raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_separate_input_embedding_is_not_read_by_a_step(tmp_path):
    model = from_gguf(write_gguf(tmp_path / "m.gguf"))
    assert model.weight_bytes == 2 * EMBEDDING_BYTES + LAYERS * BLOCK_BYTES
    assert model.weight_bytes_per_step == EMBEDDING_BYTES + LAYERS * BLOCK_BYTES
    assert model.params == 2 * VOCAB * WIDTH + LAYERS * (WIDTH * WIDTH + WIDTH)


def test_a_tied_embedding_is_read_as_the_output_matrix(tmp_path):
    model = from_gguf(write_gguf(tmp_path / "m.gguf", tied=True))
    assert model.weight_bytes_per_step == model.weight_bytes == EMBEDDING_BYTES + LAYERS * BLOCK_BYTES


def test_the_header_is_read_into_the_shape_of_the_model(tmp_path):
    model = from_gguf(write_gguf(tmp_path / "m.gguf", tied=True))
    assert (model.name, model.architecture, model.format) == ("tiny", "llama", "Q4_0")
    assert (model.layers, model.heads, model.kv_heads) == (LAYERS, HEADS, KV_HEADS)
    assert (model.head_dim_k, model.head_dim_v) == (WIDTH // HEADS,) * 2
    assert (model.vocab, model.n_experts, model.context_length) == (VOCAB, 0, 512)
    assert model.not_modelled is None


def test_key_and_value_widths_of_the_header_count(tmp_path):
    extra = {"llama__attention__key_length": 24, "llama__attention__value_length": 8}
    model = from_gguf(write_gguf(tmp_path / "m.gguf", **extra))
    assert (model.head_dim_k, model.head_dim_v) == (24, 8)
    assert model.kv_bytes_per_token("f16", "f32") == LAYERS * KV_HEADS * (24 * 2 + 8 * 4)


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ({"llama__expert_count": 8}, "mixture of experts"),
        ({"llama__expert_count": 8, "llama__expert_used_count": 2}, "mixture of experts"),
        ({"llama__attention__sliding_window": 128}, "sliding-window"),
        ({"llama__attention__kv_lora_rank": 512}, "latent attention"),
        ({"llama__ssm__state_size": 128}, "recurrent"),
        ({"kv_heads": [2, 4, 2]}, "different head counts"),
    ],
)
def test_an_architecture_that_reads_otherwise_says_so(tmp_path, extra, reason):
    assert reason in from_gguf(write_gguf(tmp_path / "m.gguf", **extra)).not_modelled


def test_the_experts_of_a_mixture_are_counted_apart(tmp_path):
    model = from_gguf(write_gguf(tmp_path / "m.gguf", experts=EXPERTS))
    assert model.not_modelled is None and model.n_experts == EXPERTS
    assert model.experts is not None
    assert (model.experts.per_token, model.experts.layers) == (2, LAYERS - 1)
    assert (model.experts.params, model.experts.bytes) == (WIDTH * WIDTH, MATRIX_BYTES)
    assert model.weight_bytes_per_step == EMBEDDING_BYTES + LAYERS * BLOCK_BYTES
    assert model.weight_bytes == 2 * EMBEDDING_BYTES + LAYERS * BLOCK_BYTES + EXPERTS * 2 * MATRIX_BYTES
    assert model.all_expert_bytes == EXPERTS * 2 * MATRIX_BYTES


def test_a_pattern_of_windows_in_the_header_is_read(tmp_path):
    extra = {"llama__attention__sliding_window": 128}
    model = from_gguf(write_gguf(tmp_path / "m.gguf", windowed=[True, True, False], **extra))
    assert model.not_modelled is None
    assert [(kind.layers, kind.window) for kind in model.attention if isinstance(kind, Heads)] == [(1, None), (2, 128)]


def test_a_pattern_that_the_architecture_fixes_is_known(tmp_path):
    extra = {"gemma2__attention__sliding_window": 128}
    model = from_gguf(write_gguf(tmp_path / "m.gguf", architecture="gemma2", **extra))
    assert [(kind.layers, kind.window) for kind in model.attention if isinstance(kind, Heads)] == [(1, None), (2, 128)]


def test_blocks_side_by_side_need_one_all_reduce(tmp_path):
    assert from_gguf(write_gguf(tmp_path / "m.gguf", architecture="falcon")).all_reduces == 1
    assert from_gguf(write_gguf(tmp_path / "n.gguf")).all_reduces == 2


def test_equal_head_counts_per_layer_are_one_count(tmp_path):
    model = from_gguf(write_gguf(tmp_path / "m.gguf", kv_heads=[2, 2, 2]))
    assert (model.kv_heads, model.not_modelled) == (2, None)


def test_one_part_of_a_split_checkpoint_is_refused(tmp_path):
    with pytest.raises(InputError, match="one of 3 parts"):
        from_gguf(write_gguf(tmp_path / "m.gguf", split__count=3))


def test_an_absent_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"absent\.gguf: no such file"):
        from_gguf(tmp_path / "absent.gguf")


@pytest.mark.parametrize("keep", [0, 3, 20, 200, 2000])
def test_a_damaged_file_is_named(tmp_path, keep):
    whole = write_gguf(tmp_path / "m.gguf").read_bytes()
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(whole[:keep])
    with pytest.raises(InputError, match=r"damaged\.gguf: not a readable GGUF file"):
        from_gguf(damaged)


def test_a_file_that_is_something_else_is_named(tmp_path):
    other = tmp_path / "model.safetensors"
    other.write_bytes(b"\x80" * 4096)
    with pytest.raises(InputError, match="not a readable GGUF file"):
        from_gguf(other)


def test_a_checkpoint_without_a_decoder_is_refused(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "clip")
    writer.add_tensor("v.patch_embd.weight", np.zeros((4, 4), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(InputError, match="not the checkpoint of a decoder"):
        from_gguf(tmp_path / "m.gguf")
