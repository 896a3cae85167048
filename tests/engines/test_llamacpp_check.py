"""What cannot work is refused in one line before anything starts, and what works is not."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lab import engines
from lab.campaign import Arm
from lab.engines import _llamacpp_flags as flags_of
from lab.errors import InputError

MakeArm = Callable[..., Arm]
llamacpp = engines.get("llamacpp")


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"n_threads": 2, "n_ubatch": 128, "kv_unified": True},
        {"cache_type_k": "q8_0", "cache_type_v": "Q4_0", "flash_attn": "on"},
        {"flash_attn": False},
        {"flash_attn": "auto", "load_mode": "none"},
        {"speculative": "ngram_simple", "speculative.ngram_simple.size_n": 4},
        {"speculative": ["ngram_mod", "ngram_cache"]},
        {"speculative.draft.p_min": 1, "cpuparams.poll": 0},
        {"speculative": "draft_simple", "draft_model": "smollm2-135m-q4_0"},
    ],
)
def test_valid_flags_pass(arm: MakeArm, flags: dict[str, object]) -> None:
    llamacpp.check(arm(**flags))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"n_paralel": 4}, "arm 't': flag 'n_paralel' is unknown to llama.cpp; did you mean 'n_parallel'?"),
        ({"speculative.ngram_simpel.size_n": 4}, "did you mean 'speculative.ngram_simple.size_n'?"),
        ({"__class__": 4}, "flag '__class__' is unknown"),
        ({"n_parallel": "four"}, "flag n_parallel: 'four' does not fit; expected int"),
        ({"n_parallel": True}, "flag n_parallel: True does not fit; expected int"),
        ({"n_parallel": 2.5}, "flag n_parallel: 2.5 does not fit; expected int"),
        ({"n_ctx": 2**40}, "value too large"),
        ({"kv_unified": 1}, "flag kv_unified: 1 does not fit; expected bool"),
        ({"n_threads": "two"}, "flag n_threads: 'two' does not fit; expected int"),
        ({"cache_type_k": "q9_9"}, "flag cache_type_k: 'q9_9' is none of bf16, f16"),
        ({"cache_type_k": 8}, "flag cache_type_k: 8 is none of"),
        ({"flash_attn": "maybe"}, "flag flash_attn: 'maybe' is none of auto, disabled, enabled, off, on"),
        ({"speculative": "ngram"}, "flag speculative: 'ngram' is none of draft_dflash"),
        ({"speculative.draft": 3}, "expected one of its attributes"),
        ({"n_parallel": 0}, "flag n_parallel: 0 leaves no slot"),
        ({"n_ubatch": -5}, "flag n_ubatch: -5 is not a count; use 1 or more"),
        ({"n_batch": 0}, "flag n_batch: 0 is not a count; use 1 or more"),
        ({"port": 70000}, "flag port: 70000 is in use or out of range"),
        ({"speculative.synth_len": 3.0}, "flag 'speculative.synth_len' is refused: synthetic acceptance"),
        ({"api_keys": ["k"]}, "flag 'api_keys' is refused"),
        ({"speculative": "draft_simple"}, "needs draft_model"),
        ({"draft_model": __file__}, "it is never used"),
        ({"speculative": "draft_simple", "draft_model": "/none.gguf"}, "/none.gguf: no such file"),
    ],
)
def test_wrong_flags_are_named(arm: MakeArm, flags: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        llamacpp.check(arm(**flags))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_first_wrong_arm_of_several_is_named(arm: MakeArm) -> None:
    wrong = arm(n_ubach=64).model_copy(update={"name": "small-batch"})
    with pytest.raises(InputError, match="arm 'small-batch': flag 'n_ubach'"):
        llamacpp.check_all([arm(), wrong, arm(n_ctxx=1)])
    llamacpp.check_all([arm(), arm(n_ubatch=64)])


def test_a_missing_checkpoint_is_named(arm: MakeArm) -> None:
    with pytest.raises(InputError, match=r"/no/such\.gguf: no such file"):
        llamacpp.check(arm().model_copy(update={"checkpoint": "/no/such.gguf"}))
    llamacpp.check(arm().model_copy(update={"checkpoint": "smollm2-135m-q8_0"}))


def test_a_port_in_use_is_refused_and_a_free_one_is_not(arm: MakeArm) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"flag port: {port} is in use or out of range"):
            llamacpp.check(arm(port=port))
    llamacpp.check(arm(port=port))


def test_a_runtime_that_cannot_serve_is_refused(arm: MakeArm, tmp_path: Path) -> None:
    without = tmp_path / "python"
    without.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    without.chmod(0o755)
    with pytest.raises(InputError, match=r"cannot serve llama.cpp: .*xllamacpp.*; install it with: "):
        llamacpp.check(arm(runtime={"python": str(without)}))
    with pytest.raises(InputError, match="is not an executable file"):
        llamacpp.check(arm(runtime={"python": str(tmp_path / "none")}))
    with pytest.raises(InputError, match="runtime 'image' is not for llamacpp; known: python"):
        llamacpp.check(arm(runtime={"image": "x"}))
    llamacpp.check(arm(runtime={"python": sys.executable}))


def test_exact_paths_win_over_friendly_names_and_pins(arm: MakeArm) -> None:
    asked = arm(**{"cpuparams_batch.n_threads": 4, "n_threads": 2, "cache_ram_mib": 16})
    wanted = flags_of.attributes(asked)
    assert (wanted["cpuparams.n_threads"], wanted["cpuparams_batch.n_threads"]) == (2, 4)
    assert wanted["cache_ram_mib"] == 16
    assert flags_of.attributes(arm())["cpuparams_batch.n_threads"] == 1


def test_only_the_arm_steers_the_engine_by_environment(arm: MakeArm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_GRAPH_REUSE_DISABLE", "1")
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    monkeypatch.setenv("HOME", "/home/somebody")
    given = flags_of.environment(arm(env={"OMP_WAIT_POLICY": "passive"}))
    assert given["OMP_WAIT_POLICY"] == "passive"
    assert given["HOME"] == "/home/somebody"
    assert "LLAMA_GRAPH_REUSE_DISABLE" not in given
