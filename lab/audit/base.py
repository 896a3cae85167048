"""What an audit says, and how a check is registered.

Without one shape for codes, a reader cannot compare the figures that raised them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from lab.records import Launch, Trial

INVALID, WARNING, FINDING = "invalid", "warning", "finding"


@dataclass(frozen=True)
class Code:
    """One thing an audit found: its code, severity, a sentence, and the figures it compared.

    `withdraws` names the metrics of the trial that may not be used because of it; the others stand. A trial with an
    INVALID code feeds no verdict at all.
    """

    code: str
    severity: str
    text: str
    figures: dict[str, float | int | str | None] = field(default_factory=dict)
    withdraws: tuple[str, ...] = ()


@dataclass(frozen=True)
class Context:
    """What a check may know beside the trial or launch itself; None or empty: not known, and nothing is claimed.

    control_cap: requests that the control's server can run at once. control: the nearest valid control trial of the
    same workload, concurrency and purpose. repeats: earlier trials of the same arm, workload, concurrency and purpose
    in the run. controls: control launches in the run. floor: the A/A floor in percent. candidates: settings that a
    search tried before this arm was chosen. fresh: fresh launches of the winner. hard_bound_tok_s, bound_tok_s: the
    roofline at the batch that ran, from bandwidth alone and with collectives. lever_changes_text: the lever may change
    what is generated. lever_changes_speculation: the lever is speculation itself. control_accuracy: the `accuracy`
    record of the control's launch. max_drop_pct: the loss of right answers that the campaign allows. metrics: what the
    rule and its guards judge by.
    """

    control_cap: float | None = None
    control: Trial | None = None
    repeats: tuple[Trial, ...] = ()
    controls: int | None = None
    floor: float | None = None
    candidates: int = 0
    fresh: int = 0
    hard_bound_tok_s: float | None = None
    bound_tok_s: float | None = None
    lever_changes_text: bool = False
    lever_changes_speculation: bool = False
    control_accuracy: dict[str, Any] | None = None
    max_drop_pct: float | None = None
    metrics: tuple[str, ...] = ()


Check = Callable[[Trial, Context], Code | None]
LaunchCheck = Callable[[Launch, Context], Code | None]
F = TypeVar("F", Check, LaunchCheck)
CHECKS: dict[str, Check] = {}
LAUNCH_CHECKS: dict[str, LaunchCheck] = {}


def check(name: str) -> Callable[[Check], Check]:
    """Register a check of trials under its code; a code defined twice is an error of the program."""
    return _register(name, CHECKS)


def further_check(name: str) -> Callable[[Check], Check]:
    """Register one more check of trials under a code that an imported file checks; the first that fires is told."""

    def register(function: Check) -> Check:
        first = CHECKS[name]
        CHECKS[name] = lambda trial, context: first(trial, context) or function(trial, context)
        return function

    return register


def launch_check(name: str) -> Callable[[LaunchCheck], LaunchCheck]:
    """Register a check of launches under its code; a code defined twice is an error of the program."""
    return _register(name, LAUNCH_CHECKS)


def _register(name: str, registry: dict[str, F]) -> Callable[[F], F]:
    def register(function: F) -> F:
        if name in registry:
            raise ValueError(f"two checks are called {name}")
        registry[name] = function
        return function

    return register
