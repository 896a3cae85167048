"""The walk must end where published tables, other integrators and dice say it does."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats as reference

from lab.stats.walk import Walk


def error_of(bounds: list[float], passes: list[float] | None = None, drift: float = 0.0) -> float:
    """Probability that the walk ever leaves symmetric bounds."""
    walk, mirror, total = Walk(drift), Walk(-drift), 0.0
    for at, bound in zip(passes or range(1, len(bounds) + 1), bounds, strict=True):
        for one in (walk, mirror):
            one.go_on(at)
            total += one.beyond(bound)
            one.stop_beyond(-bound, bound)
    return total


@pytest.mark.parametrize("drift", [-1.0, 0.0, 0.4, 3.0])
@pytest.mark.parametrize("z", [-2.0, 0.0, 1.5])
def test_a_first_look_is_the_normal_distribution(drift, z):
    walk = Walk(drift)
    walk.go_on(4)
    assert walk.beyond(z) == pytest.approx(reference.norm.sf(z - 2 * drift))


def test_looks_that_end_nothing_change_nothing():
    walk = Walk(0.3)
    for at in (2, 3, 7):
        walk.go_on(at)
        walk.stop_beyond(-math.inf, math.inf)
    walk.go_on(9)
    assert walk.beyond(1.0) == pytest.approx(reference.norm.sf(1 - 0.9), abs=1e-12)


@pytest.mark.parametrize("last", [50, 200, 1000])
def test_many_looks_lose_no_probability(last):
    walk = Walk()
    for at in range(last - 20, last):
        walk.go_on(at)
        walk.stop_beyond(-math.inf, math.inf)
    walk.go_on(last)
    assert walk.beyond(1.96) == pytest.approx(reference.norm.sf(1.96), abs=1e-8)


def test_nodes_are_dense_enough_for_small_steps_between_bounds(monkeypatch):
    bounds, passes = [2.5] * 300, list(range(1, 301))
    plain = error_of(bounds, passes)
    monkeypatch.setattr("lab.stats.walk.NODES", 400)
    assert plain == pytest.approx(error_of(bounds, passes), rel=1e-6)


@pytest.mark.parametrize("drift", [0.0, 0.5])
def test_two_and_three_looks_are_the_multivariate_normal(drift):
    times, bounds = np.array([2.0, 3.0, 5.0]), np.array([2.2, 2.0, 1.9])
    covariance = np.minimum.outer(times, times) / np.sqrt(np.outer(times, times))
    walk, before = Walk(drift), 0.0
    for look in (0, 1, 2):
        walk.go_on(times[look])
        mean = drift * np.sqrt(times[: look + 1])
        inside = reference.multivariate_normal(mean, covariance[: look + 1, : look + 1])
        low, high = -bounds[: look + 1].copy(), bounds[: look + 1].copy()
        low[look], high[look] = high[look], 12.0
        above = inside.cdf(high, lower_limit=low, rng=np.random.default_rng(1))
        assert walk.beyond(bounds[look]) == pytest.approx(above, abs=2e-5)
        walk.stop_beyond(-bounds[look], bounds[look])
        before += above
    assert 0 < before < 1


@pytest.mark.parametrize(("looks", "z"), [(2, 2.178), (3, 2.289), (4, 2.361), (5, 2.413), (10, 2.555)])
def test_pococks_constants_spend_five_percent(looks, z):
    """Jennison & Turnbull, table 2.1; for five looks the nominal level is 0.0158."""
    assert error_of([z] * looks) == pytest.approx(0.05, abs=2e-4)
    assert looks != 5 or 2 * reference.norm.sf(z) == pytest.approx(0.0158, abs=5e-5)


@pytest.mark.parametrize(("looks", "constant"), [(2, 1.977), (3, 2.004), (4, 2.024), (5, 2.040), (10, 2.087)])
def test_obrien_and_flemings_constants_spend_five_percent(looks, constant):
    """Jennison & Turnbull, table 2.3."""
    assert error_of([constant * math.sqrt(looks / look) for look in range(1, looks + 1)]) == pytest.approx(
        0.05, abs=2e-4
    )


def test_dice_agree():
    random, drift, campaigns = np.random.default_rng(5), 0.6, 200_000
    times, bounds = np.array([2, 3, 4, 6]), [2.6, 2.4, 2.2, 2.0]
    steps = np.diff(times, prepend=0)
    place = np.cumsum(random.normal(drift * steps, np.sqrt(steps), (campaigns, 4)), axis=1) / np.sqrt(times)
    going, walk = np.ones(campaigns, bool), Walk(drift)
    for look, bound in enumerate(bounds):
        walk.go_on(times[look])
        assert walk.beyond(bound) == pytest.approx((going & (place[:, look] > bound)).mean(), abs=0.004)
        walk.stop_beyond(-bound, bound)
        going &= np.abs(place[:, look]) <= bound


def test_bounds_on_one_side_keep_what_is_below():
    walk = Walk()
    walk.go_on(1)
    walk.stop_beyond(-math.inf, 1.0)
    walk.go_on(2)
    assert walk.beyond(-8.0) == pytest.approx(reference.norm.cdf(1.0), abs=1e-6)


@pytest.mark.parametrize("drift", [-40.0, 40.0])
def test_a_walk_that_has_surely_ended_stays_ended(drift):
    walk = Walk(drift)
    walk.go_on(1)
    walk.stop_beyond(-2.0, 2.0)
    walk.go_on(2)
    assert walk.beyond(-math.inf) == 0
    walk.stop_beyond(-2.0, 2.0)
    walk.go_on(3)
    assert walk.beyond(0.0) == 0
