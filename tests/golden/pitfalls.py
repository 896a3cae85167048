"""Plays the scenarios of the catalogue and prints the table; exit 1 if one goes wrong."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from tests.golden.scenarios import SCENARIOS
from tests.golden.theatre import FIRES, play_all


def main(arguments: Sequence[str] | None = None) -> int:
    """Play the scenarios of the named codes, or all of them."""
    names = _names(arguments)
    started_s = time.monotonic()
    chosen = [scenario for scenario in SCENARIOS if not names or scenario.code in names]
    wrong = 0
    print(f"{'code':<44} {'severity':<9} {'scene':<7} {'result':<7} what was said")
    for scenario, scene, outcome in play_all(chosen):
        if isinstance(outcome, Exception):
            problem: str | None = f"{type(outcome).__name__}: {outcome}"
        else:
            problem = scenario.problem_firing(outcome) if scene == FIRES else scenario.problem_silent(outcome)
        wrong += problem is not None
        said = problem or (outcome.codes[scenario.code][1] if scene == FIRES else "")
        print(f"{scenario.name:<44} {scenario.severity:<9} {scene:<7} {'WRONG' if problem else 'ok':<7} {said}")
    codes = {scenario.code for scenario in chosen}
    print(f"{len(chosen)} scenarios of {len(codes)} codes, {wrong} scenes wrong, {time.monotonic() - started_s:.0f} s")
    return 1 if wrong else 0


def _names(arguments: Sequence[str] | None) -> list[str]:
    known = sorted({scenario.code for scenario in SCENARIOS})
    parser = argparse.ArgumentParser("python -m tests.golden.pitfalls", description=__doc__)
    parser.add_argument("codes", nargs="*", metavar="CODE", help=f"default: all; known: {', '.join(known)}")
    names = parser.parse_args(arguments).codes
    for name in names:
        if name not in known:
            parser.error(f"there is no scenario of '{name}'; known: {', '.join(known)}")
    return names


if __name__ == "__main__":
    sys.exit(main())
