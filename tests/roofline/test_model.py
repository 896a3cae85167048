"""A model is what its record says, and its cache as large as the engine logs it."""

from __future__ import annotations

import json
from dataclasses import asdict

import gguf
import pytest

from lab.errors import InputError
from lab.roofline.model import KV_BLOCKS, Model
from lab.roofline.model_catalogue import find, names
from tests.builders import MODEL

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


@pytest.mark.parametrize("name", names())
def test_a_model_survives_its_record(name: str) -> None:
    model = find(name)
    assert Model.from_record(json.loads(json.dumps(asdict(model)))) == model


def test_a_record_of_before_has_plain_attention() -> None:
    record = asdict(SMOLLM2)
    for later in ("hidden", "params_per_step", "compute", "attention", "experts", "draft", "all_reduces"):
        del record[later]
    model = Model.from_record(record)
    assert model == SMOLLM2
    (kind,) = model.attention_layers
    assert (kind.layers, kind.kind) == (30, "heads")
