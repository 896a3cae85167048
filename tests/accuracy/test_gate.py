"""The paired gate against the figures of the literature, and its behaviour where there is nothing to count."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from lab.accuracy.gate import (
    FAIL,
    PASS,
    UNDECIDED,
    detectable_drop_pct,
    drop_bounds_pct,
    gate,
    mcnemar_p,
    standard_error_pct,
    state,
)


def record(right: set[int], items: int, protocol: str = "p") -> dict[str, Any]:
    wrong = sorted(set(range(items)) - right)
    return {"items": items, "right": sorted(right), "wrong": wrong, "unparsed": 0, "protocol": protocol}


def arms(both: int, lost: int, gained: int, neither: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Control and treatment with these four counts."""
    items = both + lost + gained + neither
    control = set(range(both + lost))
    treatment = set(range(both)) | set(range(both + lost, both + lost + gained))
    return record(control, items), record(treatment, items)


@pytest.mark.parametrize(
    ("lost", "gained", "p"), [(9, 3, 0.146), (12, 4, 0.077), (15, 5, 0.041), (40, 22, 0.030), (0, 0, 1.0), (5, 5, 1.0)]
)
def test_the_exact_test_gives_the_published_values(lost: int, gained: int, p: float) -> None:
    assert mcnemar_p(lost, gained) == pytest.approx(p, abs=5e-4)


@given(st.integers(0, 60), st.integers(0, 60))
def test_the_exact_test_is_the_binomial_one(lost: int, gained: int) -> None:
    if lost + gained:
        assert mcnemar_p(lost, gained) == pytest.approx(binomtest(lost, lost + gained).pvalue)


@pytest.mark.parametrize(
    ("items", "discordant", "points"),
    [(200, 6, 3.4), (200, 12, 4.9), (200, 20, 6.3), (500, 15, 2.2), (500, 30, 3.1), (500, 50, 4.0)],
)
def test_the_detectable_drop_is_that_of_the_table(items: int, discordant: int, points: float) -> None:
    assert detectable_drop_pct(discordant, 0, items) == pytest.approx(points, abs=0.06)


def test_the_standard_error_is_that_of_paired_shares() -> None:
    assert standard_error_pct(9, 3, 100) == pytest.approx(100 * (12 - 36 / 100) ** 0.5 / 100)


def test_no_discordant_item_proves_little_on_few_items_and_enough_on_many() -> None:
    assert drop_bounds_pct(0, 0, 20)[1] > 5
    assert drop_bounds_pct(0, 0, 200)[1] < 1


def test_what_the_gate_says_of_one_comparison() -> None:
    found = gate(*arms(both=170, lost=9, gained=3, neither=18), max_drop_pct=5)
    assert found is not None
    assert (found.items, found.lost, found.gained) == (200, 9, 3)
    assert (found.control_pct, found.drop_pct) == (pytest.approx(89.5), pytest.approx(3.0))
    assert found.low_pct < found.drop_pct < found.high_pct
    assert found.p_value == pytest.approx(0.146, abs=5e-4)


@pytest.mark.parametrize(
    ("lost", "gained", "outcome", "word"),
    [
        (0, 0, PASS, "same"),
        (3, 3, PASS, "same"),
        (8, 2, UNDECIDED, "unknown"),
        (12, 2, UNDECIDED, "unknown"),
        (16, 0, FAIL, "worse"),
        (95, 0, FAIL, "worse"),
        (97, 0, FAIL, "broken"),
    ],
)
def test_pass_fail_and_undecided(lost: int, gained: int, outcome: str, word: str) -> None:
    found = gate(*arms(both=192 - lost - gained, lost=lost, gained=gained, neither=8), max_drop_pct=5)
    assert found is not None
    assert (found.outcome, state(found, 5)) == (outcome, word)


def test_a_pass_that_could_have_seen_nothing_is_unknown() -> None:
    found = gate(*arms(both=6, lost=0, gained=0, neither=194), max_drop_pct=5)
    assert found is not None and found.outcome == PASS
    assert state(found, 5) == "unknown"


def test_only_items_that_both_arms_answered_are_paired() -> None:
    control = {"right": ["a", "b", "x"], "wrong": ["c"], "protocol": "p"}
    treatment = {"right": ["a"], "wrong": ["b", "c", "y"], "protocol": "p"}
    found = gate(control, treatment, 5)
    assert found is not None
    assert (found.items, found.lost, found.gained) == (3, 1, 0)
    assert gate(control, {"right": ["q"], "wrong": [], "protocol": "p"}, 5) is None


def test_another_protocol_decides_nothing() -> None:
    control, treatment = arms(both=100, lost=90, gained=0, neither=10)
    found = gate(control, {**treatment, "protocol": "q"}, 5)
    assert found is not None
    assert (found.outcome, found.same_protocol, state(found, 5)) == (UNDECIDED, False, "unknown")


@given(st.integers(0, 300), st.integers(0, 60), st.integers(0, 60), st.integers(0, 60), st.floats(0.1, 50))
def test_exchanging_the_arms_turns_the_drop_around_and_no_arm_both_passes_and_fails(
    both: int, lost: int, gained: int, neither: int, limit: float
) -> None:
    if both + lost + gained + neither == 0:
        return
    there, back = (
        gate(*pair, limit) for pair in (arms(both, lost, gained, neither), arms(both, gained, lost, neither))
    )
    assert there is not None and back is not None
    assert there.drop_pct == pytest.approx(-back.drop_pct)
    assert there.low_pct == pytest.approx(-back.high_pct)
    assert {there.outcome, back.outcome} != {FAIL}
