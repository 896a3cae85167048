"""Records whose figures may all be absent.

Without it every check would have to ask for every figure twice, and an old record, written before a figure was known,
could not be judged at all.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lab.audit.base import Context
from lab.records import Trial

SECTIONS = ("window", "prompts", "client", "server", "machine", "metrics", "steady")
# What a section without this figure means: a closed loop was all there was, nothing was looked for, none was counted.
DEFAULTS: dict[str, dict[str, Any]] = {
    "client": {
        "arrivals": "closed",
        "in_flight_bins": [],
        "in_flight_trend_pct": 0.0,
        "errors": {},
        **dict.fromkeys(("sent", "failed", "completed", "aborted_of_window", "window_tokens"), 0),
    },
    "server": {"delta": {}, "window_delta": {}, "zero_gauges": [], "zero_counters": [], "samples": 0},
    "metrics": {"requests_in_window": 0},
    "steady": {"outcome": "found"},
}


class Section(dict[str, Any]):
    """A section of trial.json in which an absent figure reads as None."""

    def __missing__(self, key: str) -> None:
        return None


def complete(trial: Trial, context: Context) -> tuple[Trial, Context]:
    """The trial and the context's controls with every section, and None (or the default) for absent figures."""
    control = _complete(context.control) if context.control else None
    return _complete(trial), replace(context, control=control)


def _complete(trial: Trial) -> Trial:
    sections = {name: Section({**DEFAULTS.get(name, {}), **_known(trial.record.get(name) or {})}) for name in SECTIONS}
    return replace(trial, record={**trial.record, **sections})


def _known(section: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in section.items() if value is not None}
