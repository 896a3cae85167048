"""Which codes of an arm's trials and launches count for its verdict row.

Without one place for it, a disturbance that a second launch repaired would cost the lever its verdict, and one that
recurs would pass for chance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from lab import retry
from lab.audit import FINDING, WARNING, Code
from lab.context import ACCURACY_CODES, Audited
from lab.records import Launch


def invalidating(
    attempts: Mapping[retry.Slot, list[retry.Attempt]], arm: str, entries: Sequence[Audited]
) -> list[Code]:
    """Codes because of which a pass of the arm could not be completed, that recur among launches that nothing replaced,
    or that left it without a valid trial; `entries`: its judged trials."""
    empty = [made for slot, made in attempts.items() if slot[0] == arm and not retry.filled(made)]
    found = [code for made in empty for attempt in made for code in attempt.codes]
    counts = Counter(names(found))
    lost = {code.code for made in empty if retry.lost(made) for code in made[-1].codes}
    nothing_left = bool(entries) and not any(entry.valid for entry in entries)
    chosen = [code for code in found if nothing_left or counts[code.code] > 1 or code.code in lost]
    return list({code.code: code for code in chosen}.values())


def recurring_warnings(entries: Sequence[Audited]) -> list[Code]:
    """Warnings that occur in more than one trial."""
    found = [code for entry in entries for code in entry.codes if code.severity == WARNING]
    counts = Counter(names(found))
    return list({code.code: code for code in found if counts[code.code] > 1}.values())


def recurring_of_launches(launches: Sequence[Launch], codes: Mapping[str, list[Code]]) -> list[Code]:
    """Codes of launches (by id) that recur in the arm, or of an arm that never lived; those on answers are apart."""
    found = [code for launch in launches for code in codes[launch.id] if code.severity != FINDING]
    found = [code for code in found if code.code not in ACCURACY_CODES]
    counts, lived = Counter(names(found)), any(launch.ok for launch in launches)
    return [code for code in found if counts[code.code] > 1 or not lived]


def withdrawing(entries: Sequence[Audited], metrics: Sequence[str]) -> list[Code]:
    """The codes that took one of these metrics from a trial that otherwise stands."""
    return [code for entry in entries for metric in metrics for code in entry.withdrawing(metric)]


def names(codes: Iterable[Code]) -> list[str]:
    """Their names, in order."""
    return [code.code for code in codes]
