"""What an audit says, and how a check is registered.

Without one shape for codes, a reader cannot compare the figures that raised them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from lab.records import Trial

INVALID, WARNING, FINDING = "invalid", "warning", "finding"


@dataclass(frozen=True)
class Code:
    """One thing an audit found: its code, severity, a sentence, and the figures it compared."""

    code: str
    severity: str
    text: str
    figures: dict[str, float | int | str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Context:
    """What a check may know beside the trial: how many requests the control's server can run at once."""

    control_cap: float | None = None


Check = Callable[[Trial, Context], Code | None]
CHECKS: dict[str, Check] = {}


def check(name: str) -> Callable[[Check], Check]:
    """Register a check under its code; a code defined twice is an error of the program."""

    def register(function: Check) -> Check:
        if name in CHECKS:
            raise ValueError(f"two checks are called {name}")
        CHECKS[name] = function
        return function

    return register
