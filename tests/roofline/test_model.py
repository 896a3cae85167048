"""The bytes a step reads must be those of the checkpoint, tensor by tensor."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from lab.errors import InputError
from lab.roofline.model import KV_BLOCKS, Model, from_gguf
from tests.builders import MODEL

WIDTH, HEADS, KV_HEADS, VOCAB, LAYERS = 64, 4, 2, 96, 3
EMBEDDING_BYTES = VOCAB * WIDTH * 2  # F16
BLOCK_BYTES = WIDTH * WIDTH // 32 * 18 + WIDTH * 4  # one Q4_0 matrix and one F32 norm

SMOLLM2 = Model(
    name="SmolLM2-135M-Instruct",
    architecture="llama",
    format="Q4_1",
    layers=30,
    heads=9,
    kv_heads=3,
    head_dim_k=64,
    head_dim_v=64,
    vocab=49152,
    n_experts=0,
    context_length=8192,
    params=134_515_008,
    weight_bytes=96_576_768,
    weight_bytes_per_step=96_576_768,
)


def write_gguf(path: Path, *, tied: bool = False, kv_heads: int | list[int] = KV_HEADS, **extra: int) -> Path:
    """A decoder of three layers whose every byte is known."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_block_count(LAYERS)
    writer.add_embedding_length(WIDTH)
    writer.add_context_length(512)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(kv_heads)
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
        ({"llama__attention__sliding_window": 128}, "sliding-window"),
        ({"llama__attention__kv_lora_rank": 512}, "latent attention"),
        ({"llama__ssm__state_size": 128}, "recurrent"),
        ({"kv_heads": [2, 4, 2]}, "different head counts"),
    ],
)
def test_an_architecture_that_reads_otherwise_says_so(tmp_path, extra, reason):
    assert reason in from_gguf(write_gguf(tmp_path / "m.gguf", **extra)).not_modelled


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


@pytest.mark.parametrize(("dtype", "mib"), [("f16", 180.0), ("q8_0", 95.625), ("q4_0", 50.625), ("f32", 360.0)])
def test_the_cache_of_smollm2_is_as_large_as_the_engine_logs_it(dtype, mib):
    # llama.cpp logs for 4 slots of 2048 cells: K and V 90.00 (f16), 47.81 (q8_0), 25.31 MiB (q4_0) each
    assert 8192 * SMOLLM2.kv_bytes_per_token(dtype, dtype) / 2**20 == mib


def test_keys_and_values_may_differ_in_type():
    assert SMOLLM2.kv_bytes_per_token() == 23040
    assert SMOLLM2.kv_bytes_per_token("q8_0", "f16") == 30 * (204 + 384)
    assert SMOLLM2.kv_bytes_per_token("F16", "BF16") == 23040


def test_an_unknown_cache_type_gets_a_suggestion():
    with pytest.raises(InputError, match="did you mean 'q8_0'"):
        SMOLLM2.kv_bytes_per_token("q8", "f16")


@pytest.mark.parametrize("dtype", KV_BLOCKS)
def test_block_sizes_are_those_of_the_format(dtype):
    assert KV_BLOCKS[dtype] == gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[dtype.upper()]]


@pytest.mark.parametrize(("torch_name", "ggml_name"), [("float16", "f16"), ("bfloat16", "bf16"), ("float32", "f32")])
def test_the_other_engines_names_of_a_type_mean_the_same_bytes(torch_name: str, ggml_name: str) -> None:
    def bytes_of(name: str) -> float:
        return MODEL.kv_bytes_per_token(name, name)

    assert bytes_of(torch_name) == bytes_of(ggml_name)
    assert bytes_of("float8_e4m3fn") == bytes_of("f16") / 2
