"""Real vLLM and SGLang servers that the lab starts itself, from the folders that `tests/live/setup` makes.

Without it an engine starts a stand-in only, and a release that calls a flag differently is found by its user.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import engines
from lab.campaign import Arm, Limits
from lab.engines.base import ArmFailed
from lab.errors import InputError
from lab.hosts import marked_processes

LIMITS = Limits(start_seconds=400)
PLACES = {"vllm": "LAB_VLLM_DIR", "sglang": "LAB_SGLANG_DIR"}
CAP = 4
FLAGS: dict[str, dict[str, Any]] = {
    "vllm": {
        "load_format": "dummy",
        "dtype": "float32",
        "max_model_len": 1024,
        "enforce_eager": True,
        "kv_cache_memory_bytes": "256M",
        "max_num_seqs": CAP,
    },
    "sglang": {
        "load_format": "dummy",
        "device": "cpu",
        "max_total_tokens": 16384,
        "mem_fraction_static": 0.3,
        "max_running_requests": CAP,
    },
}
ENV = {
    "vllm": {},
    "sglang": {"SGLANG_USE_CPU_ENGINE": "1", "SGLANG_CPU_OMP_THREADS_BIND": "0", "CUDA_VISIBLE_DEVICES": ""},
}
RUNTIME = {"vllm": {}, "sglang": {"path": "$LAB_SGLANG_DIR/stubs"}}

each = pytest.mark.parametrize(
    "engine", [pytest.param(name, marks=getattr(pytest.mark, f"live_{name}")) for name in PLACES]
)
vllm_only = pytest.mark.live_vllm
sglang_only = pytest.mark.live_sglang


def arm(engine: str, **changes: Any) -> Arm:
    if not os.environ.get(PLACES[engine]):
        pytest.fail(f"{PLACES[engine]} is not set; name a folder there that tests/live/setup/{engine}_cpu.sh made")
    made = Arm(
        name="t",
        engine=engine,
        checkpoint=f"${PLACES[engine]}/models/tiny",
        flags={**FLAGS[engine], **changes},
        env=ENV[engine],
        runtime=RUNTIME[engine],
    )
    return engines.get(engine).located(made, Path.cwd())


@pytest.fixture
def marker(tmp_path: Path) -> Iterator[str]:
    name = f"tests/started/{tmp_path.name}"
    yield name
    assert marked_processes(name, exact=True) == []


@each
@pytest.mark.timeout(900)
def test_a_server_is_started_described_and_ended(engine: str, marker: str, tmp_path: Path) -> None:
    asked = arm(engine)
    found = engines.get(engine)
    found.check(asked)
    with found.launch(asked, tmp_path, LIMITS, marker) as server:
        facts = {key: fact.value for key, fact in server.describe().items()}
        sample = server.sample()
        assert server.alive()
        assert server.reset_cache()
    assert (facts["cap"], facts["cap_asked"], facts["model_name"]) == (CAP, CAP, "tiny")
    assert facts["build"] == found.build(asked)
    assert facts["kv_tokens"] and facts["kv_bytes"] and facts["context_tokens"]
    assert facts["speculative"] is False
    assert sample.running == 0
    assert sample.counters["output_tokens"] >= 4
    assert server.exit is not None
    assert not server.exit.forced


@each
@pytest.mark.timeout(600)
def test_a_flag_that_the_real_parser_does_not_know_is_refused_before_the_start(engine: str) -> None:
    with pytest.raises(InputError, match=f"flag 'max_seqs_running' is unknown to {engine}"):
        engines.get(engine).check(arm(engine, max_seqs_running=4))
    with pytest.raises(InputError, match="flag kv_cache_dtype: 'int3' is none of auto"):
        engines.get(engine).check(arm(engine, kv_cache_dtype="int3"))


@vllm_only
@pytest.mark.timeout(900)
def test_a_cache_that_spoils_the_text_is_noted(marker: str, tmp_path: Path) -> None:
    found = engines.get("vllm")
    with found.launch(arm("vllm", kv_cache_dtype="bfloat16"), tmp_path, LIMITS, marker) as server:
        facts = {key: fact.value for key, fact in server.describe().items()}
    assert facts["kv_bytes_per_token"] == 2048
    assert any("kv_cache_dtype bfloat16 under dtype float32" in text for text in facts["cautions"])


@vllm_only
@pytest.mark.timeout(900)
def test_a_server_that_is_green_and_dies_at_its_first_request_has_not_started(marker: str, tmp_path: Path) -> None:
    speculation = {
        "speculative_config.method": "mtp",
        "speculative_config.num_speculative_tokens": 1,
        "speculative_config.rejection_sample_method": "synthetic",
        "speculative_config.synthetic_acceptance_length": 1.8,
    }
    with pytest.raises(ArmFailed) as caught:
        engines.get("vllm").launch(arm("vllm", **speculation), tmp_path, LIMITS, marker)
    assert caught.value.failure.kind == "unsupported"
    assert "Synthetic acceptance not supported with CPU sampling" in caught.value.failure.reason


@vllm_only
@pytest.mark.timeout(900)
def test_a_cache_that_does_not_fit_is_out_of_memory(marker: str, tmp_path: Path) -> None:
    with pytest.raises(ArmFailed) as caught:
        engines.get("vllm").launch(arm("vllm", kv_cache_memory_bytes="1M"), tmp_path, LIMITS, marker)
    assert caught.value.failure.kind == "out-of-memory"
    assert "KV cache is needed" in caught.value.failure.reason


@sglang_only
@pytest.mark.timeout(600)
def test_a_name_that_moved_is_told_as_it_is_called_now() -> None:
    with pytest.raises(InputError, match="flag 'enable_ep_moe' is called 'ep_size' in sglang"):
        engines.get("sglang").check(arm("sglang", enable_ep_moe=True))
    with pytest.raises(InputError, match="flag 'cuda_graph_max_bs' is called 'cuda_graph_max_bs_decode' in sglang"):
        engines.get("sglang").check(arm("sglang", cuda_graph_max_bs=8))


@sglang_only
@pytest.mark.timeout(900)
def test_a_cache_type_that_the_processor_cannot_hold_is_unsupported(marker: str, tmp_path: Path) -> None:
    with pytest.raises(ArmFailed) as caught:
        engines.get("sglang").launch(arm("sglang", kv_cache_dtype="fp8_e4m3"), tmp_path, LIMITS, marker)
    assert caught.value.failure.kind == "unsupported"
    assert "CPU FP8 KV cache requires Intel AMX support" in caught.value.failure.reason
