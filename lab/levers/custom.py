"""An ad-hoc lever from the campaign file alone: any name, no code.

Without it, every idea that has no notebook of its own would be tried outside the lab, and believed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from lab.campaign import Arm, Scalar
from lab.engines.base import Engine
from lab.levers.base import Lever, Proof
from lab.records import Launch
from lab.strict import Strict, numbers_as_text

_FORMAT = ("checkpoint_format",)


class Treatment(Strict):
    """What the treatment changes."""

    flags: dict[str, Scalar | None] = {}
    env: Annotated[dict[str, str | None], numbers_as_text] = {}
    checkpoint: str | None = None
    runtime: dict[str, str] = {}


class Custom(Lever):
    """A lever that the campaign file describes."""

    class Options(Strict):
        """`proof`: facts the treatment's server must report; `proof_log`: text its log must hold."""

        title: str = Field(min_length=1, max_length=80, pattern=r"^[^\n\r]+$")
        treatment: Treatment
        mechanism: str = "stated in the campaign file"
        predicted: str = "not stated"
        proof: dict[str, Scalar] = {}
        proof_log: str | None = None

    title = "Ad-hoc lever"
    notebook = "09_custom"
    mechanism = "stated in the campaign file"
    predicted = "stated in the campaign file"
    backfires = "stated in the campaign file"
    changes_text = True

    def __init__(self, name: str, options: Any) -> None:
        super().__init__(name, options)
        self.title = options.title
        self.mechanism = options.mechanism
        self.predicted = options.predicted

    def treatments(self, control: Arm, engine: Engine) -> list[Arm]:
        change = self.options.treatment
        return [
            self.arm(
                control,
                self.options.title,
                checkpoint=change.checkpoint,
                flags=change.flags,
                env=change.env,
                runtime=change.runtime,
            )
        ]

    def proof(self, control: Launch, treatment: Launch, engine: Engine) -> Proof:
        """Every changed flag or variable must differ in what the servers report; where they do not show it, and for a
        checkpoint or build that looks the same, the file names other evidence."""
        declared = [self._declared(treatment, key, value) for key, value in self.options.proof.items()]
        if self.options.proof_log is not None:
            declared.append(self._logged(treatment, self.options.proof_log))
        change = self.options.treatment
        shown, other = [], []
        for name in (*change.flags, *change.env):
            facts = [fact for fact in engine.shown_by.get(name, ()) if treatment.effective.get(fact) is not None]
            if facts:
                shown.append(self._shown(control, treatment, name, facts))
            else:
                text = f"{engine.name} does not show {name}; give the lever a proof or proof_log"
                other.append(Proof(False, text))
        if change.checkpoint:
            other.append(self._any(control, treatment, "checkpoint", engine.shown_by.get("checkpoint", _FORMAT)))
        if change.runtime:
            other.append(self._fact(control, treatment, "runtime", "build"))
        if declared:
            other = [proof for proof in other if proof.applied]
        proofs = [*shown, *other, *declared]
        failed = [proof for proof in proofs if not proof.applied]
        return Proof(not failed and bool(proofs), "; ".join(proof.text for proof in failed or proofs))

    def _shown(self, control: Launch, treatment: Launch, name: str, facts: Sequence[str]) -> Proof:
        """A flag that the server shows: it differs from the control's, and a number is the one that was asked."""
        asked = {**self.options.treatment.flags, **self.options.treatment.env}[name]
        numbers = [value for fact in facts if _is_number(value := treatment.effective[fact])]
        if _is_number(asked) and numbers and asked not in numbers:
            used = ", ".join(f"{fact} {treatment.effective[fact]}" for fact in facts)
            return Proof(False, f"asked {name} {asked}, the server uses {used}; ask for what it can do")
        return self._any(control, treatment, name, facts)

    def _any(self, control: Launch, treatment: Launch, what: str, facts: Sequence[str]) -> Proof:
        proofs = [self._fact(control, treatment, what, fact) for fact in facts]
        return next((proof for proof in proofs if proof.applied), proofs[0])

    def _fact(self, control: Launch, treatment: Launch, what: str, fact: str) -> Proof:
        before, after = control.effective.get(fact), treatment.effective.get(fact)
        return Proof(before != after and after is not None, f"{what}: {fact} {before} → {after}")

    def _declared(self, treatment: Launch, key: str, expected: Any) -> Proof:
        value = treatment.effective.get(key)
        return Proof(value == expected, f"{key} is {value}, expected {expected}")

    def _logged(self, treatment: Launch, text: str) -> Proof:
        found = text in treatment.log_text()
        return Proof(found, f"the log {'holds' if found else 'does not hold'} '{text}'")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
