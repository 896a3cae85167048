"""Simulated campaigns as arrays: launches whose true effect is known, and the rules that judge them.

Without them a rule's error rate is a claim. `values` are log metrics, [campaigns, launches].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.special import stdtr

from lab.campaign import Passes, Rule
from lab.stats.design import Design, design
from lab.stats.looks import LABELS, ending
from lab.stats.sequential import bounds_of
from lab.stats.spread import Estimate, estimate

PASSES = 8
LAUNCH_HOURS = 1 / 6
CONTROL, LEVER = "control", "lever"
Noise = Callable[[np.random.Generator, int, np.ndarray], np.ndarray]


def rule(min_effect_pct: float, last: int = PASSES) -> Rule:
    """The rule of a campaign with default alpha and passes up to `last`."""
    return Rule(workload="chat", concurrency=4, min_effect_pct=min_effect_pct, passes=Passes(min=2, max=last))


@dataclass(frozen=True)
class Plan:
    """Launches of one campaign: arms and pass numbers in order, and when they start (hours)."""

    arms: tuple[str, ...]
    passes: tuple[int, ...]
    hours: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.arms)

    @property
    def of_lever(self) -> np.ndarray:
        """Which launches carry the lever."""
        return np.array(self.arms) == LEVER


def plan(levers: int = 1, passes: int = PASSES, hours: Sequence[float] | None = None) -> Plan:
    """Passes of `levers` treatments between shared controls, reversed in even passes; `LEVER` is the first of them."""
    names = [LEVER, *(f"other{number}" for number in range(1, levers))]
    arms, numbers = [CONTROL], [0]
    for number in range(1, passes + 1):
        arms += (names if number % 2 else names[::-1]) + [CONTROL]
        numbers += [number] * (levers + 1)
    starts = np.arange(len(arms)) * LAUNCH_HOURS if hours is None else hours
    return Plan(tuple(arms), tuple(numbers), tuple(starts))


@cache
def looks_of(campaign: Plan, last: int = PASSES) -> tuple[tuple[int, int, Design], ...]:
    """For each look: passes done, launches seen, the design."""
    found = []
    for done in range(2, last + 1):
        seen = sum(number <= done for number in campaign.passes)
        hours = np.array(campaign.hours[:seen])
        arms = np.array(campaign.arms[:seen], dtype=object)
        found.append((done, seen, design(arms, (hours - hours[0]) / (hours[-1] - hours[0]), CONTROL, LEVER)))
    return tuple(found)


def estimates(campaign: Plan, values: np.ndarray) -> list[Estimate]:
    """What each look sees."""
    return [estimate(model, values[:, :seen]) for _, seen, model in looks_of(campaign)]


@dataclass(frozen=True)
class Judged:
    """Labels and passes used of many campaigns."""

    labels: np.ndarray
    passes: np.ndarray

    def share(self, *labels: str) -> float:
        """Share of campaigns with one of these labels."""
        return float(np.isin(self.labels, [LABELS.index(label) for label in labels]).mean())


def sequential(campaign: Plan, values: np.ndarray, min_effect_pct: float) -> Judged:
    """The rule of the lab."""
    done = [number for number, _, _ in looks_of(campaign)]
    end = ending(done, estimates(campaign, values), bounds_of(rule(min_effect_pct)))
    return Judged(end.label, np.array(done)[end.look])


def higher_mean(campaign: Plan, values: np.ndarray) -> float:
    """Share of campaigns in which "the higher mean wins" adopts, or rejects, a lever of no effect: always."""
    lever = campaign.of_lever
    control = np.array(campaign.arms) == CONTROL
    return float((values[:, lever].mean(1) != values[:, control].mean(1)).mean())


def naive_peeking(campaign: Plan, values: np.ndarray, alpha: float = 0.05) -> float:
    """Share of campaigns in which a pooled t-test at `alpha` after every pass is significant at least once."""
    crossed = np.zeros(len(values), bool)
    for found in estimates(campaign, values):
        crossed |= 2 * stdtr(found.df, -np.abs(found.log_ratio) / found.error) <= alpha
    return float(crossed.mean())


def gaussian(spread_pct: float) -> Noise:
    """Independent launches."""
    return lambda random, count, hours: random.normal(0, spread_pct / 100, (count, len(hours)))


def outliers(spread_pct: float, share: float, loss_pct: float) -> Noise:
    """Some launches lose a lot."""

    def noise(random: np.random.Generator, count: int, hours: np.ndarray) -> np.ndarray:
        hit = random.random((count, len(hours))) < share
        return gaussian(spread_pct)(random, count, hours) + hit * np.log1p(-loss_pct / 100)

    return noise


def drifting(spread_pct: float, per_hour_pct: float) -> Noise:
    """A machine that grows slower by the hour."""
    return lambda random, count, hours: (
        gaussian(spread_pct)(random, count, hours) + np.log1p(-per_hour_pct / 100) * hours
    )


def autoregressive(spread_pct: float, carried: float) -> Noise:
    """AR(1): a launch resembles the one before it."""

    def noise(random: np.random.Generator, count: int, hours: np.ndarray) -> np.ndarray:
        fresh = random.normal(0, spread_pct / 100, (count, len(hours)))
        values = fresh.copy()
        for number in range(1, len(hours)):
            values[:, number] = carried * values[:, number - 1] + np.sqrt(1 - carried**2) * fresh[:, number]
        return values

    return noise


def step(spread_pct: float, loss_pct: float) -> Noise:
    """Somebody moves in next door, somewhere in the middle half of the campaign."""

    def noise(random: np.random.Generator, count: int, hours: np.ndarray) -> np.ndarray:
        launches = len(hours)
        at = random.integers(launches // 4, launches - launches // 4, (count, 1))
        return gaussian(spread_pct)(random, count, hours) + np.log1p(-loss_pct / 100) * (np.arange(launches) >= at)

    return noise


def cold_first(spread_pct: float, loss_pct: float) -> Noise:
    """The first launch of all is slow."""
    return lambda random, count, hours: (
        gaussian(spread_pct)(random, count, hours) + np.log1p(-loss_pct / 100) * (np.arange(len(hours)) == 0)
    )


def unequal(campaign: Plan, lever_pct: float, control_pct: float) -> Noise:
    """Launches of the lever scatter more, or less, than all others."""
    scale = np.where(campaign.of_lever, lever_pct, control_pct) / 100
    return lambda random, count, hours: random.normal(0, 1, (count, len(hours))) * scale


def carry_over(campaign: Plan, spread_pct: float, loss_pct: float) -> Noise:
    """The launch after one with the lever is slower."""
    after = np.concatenate([[False], campaign.of_lever[:-1]])
    return lambda random, count, hours: gaussian(spread_pct)(random, count, hours) + np.log1p(-loss_pct / 100) * after
