"""Scenarios in which speed was bought with wrong answers, or nobody could have seen it.

Without them a broken kernel is the fastest one.
"""

from __future__ import annotations

from lab.audit import INVALID, WARNING
from tests.golden.scenario import Scenario
from tests.golden.stage import PAIR, Play

ITEMS, FEW_ITEMS = 200, 20
WRONG = {"output.corrupt_share": 0.1}
SLOTS = {"max_running": 48}

SCENARIOS = [
    Scenario(
        code="accuracy-regression",
        severity=INVALID,
        fires=Play(treatment=WRONG, order=PAIR, accuracy_items=ITEMS),
        # The control gets the same answers wrong.
        silent=Play(flags=WRONG, treatment=SLOTS, order=PAIR, accuracy_items=ITEMS),
    ),
    Scenario(
        code="accuracy-underpowered",
        severity=WARNING,
        fires=Play(flags={"dialect": "sglang"}, treatment=SLOTS, order=PAIR, accuracy_items=FEW_ITEMS),
        silent=Play(flags={"dialect": "sglang"}, treatment=SLOTS, order=PAIR, accuracy_items=ITEMS),
    ),
]
