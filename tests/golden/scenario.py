"""What a scenario is, and whether it went as the catalogue says.

Without the expected company of a code, an alarm that sets off ten others would pass as one that works.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.golden.stage import Play, Played

OF_SHORT_SCENES = frozenset({"tail-undersampled", "no-null"})
"""True of every scene of this length, and no part of its story: a p99 of a few hundred requests, two controls."""


@dataclass(frozen=True)
class Scenario:
    """A code, its severity where it fires, the scene in which it must and the one in which it must not.

    also: other codes that the same fault makes true in the firing scene. besides: codes that are true of the silent
    scene, with no fault of the lab's. Every further code is a false alarm. case: what tells several scenarios of one
    code apart.
    """

    code: str
    severity: str
    fires: Play
    silent: Play
    also: frozenset[str] = frozenset()
    besides: frozenset[str] = frozenset()
    case: str = ""

    @property
    def name(self) -> str:
        """The code, and the case where it has several."""
        return f"{self.code} ({self.case})" if self.case else self.code

    def problem_firing(self, played: Played) -> str | None:
        """What is wrong with the outcome of the firing scene, or None."""
        severity = played.codes.get(self.code, (None, ""))[0]
        if severity is None:
            return f"{self.code} did not fire; {_said(played)}"
        if severity != self.severity:
            return f"{self.code} fired as {severity}, not as {self.severity}"
        return _surplus(played, {self.code, *self.also})

    def problem_silent(self, played: Played) -> str | None:
        """What is wrong with the outcome of the silent scene, or None."""
        if self.code in played.codes:
            return f"{self.code} fired without a cause: {played.codes[self.code][1]}"
        return _surplus(played, set(self.besides))


def _surplus(played: Played, expected: set[str]) -> str | None:
    surplus = sorted(set(played.codes) - expected - OF_SHORT_SCENES)
    return f"further codes: {', '.join(f'{code} ({played.codes[code][1]})' for code in surplus)}" if surplus else None


def _said(played: Played) -> str:
    return f"said: {', '.join(sorted(played.codes)) or 'nothing'}"
