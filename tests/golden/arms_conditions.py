"""Scenarios in which the arms ran under different conditions: an aged server, GPUs that were held back.

Without them a hot card, or a server that has served for a day, reads as a property of the lever.
"""

from __future__ import annotations

from lab.audit import WARNING
from tests.golden.cards import HOT, NORMAL, cards
from tests.golden.scenario import Scenario
from tests.golden.stage import PAIR, Play

SLOTS = {"max_running": 48}

SCENARIOS = [
    Scenario(
        code="server-age",
        severity=WARNING,
        fires=Play(treatment={"metrics.requests_before": 10_000}, order=PAIR),
        silent=Play(treatment={"metrics.requests_before": 500}, order=PAIR),
    ),
    Scenario(
        code="throttled",
        severity=WARNING,
        fires=Play(treatment=SLOTS, order=PAIR, client=cards(NORMAL, HOT)),
        silent=Play(treatment=SLOTS, order=PAIR, client=cards(HOT, HOT)),
    ),
]
