"""Every code of the catalogue: a scenario in which it must fire, and one close by in which it must not.

Without the second, an alarm that always rings would pass.
"""

from __future__ import annotations

from tests.golden.arms import SCENARIOS as ARMS
from tests.golden.scenario import Scenario
from tests.golden.trials import SCENARIOS as TRIALS

SCENARIOS: list[Scenario] = [*TRIALS, *ARMS]
