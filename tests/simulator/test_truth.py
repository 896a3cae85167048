"""The truth is strict, documented, and says which flag is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from lab.errors import InputError
from lab.simulator.truth import Truth, described, flag_names, flat, from_flags


def test_every_flag_is_described() -> None:
    told = described()
    assert [name for name, _, _ in told] == flag_names()
    assert not [name for name, _, text in told if len(text) < 5]


def test_a_truth_survives_the_way_through_flags() -> None:
    truth = from_flags({"speculation.tokens": 1, "speculation.acceptance": [0.5], "faults.cut_every": 2})
    assert from_flags(flat(truth.model_dump())) == truth


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"stepms": 1}, "did you mean 'step_ms'"),
        ({"speculation.token": 1}, "did you mean 'speculation.tokens'"),
        ({"step_ms": "fast"}, "flag step_ms"),
        ({"step_ms": 0}, "flag step_ms"),
        ({"max_running": 2.5}, "flag max_running"),
        ({"dialect": "trt"}, "flag dialect"),
        ({"speculation.tokens": 2, "speculation.acceptance": [0.5]}, "give one for each"),
        ({"speculation.tokens": 2, "speculation.acceptance": [0.5, 0.8]}, "never rise"),
        ({"speculation.tokens": 1, "speculation.acceptance": [1.5]}, "shares from 0 to 1"),
        ({"speculation.tokens": 1, "speculation.acceptance": [0.5], "speculation.kv_tokens_taken": 10**9}, "no cache"),
        ({"dialect": "llamacpp", "ranks": 2}, "no data parallelism"),
        ({"ignored_flags": ["specluation"]}, "did you mean 'speculation'"),
    ],
)
def test_a_wrong_flag_is_named(flags: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        from_flags(flags)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_dotted_flags_reach_their_groups() -> None:
    truth = from_flags({"output.repeats": 0.5, "faults.cut_every": 3, "max_running": 4})
    assert (truth.output.repeats, truth.faults.cut_every, truth.max_running) == (0.5, 3, 4)
    assert set(flag_names()) >= {"output.repeats", "faults.cut_every", "speculation.running_limit", "weights.layers"}


def test_ignored_flags_leave_the_default_in_force() -> None:
    asked = from_flags(
        {
            "speculation.tokens": 1,
            "speculation.acceptance": [0.5],
            "step_ms": 9.0,
            "ignored_flags": ["speculation", "step_ms"],
        }
    )
    truth = asked.resolved()
    assert truth.speculation.tokens == 0
    assert truth.step_ms == Truth().step_ms


def test_speculation_takes_cache_and_lowers_the_limit() -> None:
    spec = {"speculation.tokens": 1, "speculation.acceptance": [0.5], "speculation.kv_tokens_taken": 1000}
    truth = from_flags({**spec, "kv_tokens": 5000, "speculation.running_limit": 48, "max_running": 64})
    assert (truth.cap, truth.cache_tokens) == (48, 4000)
    off = from_flags({"kv_tokens": 5000, "speculation.kv_tokens_taken": 1000, "speculation.running_limit": 48})
    assert (off.cap, off.cache_tokens) == (64, 5000)
