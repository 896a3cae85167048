"""Did the server answer from its prefix cache what it should have computed?

Without this check the arm that ran second is faster because the first one filled the cache.
"""

from __future__ import annotations

from lab.audit.base import INVALID, WARNING, Code, Context, check
from lab.audit.thresholds import (
    PREFIX_APART_POINTS,
    PREFIX_SHARE,
    PREFIX_TOLD_POINTS,
    TEMPLATE_TOKENS_MOST,
    TEMPLATE_TOKENS_SLACK,
)
from lab.records import Trial


@check("prefix-contamination")
def prefix_contamination(trial: Trial, context: Context) -> Code | None:
    """More of the prompts was cached than the workload declares; or, where it declares reuse, than in the control.

    A chat template puts the same text before every prompt: so many cached tokens of each prompt are nobody's repeat.
    Where reuse is declared, a difference between arms may be what the lever does: a warning. Counters and answers that
    contradict each other are one too; where every prompt should be new, the larger of the two counts.
    """
    share, told = trial.metrics["prefix_hit_share"], trial.client["cached_share"]
    if share is None:
        return None
    both = ""
    if told and abs(told - share) > PREFIX_TOLD_POINTS:
        both = f"by its counters {share:.1%} of the prompt tokens were cached, by its answers {told:.1%}"
    if trial.prompts["reuse"]:
        return _apart(share, context) or _contradicted(both, share, told)
    if both:
        share = max(share, told)
    template = _template_tokens(trial)
    length = trial.client["prompt_tokens_mean"]
    allowed = PREFIX_SHARE + (template / length if length else 0.0)
    if share <= allowed:
        return None
    text = f"{share:.1%} of the prompt tokens were cached although every prompt should be new"
    if both:
        text += f" ({both})"
    if template:
        text += f" (the template explains {template:g} tokens of {length:.0f})"
    return Code(
        "prefix-contamination", INVALID, text, {"share": share, "allowed": allowed, "template_tokens": template}
    )


def _template_tokens(trial: Trial) -> float:
    """Tokens that every prompt may share by its template: what nearly every request had cached, where the server tells
    request by request; else one block, the most that a short template fills."""
    if not trial.prompts["templated"]:
        return 0.0
    common = trial.client["cached_tokens_common"]
    if common is None:
        common = trial.launch.effective.get("block_tokens") or 0.0
    return min(TEMPLATE_TOKENS_MOST, common + TEMPLATE_TOKENS_SLACK if common else 0.0)


def _apart(share: float, context: Context) -> Code | None:
    theirs = context.control.metrics["prefix_hit_share"] if context.control else None
    if theirs is None or abs(share - theirs) <= PREFIX_APART_POINTS:
        return None
    text = f"{share:.1%} of the prompt tokens were cached, {theirs:.1%} in the control"
    return Code("prefix-contamination", WARNING, text, {"share": share, "control": theirs})


def _contradicted(said: str, share: float, told: float | None) -> Code | None:
    figures = {"share": share, "told": told}
    return Code("prefix-contamination", WARNING, f"{said}: one of them is false", figures) if said else None
