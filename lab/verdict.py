"""From evidence to a verdict and the sentence that a person would write.

Without one pure function, the same evidence gets a different answer in the notebook, the table and the dashboard.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lab.audit.base import Code
from lab.campaign import Rule
from lab.stats.compare import Effect
from lab.stats.looks import ADOPT, INCONCLUSIVE, NO_EFFECT, REJECT
from lab.stats.planning import passes_needed
from lab.stats.sequential import Judgement

# Beyond this the figure says only: not with this rule on this machine.
MOST_PASSES_NAMED = 50
INVALID, FAILED, NOT_APPLICABLE = "invalid", "failed", "not-applicable"


@dataclass(frozen=True)
class Evidence:
    """All that a verdict on one treatment rests on; judged: what the sequential rule says of the rule's metric; traded:
    what else the lever changes, and whether for the better."""

    title: str
    not_applicable: str | None = None
    failure: str | None = None
    invalid: list[Code] = field(default_factory=list)
    treatment_launches: int = 0
    judged: Judgement | None = None
    effect_matched: Effect | None = None
    capped: Code | None = None
    running: float | None = None
    withdrawn: list[Code] = field(default_factory=list)
    accuracy: str = "not-tested"
    accuracy_codes: list[Code] = field(default_factory=list)
    accuracy_unknown_allowed: bool = False
    guards: dict[str, str] = field(default_factory=dict)
    traded: dict[str, tuple[Effect, bool]] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """A label, the reason in one sentence, and findings worth knowing."""

    label: str
    reason: str
    findings: tuple[str, ...] = ()


def decide(evidence: Evidence, rule: Rule) -> Verdict:
    """The first reason wins: not applicable, failed, invalid (an effect not proven among it), answers that got worse,
    not measured, screened only, guard broken, then the sequential rule; and nothing is adopted whose answers are
    unknown, unless the campaign allows it."""
    if evidence.not_applicable:
        return Verdict(NOT_APPLICABLE, evidence.not_applicable)
    if evidence.failure:
        return Verdict(FAILED, evidence.failure)
    if evidence.invalid:
        worst = evidence.invalid[0]
        return Verdict(INVALID, f"{worst.code}: {worst.text}")
    effect = evidence.judged.effect if evidence.judged else None
    findings = ("capacity-limited",) if evidence.capped else ()
    regression = next((code for code in evidence.accuracy_codes if code.code == "accuracy-regression"), None)
    if regression:
        speed = "" if effect is None or effect.effect_pct is None else f"; {_measured(effect, rule)}"
        return Verdict(REJECT, f"{regression.code}: {regression.text}{speed}", findings)
    if evidence.judged is None or effect is None or effect.effect_pct is None:
        return Verdict(INCONCLUSIVE, _nothing_measured(evidence, rule))
    broken = [name for name, state in evidence.guards.items() if state == "broken"]
    if broken and not _screened(evidence, effect):
        text = f"guard broken: {', '.join(broken)} beyond its limit; {_measured(effect, rule)}"
        return Verdict(REJECT, text, findings)
    label, text = evidence.judged.label, _sentence(evidence.judged, rule, evidence)
    if evidence.capped:
        text = f"{_cap_sentence(evidence)}; {text}"
    if price := _price(label, evidence):
        text, findings = f"{text}; {price}", (*findings, "trade-off")
    if label == ADOPT and evidence.accuracy == "unknown" and not evidence.accuracy_unknown_allowed:
        return Verdict(INCONCLUSIVE, f"not adopted, since nothing shows that answers are as right: {text}", findings)
    if label == ADOPT and evidence.accuracy in ("not-tested", "unknown"):
        text = f"{text}; accuracy {'was not tested' if evidence.accuracy == 'not-tested' else 'is unknown'}"
    return Verdict(label, text, findings)


def _nothing_measured(evidence: Evidence, rule: Rule) -> str:
    if evidence.withdrawn:
        worst = evidence.withdrawn[0]
        return f"{rule.metric} was withdrawn: {worst.code}: {worst.text}"
    return "no pass was completed: the treatment or its controls were not measured"


def _sentence(judged: Judgement, rule: Rule, evidence: Evidence) -> str:
    effect, least = judged.effect, rule.min_effect_pct
    measured = _measured(effect, rule)
    if judged.label == ADOPT:
        return f"helps: {measured}, above the asked {least:g} %"
    if judged.label == REJECT:
        return f"hurts: {measured}"
    if judged.label == NO_EFFECT:
        return f"any effect is smaller than {least:g} %: {measured}"
    if _screened(evidence, effect):
        return f"screened only: one launch; {measured}"
    needed = passes_needed(effect, max(least / 2, 0.1), rule.alpha)
    more = "" if not needed else f"; {_passes(needed)} would tell"
    done = f"{judged.passes_used} of {rule.passes.max} passes"
    if judged.hopeless:
        return f"left after {done}, since the rest would not tell: {measured}{more}"
    if not judged.settled:
        return f"not decided yet after {done}: {measured}{more}"
    noise = "launch noise" if _holds_zero(effect) else f"an effect below {least:g} %"
    return f"cannot be told from {noise}: {measured}{more}"


def _price(label: str, evidence: Evidence) -> str:
    """What a lever that helps costs, or what one that does not help would bring; empty for nothing."""
    helps = label == ADOPT
    changed = [
        f"{metric} {_signed(effect.effect_pct)} %"
        for metric, (effect, better) in evidence.traded.items()
        if better != helps
    ]
    if not changed or label not in (ADOPT, REJECT, NO_EFFECT):
        return ""
    return f"{'it costs' if helps else 'it brings'} {', '.join(changed)}"


def _holds_zero(effect: Effect) -> bool:
    return (effect.ci_low_pct or 0.0) <= 0 <= (effect.ci_high_pct or 0.0)


def _passes(needed: int) -> str:
    if needed > MOST_PASSES_NAMED:
        return f"more than {MOST_PASSES_NAMED} further passes"
    return f"about {needed} more pass{'' if needed == 1 else 'es'}"


def _screened(evidence: Evidence, effect: Effect) -> bool:
    return evidence.treatment_launches < 2 or effect.ci_low_pct is None or effect.ci_high_pct is None


def _measured(effect: Effect, rule: Rule) -> str:
    interval = "" if effect.ci_low_pct is None else f" [{_signed(effect.ci_low_pct)}, {_signed(effect.ci_high_pct)}]"
    return f"{rule.metric} {_signed(effect.effect_pct)} %{interval} at C={rule.concurrency}"


def _cap_sentence(evidence: Evidence) -> str:
    capped, matched = evidence.capped, evidence.effect_matched
    text = f"capacity-limited: {capped.text}" if capped else ""
    if matched is None or matched.effect_pct is None:
        return text
    batch = "" if evidence.running is None else f" of {evidence.running:.0f}"
    return f"{text}; at equal batch{batch}: {_signed(matched.effect_pct)} %"


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.1f}".replace("-", "−")
