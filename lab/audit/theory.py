"""Do measurement, bound and prediction agree?

Without it an impossible figure passes for a fast server, a prediction is entered as if it were measured, and a high
acceptance rate is sold as a speed-up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.audit.base import INVALID, WARNING, Code, Context, check
from lab.audit.thresholds_comparison import ACCEPTANCE_HIGH, MODEL_ERROR_RATIO, OVER_HARD_BOUND, SPEEDUP_KEPT
from lab.records import Trial

if TYPE_CHECKING:
    from lab.stats.compare import Effect


@check("over-roofline")
def over_roofline(trial: Trial, context: Context) -> Code | None:
    """More tokens per second than memory can feed at the batch that ran: an input is wrong.

    Above the hard bound (every unknown input at its cheapest) the figure is impossible; above the nominal one an input
    is probably wrong. Nothing is clamped.
    """
    value, hard, nominal = trial.metrics["output_tok_s"], context.hard_bound_tok_s, context.bound_tok_s
    if value is None:
        return None
    checks = "check speculation, batch, shared prefixes, bandwidth and KV type"
    figures = {"output_tok_s": value, "hard_bound_tok_s": hard, "bound_tok_s": nominal}
    if hard and value > OVER_HARD_BOUND * hard:
        text = f"{value:.1f} tok/s is {value / hard:.0%} of what memory can feed at this batch: impossible; {checks}"
        return Code("over-roofline", INVALID, text, figures)
    if nominal and value > nominal:
        text = f"{value:.1f} tok/s is {value / nominal:.0%} of the nominal bound at this batch; {checks}"
        return Code("over-roofline", WARNING, text, figures)
    return None


@check("model-error")
def predicted_not_measured(trial: Trial, context: Context) -> Code | None:
    """Figures that the record marks as predicted (`predicted`: names of metrics) may stand beside measured ones and
    never in a comparison."""
    names = tuple(name for name in trial.record.get("predicted", ()) if trial.metrics.get(name) is not None)
    if not names:
        return None
    text = f"{', '.join(names)} was predicted by a model, not measured"
    return Code("model-error", WARNING, text, {name: trial.metrics[name] for name in names}, withdraws=names)


def prediction_missed(effect: Effect | None, predicted_pct: float | None) -> Code | None:
    """`model-error` of a verdict row: the measured interval excludes the predicted effect, which has another sign or is
    far off.

    Then the bound does not explain the lever, and its prediction is no guide for other models or machines.
    """
    if effect is None or predicted_pct is None or effect.ci_low_pct is None or effect.ci_high_pct is None:
        return None
    if effect.ci_low_pct <= predicted_pct <= effect.ci_high_pct:
        return None
    measured, predicted = 1 + effect.effect_pct / 100, 1 + predicted_pct / 100
    ratio = max(measured, predicted) / min(measured, predicted)
    if ratio <= MODEL_ERROR_RATIO and not sign_missed(effect, predicted_pct):
        return None
    text = (
        f"the bound predicts {predicted_pct:+.1f} %, measured was {effect.effect_pct:+.1f} % "
        f"[{effect.ci_low_pct:+.1f}, {effect.ci_high_pct:+.1f}]: it does not explain this lever"
    )
    figures = {"predicted_pct": predicted_pct, "effect_pct": effect.effect_pct, "ratio": ratio}
    return Code("model-error", WARNING, text, figures)


def sign_missed(effect: Effect | None, predicted_pct: float | None) -> bool:
    """Whether the whole interval lies on the other side of zero than the prediction."""
    if effect is None or not predicted_pct or effect.ci_low_pct is None or effect.ci_high_pct is None:
        return False
    return effect.ci_high_pct < 0 if predicted_pct > 0 else effect.ci_low_pct > 0


@check("acceptance-not-speedup")
def acceptance_not_speedup(trial: Trial, context: Context) -> Code | None:
    """Most drafts are accepted, and tokens hardly come faster.

    With a step no dearer than the control's, `acceptance_length` tokens a step would make tokens come that many times
    as fast (break-even: pitfalls section 6, rule 5); less than half of it means that drafting and verifying eat it.
    """
    control = context.control
    if control is None or control.metrics.get("acceptance") is not None:
        return None
    acceptance, length = trial.metrics.get("acceptance"), trial.metrics.get("acceptance_length")
    mine, theirs = trial.metrics.get("tpot_p50_ms"), control.metrics.get("tpot_p50_ms")
    if acceptance is None or length is None or not mine or not theirs or acceptance <= ACCEPTANCE_HIGH:
        return None
    speedup = theirs / mine
    if speedup >= SPEEDUP_KEPT * length:
        return None
    text = (
        f"{acceptance:.0%} of the drafts are accepted, {length:.2f} tokens a step, but tokens come only {speedup:.2f} "
        f"times as fast: a step costs {length / speedup:.2f} times the control's"
    )
    figures = {"acceptance": acceptance, "acceptance_length": length, "speedup": speedup}
    return Code("acceptance-not-speedup", WARNING, text, figures)
