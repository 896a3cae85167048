"""Which launches are measured again: a launch that was disturbed, not one that cannot come out otherwise.

Without it one stalled disk costs a lever its verdict, or a flag that the engine refuses is tried all night.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lab.audit import INVALID, Code
from lab.context import Audited
from lab.records import NEVER_JUDGED, Launch

RETRIES = 2
"""How often an invalid trial or a failed launch is measured again (contract, section 2)."""
CERTAIN_FAILURES = frozenset({"bad-flag", "unsupported", "out-of-memory", "missing-checkpoint"})
CERTAIN_CODES = frozenset({"batch-cap", "lever-not-applied", "faked-output"})
Slot = tuple[str, int, str]
"""Arm, pass and role: what one launch was to fill."""


@dataclass(frozen=True)
class Attempt:
    """One launch for a slot; failure: its kind and reason, None when it lived; codes: those that invalidate its judged
    trial."""

    launch: str
    failure: tuple[str, str] | None
    codes: tuple[Code, ...]

    @property
    def good(self) -> bool:
        """Whether a verdict may rest on it."""
        return self.failure is None and not self.codes

    @property
    def certain(self) -> bool:
        """Whether another launch would end the same way."""
        names = {code.code for code in self.codes}
        return (self.failure is not None and self.failure[0] in CERTAIN_FAILURES) or bool(names & CERTAIN_CODES)


def attempts(launches: Iterable[Launch], audited: Iterable[Audited]) -> dict[Slot, list[Attempt]]:
    """All attempts on record, by slot, in order; without searches and burn-ins."""
    codes: dict[str, list[Code]] = {}
    for entry in audited:
        if entry.judged:
            codes.setdefault(entry.trial.launch.id, []).extend(c for c in entry.codes if c.severity == INVALID)
    found: dict[Slot, list[Attempt]] = {}
    for launch in launches:
        if launch.role in NEVER_JUDGED:
            continue
        said = launch.record["failure"]
        failure = None if launch.ok else (said["kind"], said["reason"])
        attempt = Attempt(launch.id, failure, tuple(codes.get(launch.id, ())))
        found.setdefault((launch.arm, launch.pass_number, launch.role), []).append(attempt)
    return found


def filled(made: Sequence[Attempt]) -> bool:
    """Whether one attempt was good."""
    return any(attempt.good for attempt in made)


def owed(made: Sequence[Attempt]) -> bool:
    """Whether the slot needs a launch: none was made, or all were disturbed and the last may be repeated."""
    if not made:
        return True
    return not (filled(made) or made[-1].certain or len(made) > RETRIES)


def lost(made: Sequence[Attempt]) -> bool:
    """Whether the slot stays empty for good, so that its pass cannot be completed."""
    return not filled(made) and not owed(made)


def failed_pass(made: Mapping[Slot, Sequence[Attempt]], arm: str) -> str | None:
    """Which pass of an arm could not be completed because its launches failed, and why; None when none."""
    for (name, number, _), tries in made.items():
        if name == arm and lost(tries) and tries[-1].failure:
            kind, reason = tries[-1].failure
            return f"pass {number} could not be completed, tried {len(tries)} times: {kind}: {reason}"
    return None
