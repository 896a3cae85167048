"""Speculative decoding: several drafted tokens verified in one step (MTP, NEXTN, n-gram).

Without the counters, a method that never drafts counts as "no effect" of speculation.
"""

from __future__ import annotations

from typing import Literal

from lab.campaign import Arm, Strict
from lab.engines.base import Engine
from lab.levers.base import Lever, Proof, counted, register
from lab.predictions import Planned, Prediction, of_drafts
from lab.records import Launch
from lab.roofline.model import Model

_METHODS = {"ngram": "ngram_simple"}


@register
class Mtp(Lever):
    """Speculation on, by the method that the options name."""

    class Options(Strict):
        """`method`: ngram needs no draft model; `match_tokens` repeated tokens start a draft of `draft_tokens`."""

        method: Literal["ngram"] = "ngram"
        match_tokens: int = 4
        draft_tokens: int = 8

    title = "Speculative decoding"
    notebook = "05_mtp"
    mechanism = (
        "Drafted tokens are verified together in one pass over the weights; every accepted one saves a step. The "
        "n-gram method drafts from the text itself: it fires where the answer quotes or edits the prompt."
    )
    predicted = "positive at small batch and high acceptance; free text gains nothing"
    backfires = "where a step is bound by compute, verifying k tokens costs k tokens; rejected drafts are pure loss"
    changes_text = True

    def not_applicable(self, engine: Engine, model: Model) -> str | None:
        if engine.name != "llamacpp":
            return f"no treatment is defined for {engine.name}"
        known = _METHODS[self.options.method] in engine.capabilities().speculative_methods
        return None if known else f"{engine.name} has no speculative decoding by {self.options.method}"

    def treatments(self, control: Arm, engine: Engine) -> list[Arm]:
        flags = {
            "speculative": _METHODS[self.options.method],
            "speculative.ngram_simple.size_n": self.options.match_tokens,
            "speculative.ngram_simple.size_m": self.options.draft_tokens,
        }
        return [self.arm(control, "n-gram speculation", flags=flags)]

    def prediction(self, control: Planned, treatment: Planned) -> Prediction:
        return of_drafts(control, self.options.draft_tokens)

    def proof(self, control: Launch, treatment: Launch, engine: Engine) -> Proof:
        states = [launch.effective.get("speculative") for launch in (control, treatment)]
        if states[0] or not states[1]:
            return Proof(False, f"speculation active: control {states[0]}, treatment {states[1]} (/slots)")
        drafted, accepted = (counted(treatment, name) for name in ("draft_tokens", "draft_accepted"))
        if not drafted:
            return Proof(
                False, f"speculation is on but drafted {drafted or 0:g} tokens: it never fired on these prompts"
            )
        accepted = accepted or 0
        share = accepted / drafted
        return Proof(
            True, f"speculation off → on (/slots); accepted {accepted:g} of {drafted:g} drafted tokens ({share:.0%})"
        )
