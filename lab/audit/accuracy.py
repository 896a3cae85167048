"""Was speed bought with wrong answers, and would the probe have seen it?

Without it a broken kernel is the fastest one; without the second question, twenty items "prove" that nothing changed.
"""

from __future__ import annotations

from lab.accuracy.gate import FAIL, Gate, gate
from lab.audit.base import INVALID, WARNING, Code, Context, launch_check
from lab.records import Launch


@launch_check("accuracy-regression")
def accuracy_regression(launch: Launch, context: Context) -> Code | None:
    """The paired gate fails: the treatment gets more wrong than the campaign allows.

    It is a fact about the arm and refuses the lever (`reject`); its measurements stay what they are.
    """
    tested = _gate(launch, context)
    if tested is None or tested.outcome != FAIL:
        return None
    text = (
        f"of {tested.items} answers {tested.lost} became wrong and {tested.gained} right: a drop of "
        f"{tested.drop_pct:.1f} points (95 % sure of {tested.low_pct:.1f}), {context.max_drop_pct:g} are allowed"
    )
    return Code("accuracy-regression", INVALID, text, _figures(tested, context))


@launch_check("accuracy-underpowered")
def accuracy_underpowered(launch: Launch, context: Context) -> Code | None:
    """The probe could not have seen the allowed drop; or the arms were not asked the same, and there is no gate."""
    tested = _gate(launch, context)
    if tested is None:
        return None
    if not tested.same_protocol:
        text = "the accuracy probe asked the two arms differently (questions, template or sampling): no comparison"
        return Code("accuracy-underpowered", INVALID, text, _figures(tested, context))
    if tested.outcome == FAIL or not tested.underpowered(context.max_drop_pct):
        return None
    text = (
        f"not tested at this resolution: {tested.items} items, {tested.control_pct:.0f} % right in the control, show "
        f"a drop from {tested.detectable_pct:.1f} points on; {context.max_drop_pct:g} are allowed"
    )
    return Code("accuracy-underpowered", WARNING, text, _figures(tested, context))


def _gate(launch: Launch, context: Context) -> Gate | None:
    mine = launch.record.get("accuracy")
    if mine is None or context.control_accuracy is None or context.max_drop_pct is None:
        return None
    return gate(context.control_accuracy, mine, context.max_drop_pct)


def _figures(tested: Gate, context: Context) -> dict[str, float | int | str | None]:
    return {
        "items": tested.items,
        "lost": tested.lost,
        "gained": tested.gained,
        "drop_pct": tested.drop_pct,
        "low_pct": tested.low_pct,
        "high_pct": tested.high_pct,
        "p_value": tested.p_value,
        "detectable_pct": tested.detectable_pct,
        "max_drop_pct": context.max_drop_pct,
    }
