"""The real server, small model: what it says of itself, and why it did not start when it does not."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from lab import engines
from lab.campaign import Arm, Limits
from lab.engines._llamacpp_facts import LlamaCppServer
from lab.engines._readiness import no_completion
from lab.engines.attach import recognise
from lab.engines.base import ArmFailed
from lab.errors import InputError
from lab.hosts import environment_of, marked_processes

MakeArm = Callable[..., Arm]
LIMITS = Limits(start_seconds=60)
SHARED_OR_NOT = ("use of the cache: only llama.cpp's log says whether its slots share one (--kv-unified)",)
llamacpp = engines.get("llamacpp")


@pytest.fixture
def marker() -> str:
    return f"test-{uuid.uuid4().hex}"


def values(server: LlamaCppServer) -> dict[str, object]:
    return {key: fact.value for key, fact in server.describe().items()}


def complete(server: LlamaCppServer, prompt: str, tokens: int) -> dict[str, object]:
    body = {
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        **llamacpp.request_extras(),
    }
    answer = requests.post(f"{server.url}/v1/chat/completions", json=body, timeout=60)
    answer.raise_for_status()
    return answer.json()


def test_the_control_describes_itself(arm: MakeArm, checkpoint: Path, tmp_path: Path, marker: str) -> None:
    with llamacpp.launch(arm(env={"HF_TOKEN": "x"}), tmp_path, LIMITS, marker) as server:
        facts = values(server)
        before = server.sample()
        answer = complete(server, "The sea is", 8)
        after = server.sample()
        assert environment_of(server.pid)["LAB_LAUNCH"] == marker
        assert server.alive()
        assert answer["model"] == server.model
        assert all(fact.source for fact in server.describe().values())
    assert facts == facts | {
        "n_slots": 4,
        "cap": 4,
        "cap_source": "its slots, --parallel",
        "n_ctx_per_slot": 1024,
        "n_threads": 1,
        "n_threads_batch": 1,
        "n_batch": 2048,
        "n_ubatch": 512,
        "kv_dtype_k": "f16",
        "kv_dtype_v": "f16",
        "kv_tokens": 4096,
        "kv_bytes": 90 * 1024 * 1024,
        "kv_unified": False,
        "checkpoint_format": "Q4_1",
        "checkpoint_path": str(checkpoint),
        "weight_bytes": 96576768,
        "flash_attention": True,
        "graph_reuse": True,
        "speculative": False,
        "speculative_types": [],
        "omp_wait_policy": None,
    }
    assert facts["graphs_reused"] > 0
    assert str(facts["build"]).startswith("llama.cpp b")
    assert llamacpp.build(arm()) in str(facts["build"])
    assert after.counters["output_tokens"] - before.counters["output_tokens"] == 8
    assert (after.running, after.waiting, after.kv_usage) == (0, 0, 0)
    assert "requests_finished" not in after.counters
    assert (server.exit.code, server.exit.forced) == (0, False)
    assert not server.alive()
    assert not marked_processes(marker)
    assert server.env == {"HF_TOKEN": "<removed>"}
    assert json.loads(server.argv[-1])["n_parallel"] == 4
    assert "main loop exited" in server.log_text()


def test_levers_show_their_effect(arm: MakeArm, tmp_path: Path, marker: str) -> None:
    treatment = arm(
        n_threads=2,
        n_parallel=2,
        n_ubatch=128,
        cache_type_k="q8_0",
        cache_type_v="q8_0",
        speculative="ngram_simple",
        env={"OMP_WAIT_POLICY": "passive", "LLAMA_GRAPH_REUSE_DISABLE": "1"},
        **{"speculative.ngram_simple.size_n": 3, "speculative.ngram_simple.size_m": 4},
    )
    with llamacpp.launch(treatment, tmp_path, LIMITS, marker) as server:
        complete(server, "Repeat this text: " + "the cat sat on the mat and the cat was happy. " * 2, 32)
        facts, sample = values(server), server.sample()
    assert facts == facts | {
        "n_slots": 2,
        "n_threads": 2,
        "n_threads_batch": 2,
        "n_ubatch": 128,
        "kv_dtype_k": "q8_0",
        "kv_dtype_v": "q8_0",
        "speculative": True,
        "speculative_types": ["ngram_simple"],
        "graph_reuse": False,
        "graphs_reused": 0,
        "omp_wait_policy": "passive",
    }
    assert facts["kv_bytes"] < 50 * 1024 * 1024
    assert sample.counters["draft_tokens"] >= sample.counters["draft_accepted"] > 0


def test_flash_attention_can_be_off(arm: MakeArm, tmp_path: Path, marker: str) -> None:
    with llamacpp.launch(arm(flash_attn="off", load_mode="none"), tmp_path, LIMITS, marker) as server:
        facts = values(server)
    assert (facts["flash_attention"], facts["load_mode"]) == (False, "none")


def test_running_and_waiting_requests_are_counted(arm: MakeArm, tmp_path: Path, marker: str) -> None:
    with llamacpp.launch(arm(n_parallel=1), tmp_path, LIMITS, marker) as server:
        requests_sent = [threading.Thread(target=complete, args=(server, "Tell me of rain.", 24)) for _ in range(3)]
        for thread in requests_sent:
            thread.start()
        samples = []
        while any(thread.is_alive() for thread in requests_sent):
            samples.append(server.sample())
        assert max(sample.running for sample in samples) == 1
        assert max(sample.waiting for sample in samples) == 2


@pytest.mark.parametrize(
    ("flags", "kind", "reason"),
    [
        ({"cache_type_k": "q4_k"}, "unsupported", "K cache type q4_K with block size 256 does not divide"),
        (
            {"cache_type_v": "q8_0", "flash_attn": "off"},
            "unsupported",
            "quantized V cache requires flash_attn to be enabled",
        ),
        ({"n_ubach": 64}, "bad-flag", "flag n_ubach: unknown"),
    ],
)
def test_a_failed_start_gives_the_engines_reason(
    arm: MakeArm, tmp_path: Path, marker: str, flags: dict[str, object], kind: str, reason: str
) -> None:
    with pytest.raises(ArmFailed) as caught:
        llamacpp.launch(arm(**flags), tmp_path, LIMITS, marker)
    assert caught.value.failure.kind == kind
    assert caught.value.failure.reason.startswith(reason)
    assert not marked_processes(marker)


def test_a_damaged_checkpoint_is_named(arm: MakeArm, tmp_path: Path, marker: str) -> None:
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(b"not a model")
    with pytest.raises(ArmFailed) as caught:
        llamacpp.launch(arm().model_copy(update={"checkpoint": str(damaged)}), tmp_path, LIMITS, marker)
    assert caught.value.failure.kind == "missing-checkpoint"


def test_a_port_taken_after_the_check_is_named(
    arm: MakeArm, tmp_path: Path, marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.engines._llamacpp_flags._port_is_free", lambda port: True)
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ArmFailed) as caught:
        llamacpp.launch(arm(port=taken.getsockname()[1]), tmp_path, LIMITS, marker)
    assert caught.value.failure.kind == "port-in-use"


def test_a_start_that_takes_too_long_is_ended(arm: MakeArm, tmp_path: Path, marker: str) -> None:
    hurried = LIMITS.model_copy(update={"start_seconds": 0.1})
    with pytest.raises(ArmFailed) as caught:
        llamacpp.launch(arm(), tmp_path, hurried, marker)
    assert caught.value.failure.kind == "start-timeout"
    assert not marked_processes(marker)


def test_a_server_that_dies_is_noticed(arm: MakeArm, tmp_path: Path, marker: str) -> None:
    with llamacpp.launch(arm(), tmp_path, LIMITS, marker) as server:
        os.kill(server.pid, signal.SIGKILL)
        while server.alive():
            pass
        with pytest.raises(requests.RequestException):
            server.sample()
    assert server.exit.code == -signal.SIGKILL


def test_other_models_and_other_pages_are_not_taken_for_ours(arm: MakeArm, tmp_path: Path, marker: str) -> None:
    with llamacpp.launch(arm(), tmp_path, LIMITS, marker) as server:
        assert no_completion(server, 30) == ""
        ours, server.model = server.model, "somebody-elses"
        assert no_completion(server, 30) == f"the completion came from model '{ours}'"
        server.url += "/elsewhere"
        with pytest.raises(requests.RequestException):
            server.sample()


def test_a_server_that_somebody_else_runs_is_read_by_its_url(arm: MakeArm, tmp_path: Path, marker: str) -> None:
    with llamacpp.launch(arm(), tmp_path, LIMITS, marker) as started:
        with recognise(started.url) as found:
            before = found.sample()
            complete(found, "The sea is", 8)
            after = found.sample()
            facts = values(found)
        assert started.alive(), "leaving an attached server does not end it"
        assert (found.engine, found.model, found.url, found.missing) == (
            "llamacpp",
            started.model,
            started.url,
            SHARED_OR_NOT,
        )
        assert (found.pid, found.stop(), found.log_text()) == (None, None, "")
        assert found.alive()
    assert not found.alive()
    assert after.counters["output_tokens"] - before.counters["output_tokens"] == 8
    assert (after.running, after.waiting) == (0, 0)
    assert facts == facts | {
        "cap": 4,
        "context_tokens": 1024,
        "ranks": 1,
        "checkpoint_format": "Q4_1",
        "speculative": False,
        "kv_dtype_k": None,
        "omp_wait_policy": None,
        "faked": None,
    }
    with pytest.raises(InputError, match="nothing listens there"):
        recognise(started.url)
