"""Prompts that were cached although every one should be new."""

from __future__ import annotations

from typing import Any

import pytest

from lab.audit.base import INVALID, WARNING, Context
from lab.audit.cache import prefix_contamination
from lab.audit.thresholds import (
    PREFIX_APART_POINTS,
    PREFIX_SHARE,
    PREFIX_TOLD_POINTS,
    TEMPLATE_TOKENS_MOST,
    TEMPLATE_TOKENS_SLACK,
)
from tests.builders import trial_in_memory


def cached(share: float | None, facts: dict[str, Any] | None = None, control: float | None = None, **changes: Any):
    fields = {"metrics.prefix_hit_share": share, **{key.replace("__", "."): value for key, value in changes.items()}}
    other = trial_in_memory({"metrics.prefix_hit_share": control}) if control is not None else None
    return prefix_contamination(trial_in_memory(fields, facts), Context(control=other))


@pytest.mark.parametrize(("share", "fires"), [(PREFIX_SHARE, False), (PREFIX_SHARE + 0.001, True), (None, False)])
def test_more_than_a_percent_of_new_prompts_is_contamination(share: float | None, fires: bool) -> None:
    code = cached(share)
    assert (code is not None) == fires
    assert code is None or (code.code, code.severity) == ("prefix-contamination", INVALID)


def test_a_template_that_all_prompts_share_is_no_repeat() -> None:
    common, length = 30.0, 50
    allowed = PREFIX_SHARE + (common + TEMPLATE_TOKENS_SLACK) / length
    assert cached(allowed, client__cached_tokens_common=common) is None
    code = cached(allowed + 0.01, client__cached_tokens_common=common)
    assert code is not None and "the template explains 38 tokens of 50" in code.text
    assert cached(0.3, prompts__templated=False, client__cached_tokens_common=common) is not None


def test_long_prompts_that_were_all_cached_are_not_taken_for_a_template() -> None:
    code = cached(0.99, client__cached_tokens_common=1000.0, client__prompt_tokens_mean=1024.0)
    assert code is not None and code.figures["template_tokens"] == TEMPLATE_TOKENS_MOST


def test_where_no_request_tells_one_block_may_be_the_template() -> None:
    assert cached(0.3, {"block_tokens": 16}, client__cached_tokens_common=None) is None
    assert cached(0.6, {"block_tokens": 16}, client__cached_tokens_common=None) is not None
    assert cached(0.3, client__cached_tokens_common=None) is not None


@pytest.mark.parametrize(
    ("control", "fires"),
    [(0.5 - PREFIX_APART_POINTS + 0.001, False), (0.5 - PREFIX_APART_POINTS - 0.001, True), (None, False)],
)
def test_declared_reuse_is_compared_between_arms(control: float | None, fires: bool) -> None:
    code = cached(0.5, control=control, prompts__reuse=True)
    assert (code is not None) == fires
    assert code is None or code.severity == WARNING


@pytest.mark.parametrize(
    ("told", "fires"),
    [(0.9, True), (PREFIX_TOLD_POINTS - 0.01, False), (0.0, False), (None, False)],
)
def test_answers_that_tell_of_more_than_the_counters_are_heard(told: float | None, fires: bool) -> None:
    code = cached(0.0, client__cached_share=told)
    assert (code is not None) == fires
    if code is not None:
        assert code.severity == INVALID
        assert "(by its counters 0.0% of the prompt tokens were cached, by its answers 90.0%)" in code.text


@pytest.mark.parametrize(("told", "fires"), [(0.4, True), (0.5, False), (0.0, False), (None, False)])
def test_where_reuse_is_declared_a_contradiction_is_a_warning(told: float | None, fires: bool) -> None:
    code = cached(0.5, client__cached_share=told, prompts__reuse=True)
    assert (code is not None) == fires
    assert code is None or (code.severity, "one of them is false" in code.text) == (WARNING, True)
