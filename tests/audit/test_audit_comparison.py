"""Arms that were asked something else, or ran on something else, are told from arms that differ by the lever alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.audit.base import INVALID, WARNING, Code, Context
from lab.audit.comparison import (
    arms_not_comparable,
    config_unresolved,
    input_length_between,
    output_length_drift,
    prompt_set_differs,
)
from lab.audit.thresholds_comparison import (
    INPUT_LENGTH_SHARE,
    LENGTH_PAIRS_MIN,
    OUTPUT_LENGTH_ERRORS,
    OUTPUT_LENGTH_SHARE,
    WINDOW_SECONDS_SHARE,
)
from tests.audit.two_arms import control_trial, treatment_trial
from tests.builders import control_arm

OTHER = {"prompts.digest": "1" * 64, "prompts.salt": "zzz999"}
CARD = {"index": 0, "name": "RTX PRO 6000", "uuid": "GPU-1", "driver": "595.10"}


def lengths(values: list[float], name: str = "lengths_measured", first: int = 0) -> dict[str, Any]:
    return {"client.prompts_measured": list(range(first, first + len(values))), f"client.{name}": values}


def test_other_prompts_than_the_controls_of_the_same_pass_are_invalid() -> None:
    code = prompt_set_differs(treatment_trial(OTHER), Context(control=control_trial()))
    assert code is not None and (code.code, code.severity) == ("prompt-set-differs", INVALID)
    assert code.text.startswith(
        "other prompts than those of 002-control/chat-c4 in the same pass (digest 111111111111, "
    )
    assert (code.figures["salt"], code.figures["salt_control"]) == ("zzz999", "abc123")


def test_equal_prompts_no_control_and_a_control_of_another_pass_are_silent() -> None:
    opening = control_trial(**{"pass": 0, "launch": 0, "order": 0})
    assert prompt_set_differs(treatment_trial(), Context(control=control_trial())) is None
    assert prompt_set_differs(treatment_trial(OTHER), Context()) is None
    assert prompt_set_differs(treatment_trial(OTHER), Context(control=opening)) is None


def input_drift(share: float) -> Code | None:
    theirs = lengths([100.0] * 50, "prompt_tokens_measured")
    mine = lengths([100.0 * (1 + share)] * 80, "prompt_tokens_measured")
    return input_length_between(treatment_trial(mine), Context(control=control_trial(theirs)))


@pytest.mark.parametrize("sign", [1, -1])
def test_the_same_prompts_must_count_the_same_tokens(sign: int) -> None:
    code = input_drift(sign * (INPUT_LENGTH_SHARE + 0.001))
    assert code is not None and (code.code, code.severity) == ("input-length-drift", INVALID)
    assert code.figures["prompts"] == 50
    assert input_drift(sign * (INPUT_LENGTH_SHARE - 0.001)) is None


def test_only_prompts_that_both_arms_finished_are_counted() -> None:
    """The faster arm gets to longer prompts; that is no drift."""
    theirs = lengths([100.0] * 40, "prompt_tokens_measured")
    mine = lengths([100.0] * 40 + [900.0] * 40, "prompt_tokens_measured")
    assert input_length_between(treatment_trial(mine), Context(control=control_trial(theirs))) is None


def test_prompt_lengths_that_are_unknown_or_of_other_prompts_are_not_compared() -> None:
    theirs = lengths([100.0] * 40, "prompt_tokens_measured")
    twice = lengths([200.0] * 40, "prompt_tokens_measured")
    assert input_length_between(treatment_trial({**twice, **OTHER}), Context(control=control_trial(theirs))) is None
    assert input_length_between(treatment_trial(twice), Context(control=control_trial())) is None
    assert input_length_between(treatment_trial(twice), Context()) is None
    gaps = lengths([None] * 40, "prompt_tokens_measured")  # type: ignore[list-item]
    assert input_length_between(treatment_trial(gaps), Context(control=control_trial(theirs))) is None


def output_drift(mine: list[float], theirs: list[float], **context: Any) -> Code | None:
    control = control_trial(lengths(theirs))
    return output_length_drift(treatment_trial(lengths(mine)), Context(control=control, **context))


def test_shorter_answers_to_the_same_prompts_are_invalid() -> None:
    theirs = [float(20 + index % 7) for index in range(60)]
    code = output_drift([value * 0.8 for value in theirs], theirs)
    assert code is not None and (code.code, code.severity) == ("output-length-drift", INVALID)
    assert "(-20.0%, standard error" in code.text
    assert code.figures["prompts"] == 60


def test_a_lever_that_may_change_the_text_gets_a_warning() -> None:
    code = output_drift([16.0] * 60, [20.0] * 60, lever_changes_text=True)
    assert code is not None and code.severity == WARNING


def test_both_limits_must_be_passed() -> None:
    small = [20.0 * (1 + OUTPUT_LENGTH_SHARE * 0.98)] * 60
    large = [20.0 * (1 + OUTPUT_LENGTH_SHARE * 1.02)] * 60
    assert output_drift(small, [20.0] * 60) is None
    assert output_drift(large, [20.0] * 60) is not None


@pytest.mark.parametrize(
    ("errors", "fires"), [(OUTPUT_LENGTH_ERRORS * 0.97, False), (OUTPUT_LENGTH_ERRORS * 1.03, True)]
)
def test_a_difference_within_chance_is_silent(errors: float, fires: bool) -> None:
    spread, pairs = 30.0, 100
    error = spread / (pairs - 1) ** 0.5
    noise = [spread if index % 2 else -spread for index in range(pairs)]
    mine = [100.0 + errors * error + wobble for wobble in noise]
    assert (output_drift(mine, [100.0] * pairs) is not None) == fires


@pytest.mark.parametrize(("pairs", "fires"), [(LENGTH_PAIRS_MIN - 1, False), (LENGTH_PAIRS_MIN, True)])
def test_a_handful_of_pairs_says_nothing(pairs: int, fires: bool) -> None:
    assert (output_drift([10.0] * pairs, [20.0] * pairs) is not None) == fires


def test_answers_to_other_prompts_are_not_paired() -> None:
    control = control_trial(lengths([20.0] * 60))
    late = treatment_trial(lengths([10.0] * 60, first=1000))
    assert output_length_drift(late, Context(control=control)) is None
    assert output_length_drift(treatment_trial({**lengths([10.0] * 60), **OTHER}), Context(control=control)) is None
    assert output_drift([1.0] * 60, [0.0] * 60) is None


@given(st.lists(st.integers(1, 400), min_size=LENGTH_PAIRS_MIN, max_size=80), st.randoms(use_true_random=False))
def test_equal_answers_never_drift_in_whatever_order_they_came(values: list[int], chance: Any) -> None:
    pairs = list(enumerate(values))
    chance.shuffle(pairs)
    mine = {
        "client.prompts_measured": [prompt for prompt, _ in pairs],
        "client.lengths_measured": [value for _, value in pairs],
    }
    control = control_trial(lengths([float(value) for value in values]))
    assert output_length_drift(treatment_trial(mine), Context(control=control)) is None


def comparable(mine: dict[str, Any], theirs: dict[str, Any] | None = None) -> Code | None:
    return arms_not_comparable(treatment_trial(**mine), Context(control=control_trial(**(theirs or {}))))


def test_arms_that_differ_by_the_lever_alone_are_comparable() -> None:
    assert comparable({"arm": {"flags": {"speculative": "ngram"}}, "facts": {"speculative": True}}) is None
    assert arms_not_comparable(treatment_trial({"prompts.api": "completions"}), Context()) is None


@pytest.mark.parametrize(
    ("mine", "theirs", "said"),
    [
        ({"build": "b2"}, {"build": "b1"}, "engine build b2, there b1"),
        ({"facts": {"version": "0.6"}}, {"facts": {"version": "0.5"}}, "engine version 0.6, there 0.5"),
        (
            {"changes": {"prompts.sampling": {"temperature": 1}}},
            {},
            "sampling seed None, there 1; sampling temperature",
        ),
        ({"changes": {"prompts.ignore_eos": True}}, {}, "request ignore_eos True, there False"),
        ({"changes": {"prompts.thinking": "off"}}, {}, "request thinking off, there default"),
        ({"changes": {"prompts.templated": False}}, {}, "request templated False, there True"),
        ({"changes": {"prompts.api": "completions"}}, {}, "request api completions, there chat"),
        ({"changes": {"prompts.arrivals": "poisson"}}, {}, "request arrivals poisson, there closed"),
        ({"changes": {"prompts.rate_rps": 3.0}}, {}, "request rate_rps 3.0, there None"),
        ({"changes": {"window.time_factor": 5.0}}, {}, "time factor 5.0, there 1.0"),
        ({"simulated": True}, {}, "simulated simulated True, there False"),
        ({"machine": {"cpu_model": "A"}}, {"machine": {"cpu_model": "B"}}, "machine cpu_model A, there B"),
        (
            {"machine": {"gpus": [CARD]}},
            {"machine": {"gpus": [{**CARD, "driver": "590.1"}]}},
            "driver 595.10, there 590.1",
        ),
        (
            {"machine": {"gpus": [CARD]}},
            {"machine": {"gpus": [CARD, {**CARD, "uuid": "GPU-2"}]}},
            "GPUs RTX PRO 6000 GPU-1, there RTX PRO 6000 GPU-1, RTX PRO 6000 GPU-2",
        ),
        ({"checkpoint": {"sha256": "a"}}, {"checkpoint": {"sha256": "b"}}, "checkpoint sha256 a, there b"),
    ],
)
def test_whatever_else_differs_is_invalid(mine: dict[str, Any], theirs: dict[str, Any], said: str) -> None:
    code = comparable(mine, theirs)
    assert code is not None and (code.code, code.severity) == ("arms-not-comparable", INVALID)
    assert code.text.startswith(f"differs from 002-control/chat-c4 in more than the lever: {said}")
    assert code.figures


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ({"build": "b2", "arm": {"runtime": {"release": "2"}}}, {"build": "b1"}),
        ({"checkpoint": {"sha256": "a"}, "arm": {"checkpoint": "other"}}, {"checkpoint": {"sha256": "b"}}),
        (
            {"machine": {"gpus": [{**CARD, "uuid": "GPU-2"}]}, "arm": {"env": {"CUDA_VISIBLE_DEVICES": "1"}}},
            {"machine": {"gpus": [CARD]}},
        ),
        ({"build": "b2"}, {}),
        ({"machine": {"cpu_model": "A"}}, {"machine": {}}),
        ({"machine": {"gpus": [CARD]}}, {"machine": {}}),
        ({"machine": {"gpus": [CARD]}}, {"machine": {"gpus": [dict(CARD)]}}),
    ],
)
def test_what_the_arm_declares_or_a_record_does_not_say_is_no_difference(
    mine: dict[str, Any], theirs: dict[str, Any]
) -> None:
    assert comparable(mine, theirs) is None


@pytest.mark.parametrize(("over", "fires"), [(-0.001, False), (0.001, True)])
def test_windows_may_differ_by_the_jitter_of_timers(over: float, fires: bool) -> None:
    code = comparable({"changes": {"window.seconds": 6.0 * (1 + WINDOW_SECONDS_SHARE + over)}})
    assert (code is not None) == fires


@pytest.mark.parametrize(
    ("facts", "arm"),
    [
        ({"cap": "auto"}, {}),
        ({"kv_dtype_k": "Auto"}, {}),
        ({"kv_dtype_v": "null"}, {}),
        ({"model_path": "/models/${MODEL}"}, {}),
        ({}, {"checkpoint": "${CHECKPOINT}"}),
    ],
)
def test_a_placeholder_in_the_arms_identity_is_invalid(facts: dict[str, Any], arm: dict[str, Any]) -> None:
    code = config_unresolved(treatment_trial(facts=facts, arm=arm), Context())
    assert code is not None and (code.code, code.severity) == ("config-unresolved", INVALID)
    assert str(next(iter({**facts, **arm}.values()))) in code.text


def test_a_placeholder_elsewhere_and_a_silent_fact_are_no_falsehood() -> None:
    assert (
        config_unresolved(treatment_trial(facts={"attention_backend": "auto", "kv_dtype_k": None}), Context()) is None
    )


def test_silence_about_the_very_setting_of_the_lever_is_a_warning() -> None:
    arm = {"flags": {"n_threads": 2}, "env": {"OMP_WAIT_POLICY": "active"}}
    silent = treatment_trial(facts={"n_threads": None, "omp_wait_policy": "active"}, arm=arm)
    code = config_unresolved(silent, Context(control=control_trial()))
    assert code is not None and code.severity == WARNING
    assert code.text == "the server does not say which n_threads it uses, which is what the lever sets"
    assert config_unresolved(silent, Context()) is None
    same = control_trial(arm=control_arm(**arm))
    assert config_unresolved(silent, Context(control=same)) is None
