"""A verdict row against the roofline: how much of its bound each arm reached, what was expected, and what is amiss.

Without it beside the verdict, a lever is adopted for 5 % on a server that wastes 98 % of its hardware.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lab.audit.theory import sign_missed
from lab.context import Audited
from lab.gap import STRUCTURAL_SHARE, account, structural
from lab.health import Health, health, plain_bound, predicted_effect_pct, verified_bound
from lab.records import Launch, Trial
from lab.roofline.hardware import Hardware
from lab.row_figures import with_throughput
from lab.stats.compare import Effect

PREDICTED_METRIC = "output_tok_s"
"""What the bound predicts: a rule on another metric is not held against it."""


@dataclass(frozen=True)
class RowBounds:
    """Health of the treatment's and of the control's judged valid trials, the sentence on a structural gap of the
    treatment, or else of the control alone, and the effect that the bound expects at the batches that ran, in percent.
    """

    treatment: Health
    control: Health
    gap: str | None
    predicted_pct: float | None

    def figures(self, launched: bool) -> dict[str, Any]:
        """The keys of a verdict row; `launched`: whether the arm was launched at all."""
        return {
            "bound_tok_s": self.treatment.bound_tok_s,
            "bound_fraction": self.treatment.bound_fraction,
            "bound_fraction_control": self.control.bound_fraction if launched else None,
            "predicted_effect_pct": self.predicted_pct,
            "structural_gap": self.gap if launched else None,
        }

    def findings(
        self, measured: Effect | None, metric: str, launches: Sequence[Launch], hardware: str | Mapping[str, Any] | None
    ) -> list[str]:
        """What of this is worth knowing; `hardware`: as the campaign file names it."""
        mine = _structural(self.treatment)
        told = {
            "structural-gap": mine,
            "structural-gap-control": bool(launches) and not mine and _structural(self.control),
            "expected-sign-missed": metric == PREDICTED_METRIC and sign_missed(measured, self.predicted_pct),
            "more-devices-than-named": _more_than_named(launches, hardware),
        }
        return [name for name, true in told.items() if true]


def row_bounds(valid: Sequence[Audited], controls: Sequence[Audited], hardware: Hardware | None) -> RowBounds:
    """Of the valid judged trials of a treatment and of its control."""
    treatment, control = with_throughput(valid), with_throughput(controls)
    mine, theirs = health(treatment, hardware), health(control, hardware)
    gap = _sentence(treatment, hardware) if _structural(mine) else None
    if gap is None and _structural(theirs) and not _structural(mine):
        gap = _sentence(control, hardware)
    predicted = predicted_effect_pct(*([entry.trial for entry in side] for side in (valid, controls)), hardware)
    return RowBounds(mine, theirs, gap, predicted)


def _structural(found: Health) -> bool:
    return found.bound_fraction is not None and found.bound_fraction < STRUCTURAL_SHARE


def _sentence(trials: Sequence[Trial], hardware: Hardware | None) -> str | None:
    bounds = [(trial, plain_bound(trial, hardware), verified_bound(trial, hardware)) for trial in trials]
    gaps = [account(trial, plain, verified) for trial, plain, verified in bounds if plain is not None]
    return structural([gap for gap in gaps if gap is not None])


def _more_than_named(launches: Sequence[Launch], hardware: str | Mapping[str, Any] | None) -> bool:
    """Whether a server says that it uses more devices than the campaign file names."""
    if not isinstance(hardware, Mapping):
        return False
    return any((launch.effective.get("gpus") or 0) > hardware["count"] for launch in launches)
