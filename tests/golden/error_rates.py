"""`python -m tests.golden.error_rates [CAMPAIGNS]`: how often the sequential rule is wrong, and what it costs.

20,000 simulated campaigns a row, fixed seeds, judged by the core that judges real ones. Exit 1 when a row is missed.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from scipy.optimize import brentq
from scipy.stats import beta

from lab.stats.compare import t_quantile
from lab.stats.design import design, error_per_spread
from lab.stats.looks import ADOPT, NO_EFFECT, REJECT
from tests.golden import campaigns as sim

CAMPAIGNS = 20_000
BATCHES = 20
WRONG_AT_MOST = 0.055
EFFECTS_PCT = (0, 3, 5, 10, 20)


def limits(share: float, count: int) -> tuple[float, float]:
    """The two-sided 95 % limits of a binomial share (Clopper & Pearson)."""
    hits = round(share * count)
    low = beta.ppf(0.025, hits, count - hits + 1) if hits else 0.0
    return float(low), float(beta.ppf(0.975, hits + 1, count - hits) if hits < count else 1.0)


class Table:
    """Prints rows and remembers what was missed."""

    def __init__(self) -> None:
        self.missed: list[str] = []

    def row(self, name: str, text: str, met: bool | None = None) -> None:
        """One line; `met` None: reported only."""
        said = "" if met is None else "  met" if met else "  MISSED"
        print(f"  {name:<44} {text}{said}", flush=True)
        if met is False:
            self.missed.append(name)


def wrong_verdicts(table: Table, count: int) -> None:
    """No true effect, min_effect_pct 0: adopt and reject are wrong."""
    one = sim.plan()
    six = sim.plan(levers=6)
    rows: list[tuple[str, sim.Plan, sim.Noise]] = [
        *((f"Gaussian launch noise {spread} %", one, sim.gaussian(spread)) for spread in (1, 2, 3)),
        ("5 % of the launches lose 10 %, noise 1 %", one, sim.outliers(1, 0.05, 10)),
        ("5 % of the launches lose 10 %, noise 2 %", one, sim.outliers(2, 0.05, 10)),
        ("drift 5 % an hour, noise 2 %", one, sim.drifting(2, 5)),
        ("AR(1) 0.5, noise 2 %", one, sim.autoregressive(2, 0.5)),
        ("AR(1) 0.9, noise 2 %", one, sim.autoregressive(2, 0.9)),
        ("a step of -8 %, noise 1 %", one, sim.step(1, 8)),
        ("a step of -8 %, noise 2 %", one, sim.step(2, 8)),
        ("cold first launch of -10 %, noise 1 %", one, sim.cold_first(1, 10)),
        ("cold first launch of -10 %, noise 2 %", one, sim.cold_first(2, 10)),
        ("spread 5 % with the lever, 1 % without", one, sim.unequal(one, 5, 1)),
        ("spread 1 % with the lever, 5 % without", one, sim.unequal(one, 1, 5)),
        ("six levers, Gaussian noise 2 %", six, sim.gaussian(2)),
        ("six levers, drift 5 % an hour, noise 2 %", six, sim.drifting(2, 5)),
        ("six levers, AR(1) 0.9, noise 2 %", six, sim.autoregressive(2, 0.9)),
        ("six levers, a step of -8 %, noise 2 %", six, sim.step(2, 8)),
        ("six levers, spread 5 % with this one, 1 % else", six, sim.unequal(six, 5, 1)),
    ]
    print("\nno effect, min_effect_pct 0: wrong adopt + reject  [95 % limits]; naive peeking; higher mean wins")
    for number, (name, campaign, noise) in enumerate(rows):
        random = np.random.default_rng([1, number])
        values = noise(random, count, np.array(campaign.hours))
        _wrong(table, name, campaign, values)
    _wrong_at_unequal_times(table, count)
    values = sim.carry_over(one, 2, 1)(np.random.default_rng([1, 99]), count, np.array(one.hours))
    _wrong(table, "1 % carry-over to the next launch, noise 2 %", one, values, judged=False)
    print(
        "    carry-over is an effect on the control next to the lever: let the machine rest, or restart it, in between"
    )


def _wrong(table: Table, name: str, campaign: sim.Plan, values: np.ndarray, judged: bool = True) -> None:
    share = sim.sequential(campaign, values, 0).share(ADOPT, REJECT)
    others = sim.naive_peeking(campaign, values), sim.higher_mean(campaign, values)
    _say_wrong(table, name, share, others, len(values), judged)


def _say_wrong(
    table: Table, name: str, share: float, others: tuple[float, float], count: int, judged: bool = True
) -> None:
    low, high = limits(share, count)
    text = f"{share:6.2%} [{low:.2%}, {high:.2%}]   {others[0]:6.1%}   {others[1]:6.1%}"
    table.row(name, text, high <= WRONG_AT_MOST if judged else None)


def _wrong_at_unequal_times(table: Table, count: int) -> None:
    """Launch durations differ by a factor of ten, drawn anew for each batch; the machine drifts by 5 % an hour."""
    shares, others = [], []
    for batch in range(BATCHES):
        random = np.random.default_rng([2, batch])
        hours = np.concatenate([[0.0], np.cumsum(random.uniform(0.05, 0.5, 2 * sim.PASSES))])
        campaign = sim.plan(hours=hours)
        values = sim.drifting(2, 5)(random, count // BATCHES, hours)
        shares.append(sim.sequential(campaign, values, 0).share(ADOPT, REJECT))
        others.append((sim.naive_peeking(campaign, values), sim.higher_mean(campaign, values)))
    mean = np.mean(others, axis=0)
    name = "unequal start times, drift 5 % an hour, noise 2 %"
    _say_wrong(table, name, float(np.mean(shares)), (mean[0], mean[1]), count)


def right_verdicts(table: Table, count: int) -> None:
    """Levers that do something, and one that does nothing, at min_effect_pct 3."""
    one = sim.plan()
    hours = np.array(one.hours)

    def judged(seed: int, effect_pct: float, spread_pct: float) -> sim.Judged:
        values = sim.gaussian(spread_pct)(np.random.default_rng([3, seed]), count, hours)
        return sim.sequential(one, values + one.of_lever * np.log1p(effect_pct / 100), 3)

    print("\nmin_effect_pct 3, at most 8 passes, one treatment")
    share = judged(0, 5, 2).share(ADOPT)
    table.row("true +5 %, noise 2 %: adopt (95 % asked)", f"{share:6.2%}", share >= 0.95)
    share = judged(1, 0, 1.5).share(NO_EFFECT)
    table.row("no effect, noise 1.5 %: no-effect (90 % asked)", f"{share:6.2%}", share >= 0.90)
    for number, effect in enumerate((1, 2, 3)):
        found = judged(2 + number, effect, 2)
        text = f"adopt {found.share(ADOPT):6.2%}   no-effect {found.share(NO_EFFECT):6.2%}"
        table.row(f"true +{effect} %, noise 2 %", text)
    for number, spread in enumerate((1, 1.5, 2)):
        share = judged(5 + number, 3, spread).share(NO_EFFECT)
        low, high = limits(share, count)
        table.row(
            f"true +3 %, noise {spread} %: no-effect is wrong",
            f"{share:6.2%} [{low:.2%}, {high:.2%}]",
            high <= WRONG_AT_MOST,
        )
    for spread, allowed in ((2, 0.62), (3, 0.72)):
        used = [judged(10 * spread + number, effect, spread).passes.mean() for number, effect in enumerate(EFFECTS_PCT)]
        share = float(np.mean(used)) / sim.PASSES
        text = f"{share:6.2%}   " + "  ".join(f"{e} %: {u:.2f}" for e, u in zip(EFFECTS_PCT, used, strict=True))
        table.row(f"passes used of 8, noise {spread} % ({allowed:.0%} asked)", text, share <= allowed)


def launches_saved(table: Table) -> None:
    """Six levers in shared passes against six ABBA designs of their own, at equal interval width."""
    print("\nsix levers in shared passes against six ABBA designs, launches at equal interval width")
    for passes in (2, 4, 8):
        shared = sim.plan(levers=6, passes=passes)
        wanted = _half_width(shared)
        blocks = brentq(lambda number, wanted: _abba_half_width(number) - wanted, 1.0, 60.0, (wanted,))
        share = len(shared) / (6 * 4 * blocks)
        text = f"{len(shared)} of {6 * 4 * blocks:.0f}: {share:.1%}"
        table.row(f"{passes} passes (60 % asked)", text, share <= 0.6)


def _half_width(campaign: sim.Plan) -> float:
    arms, hours = np.array(campaign.arms, dtype=object), np.array(campaign.hours)
    model = design(arms, (hours - hours[0]) / (hours[-1] - hours[0]), sim.CONTROL, sim.LEVER)
    return t_quantile(0.975, model.df) * error_per_spread(model)


def _abba_half_width(blocks: float) -> float:
    """Of so many blocks control, lever, lever, control; between whole numbers, linear in the logarithm."""

    def whole(number: int) -> float:
        arms = (sim.CONTROL, sim.LEVER, sim.LEVER, sim.CONTROL) * number
        return _half_width(sim.Plan(arms, (1,) * len(arms), tuple(np.arange(len(arms)) * sim.LAUNCH_HOURS)))

    below = int(blocks)
    part = blocks - below
    return float(np.exp((1 - part) * np.log(whole(below)) + part * np.log(whole(below + 1))))


def main(count: int) -> int:
    """All tables."""
    started_s = time.monotonic()
    print(f"{count} simulated campaigns a row")
    table = Table()
    wrong_verdicts(table, count)
    right_verdicts(table, count)
    launches_saved(table)
    print(f"\n{len(table.missed)} missed, {time.monotonic() - started_s:.0f} s")
    return 1 if table.missed else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else CAMPAIGNS))
