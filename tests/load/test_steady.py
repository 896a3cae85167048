"""Steadiness of a window: the traces that fool a mean, and those that must not raise an alarm."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.load.figures_chunks import BINS_AT_LEAST, BINS_AT_MOST, bin_count
from lab.load.steady import DRIFTING, FOUND, TOO_SHORT, TREND_PCT, Steady, Step, steadiness, step, trend

MINUTE, LEVEL = 60.0, 1000.0


def random(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def noisy(shape: np.ndarray, noise_pct: float = 1.5, seed: int = 0) -> np.ndarray:
    return LEVEL * shape * (1 + random(seed).normal(0, noise_pct / 100, len(shape)))


def judged(shape: np.ndarray, noise_pct: float = 1.5, seed: int = 0) -> Steady:
    """A minute-long window of that shape."""
    return steadiness(noisy(shape, noise_pct, seed), MINUTE, MINUTE)


FLAT = np.ones(bin_count(MINUTE))
AXIS = np.linspace(0, 1, len(FLAT))


def test_a_clean_plateau_is_found() -> None:
    found = judged(FLAT)
    assert (found.outcome, found.bins, found.seconds) == (FOUND, 30, MINUTE)
    assert found.cv_pct == pytest.approx(1.5, abs=0.6)
    assert found.reason.startswith("no trend over 30 bins of 2 s")


@pytest.mark.parametrize("seed", range(20))
def test_noise_alone_is_no_drift(seed: int) -> None:
    assert judged(FLAT, 8.0, seed).outcome == FOUND


@pytest.mark.parametrize("seed", range(20))
def test_a_slow_down_of_fifteen_percent_is_drift_under_noise(seed: int) -> None:
    found = judged(1 - 0.15 * AXIS, 1.5, seed)
    assert found.outcome == DRIFTING
    assert found.trend_pct == pytest.approx(-16, abs=4)
    assert "throughput moved by -1" in found.reason


@pytest.mark.parametrize("seed", range(5))
def test_a_speed_up_is_a_warm_up_that_was_too_short(seed: int) -> None:
    assert judged(1 + 0.15 * AXIS, 1.5, seed).outcome == DRIFTING


def test_a_trend_that_is_sure_and_small_is_no_drift() -> None:
    assert judged(1 - 0.04 * AXIS, 0.1).outcome == FOUND
    assert judged(1 - 0.06 * AXIS, 0.1).outcome == DRIFTING


def test_a_staircase_is_drift() -> None:
    assert judged(1 + 0.1 * (AXIS > 1 / 3) + 0.1 * (AXIS > 2 / 3)).outcome == DRIFTING


def stepped(count: int, where: float, size: float, noise_pct: float, seed: int) -> np.ndarray:
    """A level that changes by `size` at the share `where` of the window, seldom just between two bins."""
    before = np.clip(where * count - np.arange(count), 0, 1)
    return noisy(before + (1 + size) * (1 - before), noise_pct, seed)


@pytest.mark.parametrize("count", [20, 30, 60])
@pytest.mark.parametrize("where", [0.17, 0.25, 0.5, 0.733, 0.83])
@pytest.mark.parametrize("size", [-0.5, -0.3, 0.3])
@pytest.mark.parametrize("seed", range(3))
def test_a_step_is_drift_wherever_it_falls(count: int, where: float, size: float, seed: int) -> None:
    assert steadiness(stepped(count, where, size, 1.0, seed), 2.0 * count, MINUTE / 2).outcome == DRIFTING


@pytest.mark.parametrize("where", [0.3, 0.5, 0.7])
@pytest.mark.parametrize("size", [-0.5, -0.3])
def test_a_step_in_a_short_window_is_drift(where: float, size: float) -> None:
    assert steadiness(stepped(12, where, size, 1.0, 0), 6.0, 4.0).outcome == DRIFTING


def test_a_slow_down_of_a_third_in_the_middle_is_told_with_both_levels_and_its_time() -> None:
    """What a server measured that lost a third of its throughput after 29 s; the rank test says p = 0.45."""
    bins = [172, 178, 170, 176, 172, 170, 177, 174, 175, 174, 174, 173, 174, 173, 122, 112, 117, 115, 116, 116]
    found = steadiness(np.array(bins), 40.0, 30.0)
    assert (found.outcome, found.bins) == (DRIFTING, 20)
    assert found.reason == (
        "throughput made a step from 173.7 to 115.2 tok/s (-33.7 %) about 29 s into the window, over 20 bins of 2 s"
    )
    assert found.p_value == trend(np.array(bins)).p_value > 0.1


def test_a_server_that_gets_warm_in_the_window_is_drift() -> None:
    bins = [20, 16, 20, 16, 19, 20, 16, 16, 20, 16, 136, 170, 172, 171, 174, 175, 172, 171, 172, 172]
    found = steadiness(np.array(bins), 40.0, 30.0)
    assert found.outcome == DRIFTING
    assert "a step from 17.9 to 172.1 tok/s" in found.reason


def test_a_step_without_any_noise_is_drift_and_a_small_one_is_none() -> None:
    assert steadiness(np.repeat([100.0, 50.0], 6), 24.0, 20.0).outcome == DRIFTING
    assert steadiness(np.repeat([0.0, 50.0], 6), 24.0, 20.0).outcome == DRIFTING
    assert steadiness(np.repeat([100.0, 96.0], 10), 40.0, 30.0).outcome == FOUND


@pytest.mark.parametrize("place", [0, 3, 10, 18])
@pytest.mark.parametrize("length", [1, 2])
def test_a_pause_is_no_step_wherever_it_falls(place: int, length: int) -> None:
    bins = noisy(FLAT, 1.0)
    bins[place : place + length] = 0
    assert steadiness(bins, MINUTE, MINUTE).outcome == FOUND
    bins[-length:] = 0
    assert steadiness(bins, MINUTE, MINUTE).outcome == FOUND


def test_a_pause_does_not_hide_a_step() -> None:
    bins = stepped(30, 0.55, -0.3, 1.0, 0)
    bins[5] = 0
    assert steadiness(bins, MINUTE, MINUTE).outcome == DRIFTING


def test_one_token_of_the_batch_more_or_less_in_each_bin_is_no_step() -> None:
    """Five or six steps of 0.1 s in each bin of half a second; in bins of 2 s the same change is no rounding."""
    bins = np.repeat([48.0, 40.0], [4, 8])
    assert steadiness(bins, 6.0, 4.0).outcome == FOUND
    assert steadiness(bins, 24.0, 20.0).outcome == DRIFTING


def test_the_levels_of_a_series_too_short_for_two_are_none() -> None:
    assert step(np.array([1.0, 1, 1, 2, 2, 2])) is None
    assert step(np.array([1.0, 1, 1, 9, 2, 2, 2])) == Step(1.0, 2.0, 3, 0.0)


def test_an_oscillation_is_steady_and_shows_in_the_spread() -> None:
    found = judged(1 + 0.2 * np.sin(10 * np.pi * AXIS))
    assert found.outcome == FOUND
    assert found.cv_pct > 10


def test_the_plateau_between_ramp_and_drain_is_steady_and_its_ramp_is_not() -> None:
    whole = noisy(np.concatenate([np.linspace(0.1, 1, 10), np.ones(30), np.linspace(1, 0.1, 10)]))
    assert steadiness(whole[10:40], MINUTE, MINUTE).outcome == FOUND
    assert steadiness(whole[:12], 24.0, 20.0).outcome == DRIFTING


def test_a_short_run_is_too_short_however_flat() -> None:
    found = steadiness(noisy(np.ones(bin_count(20.0))), 20.0, 60.0)
    assert (found.outcome, found.reason) == (TOO_SHORT, "the window of 20 s is shorter than the 60 s asked for")
    assert (found.trend_pct, found.p_value) == (None, None)
    assert steadiness(noisy(np.ones(12)), 20.0, 20.0).outcome == FOUND


def test_a_window_of_the_length_asked_for_is_long_enough_whatever_the_clock_says() -> None:
    opened_s = 1234567.891
    seconds = (opened_s + 0.7) - opened_s
    assert seconds < 0.7
    assert steadiness(np.full(12, 100.0), seconds, 0.7).outcome == FOUND
    assert steadiness(np.full(12, 100.0), 0.6999, 0.7).outcome == TOO_SHORT


@pytest.mark.parametrize("bins", [None, [], [100.0, float("nan"), 100.0]])
def test_without_token_counts_nothing_is_guessed(bins: list[float] | None) -> None:
    with pytest.raises(ValueError, match="token count"):
        steadiness(bins if bins is None else np.array(bins), MINUTE, MINUTE)


def test_a_window_without_a_token_has_no_state() -> None:
    assert steadiness(np.zeros(12), 6.0, 4.0).outcome == TOO_SHORT


def test_constant_throughput_is_found() -> None:
    found = steadiness(np.full(12, 100.0), 6.0, 4.0)
    assert (found.outcome, found.trend_pct, found.p_value, found.cv_pct) == (FOUND, 0, 1, 0)


SERIES = st.lists(st.integers(0, 300), min_size=12, max_size=40)


@given(SERIES, st.sampled_from([0.125, 3.0, 1024.0]))
@settings(deadline=None)
def test_token_counts_times_a_constant_change_nothing(series: list[int], factor: float) -> None:
    bins = np.array(series, dtype=float)
    once, twice = steadiness(bins, MINUTE, 4.0), steadiness(factor * bins, MINUTE, 4.0)
    assert (once.outcome, once.p_value, once.bins) == (twice.outcome, twice.p_value, twice.bins)
    assert (once.trend_pct is None) == (twice.trend_pct is None)
    if once.trend_pct is not None:
        assert twice.trend_pct == pytest.approx(once.trend_pct)


@given(SERIES)
@settings(deadline=None)
def test_time_reversed_the_trend_is_the_other_way(series: list[int]) -> None:
    forth, back = trend(np.array(series, dtype=float)), trend(np.array(series[::-1], dtype=float))
    assert back.change_pct == pytest.approx(-forth.change_pct)
    assert back.p_value == pytest.approx(forth.p_value)
    assert 0 <= forth.p_value <= 1


def test_noise_that_lasts_makes_a_trend_less_sure() -> None:
    """The same slope under noise of the same size: independent from bin to bin, or lasting several bins."""
    shape = 0.12 * np.linspace(0, 1, 60)
    generator = random(3)
    lasting = [0.0]
    for push in generator.normal(0, 1, 59):
        lasting.append(0.9 * lasting[-1] + push)
    lasting = np.array(lasting) / np.std(lasting)
    shuffled = generator.permutation(lasting)
    assert trend(1 + shape + 0.04 * shuffled).p_value < trend(1 + shape + 0.04 * lasting).p_value / 10


def steps(seconds: float, generator: np.random.Generator) -> np.ndarray:
    """Tokens per second of a small server: a step of about 0.1 s gives four clients a token each, prompts pause it."""
    length = 0.08 * np.exp(generator.normal(0, 0.05, 200)) + 0.15 * (generator.random(200) < 0.12)
    arrivals = np.cumsum(length) - generator.uniform(0, 0.1)
    inside = arrivals[(arrivals >= 0) & (arrivals < seconds)]
    count = bin_count(seconds)
    return np.bincount((inside / seconds * count).astype(int), minlength=count) * 4 * count / seconds


def test_small_windows_of_whole_steps_raise_no_false_alarm() -> None:
    generator = random(1)
    outcomes = [steadiness(steps(6.0, generator), 6.0, 4.0).outcome for _ in range(400)]
    assert outcomes.count(DRIFTING) == 0


def test_noise_that_lasts_for_half_a_second_raises_hardly_any_alarm() -> None:
    """Autocorrelation 0.3 between bins of 0.5 s, 5 % of noise; the rate over 20,000 windows is below 0.1 %."""
    generator, drifting = random(2), 0
    for _ in range(500):
        values = [0.0]
        for push in generator.normal(0, 0.05 * np.sqrt(1 - 0.3**2), 11):
            values.append(0.3 * values[-1] + push)
        drifting += steadiness(1 + np.array(values), 6.0, 4.0).outcome == DRIFTING
    assert drifting <= 2


@pytest.mark.parametrize(("bins", "most"), [(12, 4), (20, 1), (30, 1), (60, 1)])
@pytest.mark.parametrize("lasting", [0.3, 0.5])
def test_noise_that_lasts_makes_hardly_any_step(bins: int, most: int, lasting: float) -> None:
    """Noise of 5 %; with 12 bins and an autocorrelation of 0.5 the rate of both alarms together is about 0.2 %."""
    generator, drifting = random(bins), 0
    for _ in range(300):
        values = [generator.normal(0, 0.05)]
        for push in generator.normal(0, 0.05 * np.sqrt(1 - lasting**2), bins - 1):
            values.append(lasting * values[-1] + push)
        drifting += " step " in steadiness(1 + np.array(values), 2.0 * bins, 4.0).reason
    assert drifting <= most


@pytest.mark.parametrize(("share", "outcome"), [(0.0, FOUND), (0.125, FOUND), (0.13, TOO_SHORT), (0.8, TOO_SHORT)])
def test_a_throughput_is_known_to_a_burst_more_or_less(share: float, outcome: str) -> None:
    judged = steadiness(np.full(12, 100.0), 10.0, 4.0, share)
    assert (judged.outcome, judged.burst_pct) == (outcome, 100 * share)
    assert outcome == FOUND or f"bursts of {share:.0%} of all in the window" in judged.reason
    assert outcome == FOUND or f"; {10 * share / 0.125:.0f} s would bring it below 12%" in judged.reason
    drifting = steadiness(np.linspace(50, 150, 12), 10.0, 4.0, share)
    assert drifting.outcome == DRIFTING


@pytest.mark.parametrize(("seconds", "bins"), [(0.1, 12), (6, 12), (24, 12), (60, 30), (120, 60), (3600, 60)])
def test_windows_have_enough_bins_and_not_too_many(seconds: float, bins: int) -> None:
    assert bin_count(seconds) == bins
    assert 8 <= BINS_AT_LEAST <= bins <= BINS_AT_MOST


def test_the_size_of_a_trend_is_end_to_end() -> None:
    moved = trend(np.linspace(100, 110, 21))
    assert moved.change_pct == pytest.approx(100 * 10 / 105)
    assert moved.moves and abs(moved.change_pct) >= TREND_PCT
