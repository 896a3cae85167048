"""Levers about several devices say why they cannot exist on one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab.levers import LEVERS
from lab.levers.base import Lever
from tests.builders import MODEL, StubEngine, control_arm

ONE, FOUR = StubEngine("llamacpp"), StubEngine("sglang", devices=4, collectives=True)
EXPERTS = replace(MODEL, n_experts=64)


def make(name: str) -> Lever:
    return LEVERS[name](name, LEVERS[name].Options())


def test_one_device_has_no_collectives_to_tune() -> None:
    assert make("nccl_ll_ring").not_applicable(ONE, MODEL) == (
        "llamacpp runs on 1 device here: there are no collectives to tune"
    )


def test_a_dense_model_has_no_experts_to_spread() -> None:
    for engine in (ONE, FOUR):
        reason = make("expert_parallel").not_applicable(engine, MODEL)
        assert reason == "tiny is a dense model: it has no experts to spread"


def test_one_device_has_nothing_to_spread_experts_over() -> None:
    reason = make("expert_parallel").not_applicable(ONE, EXPERTS)
    assert reason == "llamacpp runs on 1 device here: there is nothing to spread experts over"


@pytest.mark.parametrize("name", ["nccl_ll_ring", "expert_parallel"])
def test_an_engine_without_a_treatment_is_named(name: str) -> None:
    assert make(name).not_applicable(FOUR, EXPERTS) == "no treatment is defined for sglang"
    assert make(name).treatments(control_arm(), FOUR) == []
