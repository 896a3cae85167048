"""What a lever is: hypothesis, treatments, and the proof that it took effect.

Without the hypothesis written down before the run, any result can be explained afterwards; without the proof, a flag
that the engine ignored counts as "no effect".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from lab.campaign import Arm, Strict
from lab.engines.base import Engine
from lab.predictions import Planned, Prediction, by_inputs
from lab.records import Launch
from lab.roofline.model import Model


@dataclass(frozen=True)
class Proof:
    """Whether a launch shows the lever, and the evidence in words."""

    applied: bool
    text: str


class Lever(ABC):
    """One hypothesis about a serving stack."""

    class Options(Strict):
        """The lever's own options in the campaign file."""

    title: ClassVar[str]
    notebook: ClassVar[str]
    mechanism: ClassVar[str]
    predicted: ClassVar[str]
    backfires: ClassVar[str]
    changes_text: ClassVar[bool] = False
    """Whether answers may differ from the control's: then another length of answers is a warning, not an error."""

    def __init__(self, name: str, options: Any) -> None:
        self.name = name
        self.options = options

    def not_applicable(self, engine: Engine, model: Model) -> str | None:
        """Why this lever cannot exist for this engine and model, or None."""
        return None

    @abstractmethod
    def treatments(self, control: Arm, engine: Engine) -> list[Arm]:
        """The arms to compare with the control; raises InputError for options that make no arm."""

    def prediction(self, control: Planned, treatment: Planned) -> Prediction:
        """What the roofline expects of a treatment, from figures alone; raises LabError where it has no bound."""
        return by_inputs(control, treatment)

    @abstractmethod
    def proof(self, control: Launch, treatment: Launch, engine: Engine) -> Proof:
        """Whether the treatment's server shows the lever and the control's does not."""

    # A lever that searches for its treatment overrides these two.
    searches: int = 0

    def propose(self, control: Arm, engine: Engine, scores: Sequence[tuple[Arm, float]]) -> Arm | None:
        """The next candidate to try, given the scores (higher is better) so far; None when the search is over."""
        return None

    def arm(self, control: Arm, treatment: str, **changes: Any) -> Arm:
        """A treatment of this lever."""
        return control.changed(self.name, self.name, treatment, **changes)


LEVERS: dict[str, type[Lever]] = {}


def register(kind: type[Lever]) -> type[Lever]:
    """Make a lever known under the name of its module."""
    name = kind.__module__.rpartition(".")[2]
    if name in LEVERS:
        raise ValueError(f"two levers are called {name}")
    LEVERS[name] = kind
    return kind


def compare_fact(control: Launch, treatment: Launch, key: str, meaning: str) -> Proof:
    """Proof by one fact that both servers report: it must differ."""
    before, after = control.effective.get(key), treatment.effective.get(key)
    if after is None or before is None:
        return Proof(False, f"the server does not report its {meaning}")
    if before == after:
        return Proof(False, f"both servers report {meaning} {after}: the lever changed nothing")
    source = treatment.record["effective"][key]["source"]
    return Proof(True, f"{meaning} {before} → {after} ({source})")


def counted(launch: Launch, counter: str) -> float | None:
    """A server counter summed over the launch's trials; None where no trial has it."""
    values = [trial.server["delta"].get(counter) for trial in launch.trials]
    known = [value for value in values if value is not None]
    return sum(known) if known else None
