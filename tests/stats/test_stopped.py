"""What an early end does to an estimate must be undone, on average and in nineteen intervals of twenty."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as reference

from lab.stats.boundary import levels, spent
from lab.stats.stopped import corrected

calm = settings(deadline=None, max_examples=25)
PASSES = [2, 3, 4, 5, 6, 7, 8]
BOUND = [-float(reference.norm.ppf(level / 2)) for level in levels(PASSES, 8, 0.05)]
BOUNDS = [(-bound, bound) for bound in BOUND]
CAMPAIGNS = 4000


def at(look: int, z: float, alpha: float = 0.05):
    return corrected(PASSES[: look + 1], BOUNDS[:look], z, alpha)


@pytest.mark.parametrize("z", [-3.0, 0.0, 0.7, 5.0])
def test_a_first_look_has_nothing_to_correct(z):
    found = at(0, z)
    assert found.z == pytest.approx(z, abs=1e-4)
    assert (found.low, found.high) == (pytest.approx(z - 1.95996, abs=1e-4), pytest.approx(z + 1.95996, abs=1e-4))
    assert found.p_value == pytest.approx(2 * reference.norm.sf(abs(z)))


@calm
@given(st.integers(1, 6), st.floats(-6, 6), st.sampled_from([0.01, 0.05, 0.3]))
def test_a_loss_is_the_mirror_of_a_gain(look, z, alpha):
    gain, loss = at(look, z, alpha), at(look, -z, alpha)
    assert loss.z == pytest.approx(-gain.z, abs=1e-4)
    assert (loss.low, loss.high) == (pytest.approx(-gain.high, abs=1e-4), pytest.approx(-gain.low, abs=1e-4))
    assert loss.p_value == pytest.approx(gain.p_value, abs=1e-9)


@calm
@given(st.integers(0, 6), st.floats(-6, 6), st.sampled_from([0.01, 0.05, 0.3]))
def test_estimate_interval_and_p_tell_one_story(look, z, alpha):
    found = at(look, z, alpha)
    assert found.low < found.z < found.high
    if abs(found.p_value - alpha) > 1e-4:
        assert (found.p_value < alpha) == (found.low > 0 or found.high < 0)


@pytest.mark.parametrize("look", range(1, 7))
def test_an_early_gain_is_shrunk_never_turned(look):
    found = at(look, BOUND[look] + 0.1)
    assert 0 < found.z < BOUND[look] + 0.1


@pytest.mark.parametrize("look", range(7))
def test_crossing_a_bound_just_so_costs_all_that_was_spent(look):
    """p at the bound of a look is the error spent up to it: the more looks, the less extreme."""
    assert at(look, BOUND[look]).p_value == pytest.approx(spent(PASSES[look], 8, 0.05), rel=1e-6)


def test_more_is_more_within_a_look():
    found = [at(3, z).z for z in np.linspace(-5, 5, 21)]
    assert found == sorted(found)


@pytest.mark.parametrize("z", [12.0, 40.0, 300.0, -300.0])
def test_a_sudden_leap_is_found_however_far(z):
    """Bounds that could hardly be missed were missed: the truth is about where they are."""
    found = corrected([2, 3], [(-3.0, 3.0)], z, 0.05)
    assert abs(found.low) < math.inf and abs(found.high) < math.inf
    assert 3 < abs(found.z) < abs(z)
    assert found.low < found.z < found.high


def test_looks_that_could_not_have_ended_the_campaign_correct_nothing():
    found = corrected([2, 3, 4], [(-60.0, 60.0), (-60.0, 60.0)], 20.0, 0.05)
    assert found.z == pytest.approx(20, abs=1e-3)
    assert (found.low, found.high) == (pytest.approx(18.04, abs=1e-2), pytest.approx(21.96, abs=1e-2))


def test_bounds_need_not_be_symmetric():
    up = corrected([2, 3], [(-9.0, 2.0)], 2.5, 0.05)
    down = corrected([2, 3], [(-2.0, 9.0)], -2.5, 0.05)
    assert (up.z, up.low, up.high) == pytest.approx((-down.z, -down.high, -down.low), abs=1e-4)


def ends_of(drift: float) -> tuple[np.ndarray, np.ndarray]:
    """Look and z at which simulated campaigns ended."""
    steps = np.diff(PASSES, prepend=0)
    noise = np.random.default_rng(round(1000 * abs(drift)) + (drift > 0)).normal(0, 1, (CAMPAIGNS, len(PASSES)))
    z = np.cumsum(drift * steps + np.sqrt(steps) * noise, axis=1) / np.sqrt(PASSES)
    out = np.abs(z) > BOUND
    look = np.where(out.any(axis=1), out.argmax(axis=1), len(PASSES) - 1)
    return look, z[np.arange(CAMPAIGNS), look]


@pytest.fixture(scope="module")
def table() -> dict[int, np.ndarray]:
    """For each look z, and drift corrected, low and high: it rises with z, so that lines between a few do."""
    grid = np.linspace(-7, 7, 43)
    found = {}
    for look in range(len(PASSES)):
        rows = [(z, one.z, one.low, one.high) for z in grid for one in [at(look, z)]]
        found[look] = np.array(rows).T
        found[look][1:] /= math.sqrt(PASSES[look])
    return found


@pytest.mark.parametrize("drift", [0.0, 0.4, 0.9, 1.5, -0.9])
def test_over_many_early_ends_the_estimate_is_the_median_and_the_interval_covers(drift, table):
    look, z = ends_of(drift)
    middle, low, high = (
        np.array(
            [np.interp(place, table[at_look][0], table[at_look][row]) for at_look, place in zip(look, z, strict=True)]
        )
        for row in (1, 2, 3)
    )
    assert (middle > drift).mean() == pytest.approx(0.5, abs=0.03)
    assert 0.935 <= ((low <= drift) & (drift <= high)).mean() <= 0.965


def test_over_many_early_ends_the_plain_estimate_is_too_good():
    """What the correction is for."""
    look, z = ends_of(0.9)
    assert (z / np.sqrt(np.array(PASSES)[look]) > 0.9).mean() > 0.53
