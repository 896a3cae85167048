"""Speculation measured on text that no user sends, or read from a gauge."""

from __future__ import annotations

from typing import Any

import pytest

from lab.audit.base import INVALID, WARNING, Context
from lab.audit.speculation import faked_output, spec_gauge_snapshot, spec_random_tokens
from lab.audit.thresholds import REPEATS_SHARE
from tests.builders import trial_in_memory


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, None),
        ({"prompts.synthetic": True}, "random tokens"),
        ({"prompts.templated": False}, "without the model's chat template"),
        ({"client.repeats_share": REPEATS_SHARE}, None),
        ({"client.repeats_share": REPEATS_SHARE + 0.01}, "6% of the answers end in a short repeating cycle"),
        ({"client.repeats_share": None}, None),
    ],
)
def test_acceptance_on_text_that_nobody_sends(changes: dict[str, Any], said: str | None) -> None:
    code = spec_random_tokens(trial_in_memory(changes, facts={"speculative": True}), Context())
    assert (code is not None) == (said is not None)
    if code is not None:
        assert (code.code, code.severity) == ("spec-random-tokens", INVALID)
        assert said in code.text
    assert spec_random_tokens(trial_in_memory(changes, facts={"speculative": False}), Context()) is None


def test_a_server_that_does_not_say_so_and_drafts_is_speculative() -> None:
    changes = {"prompts.synthetic": True, "metrics.acceptance": 0.6}
    assert spec_random_tokens(trial_in_memory(changes), Context()) is not None


@pytest.mark.parametrize(
    ("source", "fires"), [("gauge", True), ("counters", False), ("requests", False), (None, False)]
)
def test_a_gauge_is_no_average(source: str | None, fires: bool) -> None:
    code = spec_gauge_snapshot(trial_in_memory({"metrics.acceptance_source": source}), Context())
    assert (code is not None) == fires
    if code is not None:
        assert (code.severity, code.withdraws) == (WARNING, ("acceptance", "acceptance_length"))


@pytest.mark.parametrize(("faked", "fires"), [("SGLANG_SIMULATE_ACC_LEN=3", True), (False, False), (None, False)])
def test_results_made_up_on_order_are_refused(faked: str | bool | None, fires: bool) -> None:
    code = faked_output(trial_in_memory({}, facts={"faked": faked}), Context())
    assert (code is not None) == fires
    if code is not None:
        assert code.severity == INVALID
        assert faked in code.text
