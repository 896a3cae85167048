"""Arrival times: fixed beforehand, the same for the same salt, and at the rate asked for."""

from __future__ import annotations

from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.load.arrivals import offsets

RATES = st.floats(0.01, 1e4)
SALTS = st.text(max_size=8)


def first(count: int, *arguments: object) -> list[float]:
    """The first offsets."""
    return list(islice(offsets(*arguments), count))


@given(RATES, SALTS)
def test_poisson_arrivals_follow_from_rate_and_salt(rate: float, salt: str):
    times = first(50, "poisson", rate, salt)
    assert times == first(50, "poisson", rate, salt)
    assert times != first(50, "poisson", rate, salt + "x")
    assert all(0 < earlier <= later for earlier, later in pairwise(times))


@given(RATES, SALTS)
def test_a_higher_rate_is_the_same_pattern_in_less_time(rate: float, salt: str):
    once, twice = first(20, "poisson", rate, salt), first(20, "poisson", 2 * rate, salt)
    assert twice == pytest.approx([at / 2 for at in once])


def test_poisson_gaps_have_the_mean_and_spread_of_an_exponential():
    gaps = [later - earlier for earlier, later in pairwise(first(20_001, "poisson", 8.0, "a"))]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert mean == pytest.approx(1 / 8, rel=0.03)
    assert deviation == pytest.approx(1 / 8, rel=0.03)


@given(RATES, st.integers(0, 10**4))
def test_constant_arrivals_do_not_drift(rate: float, number: int):
    assert next(islice(offsets("constant", rate, ""), number, None)) == number / rate


@given(st.lists(st.floats(0, 1e6), min_size=1).map(sorted))
def test_a_trace_counts_from_its_first_time(at_s: list[float]):
    times = list(offsets("trace", None, "", at_s))
    assert times == [at - at_s[0] for at in at_s]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("poisson", None, ""), "a rate above zero, not None"),
        (("constant", 0.0, ""), "a rate above zero, not 0"),
        (("poisson", float("nan"), ""), "a rate above zero, not nan"),
        (("trace", None, "", []), "at least one time"),
        (("trace", None, "", [0, 2, 1.5]), "request 3 is due at 1.5 s, after 2 s"),
        (("bursts", 1.0, ""), "poisson, constant, trace, not 'bursts'"),
    ],
)
def test_what_cannot_be_a_schedule_is_refused(arguments: tuple, words: str):
    with pytest.raises(ValueError, match=words):
        offsets(*arguments)
