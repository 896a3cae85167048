"""Scenarios of two arms and of whole launches: what makes a comparison wrong although each trial is right."""

from __future__ import annotations

from tests.golden.arms_accuracy import SCENARIOS as ACCURACY
from tests.golden.arms_comparison import SCENARIOS as COMPARISON
from tests.golden.arms_conditions import SCENARIOS as CONDITIONS
from tests.golden.arms_lifecycle import SCENARIOS as LIFECYCLE
from tests.golden.arms_repeats import SCENARIOS as REPEATS
from tests.golden.arms_theory import SCENARIOS as THEORY

SCENARIOS = [*LIFECYCLE, *COMPARISON, *CONDITIONS, *REPEATS, *THEORY, *ACCURACY]
