"""One label and one sentence from the evidence; the first reason to refuse wins."""

from __future__ import annotations

from typing import Any

import pytest

from lab.audit.base import FINDING, INVALID, WARNING, Code
from lab.campaign import Rule
from lab.stats.compare import Effect
from lab.stats.sequential import Judgement
from lab.verdict import (
    ADOPT,
    FAILED,
    INCONCLUSIVE,
    NO_EFFECT,
    NOT_APPLICABLE,
    REJECT,
    Evidence,
    Verdict,
    decide,
)  # fmt: skip
from lab.verdict import (
    INVALID as INVALID_LABEL,
)

CAPPED = Code("capacity-limited", FINDING, "asked 4, ran 2.0, 2.0 waited: the server runs at most 2 (/slots)")
WORSE = Code("accuracy-regression", INVALID, "of 200 answers 16 became wrong and 0 right")
WITHDRAWN = Code("too-few-requests", WARNING, "12 requests at C=4", withdraws=("ttft_p50_ms",))
BAD = Code("batch-cap", INVALID, "asked 4, ran 2.0, 2.0 waited: the server runs at most 2 (/slots)")


def effect(pct: float | None, low: float | None = None, high: float | None = None, **values: Any) -> Effect:
    figures = {"p_value": 0.01, "df": 4, "residual_cv_pct": 1.0, "drift_pct": 0.0, "launches": 5}
    return Effect(pct, low, high, **{**figures, **values})


def rule(**values: Any) -> Rule:
    return Rule(**{"workload": "chat", "concurrency": 4, "min_effect_pct": 3.0, **values})


def verdict(
    of: Effect | None, under: Rule | None = None, label: str = ADOPT, hopeless: bool = False, **evidence: Any
) -> Verdict:
    """What is decided when the sequential rule says `label` of an effect."""
    settled = evidence.pop("settled", True)
    judged = None if of is None else Judgement(label, 2, of, settled, hopeless, looks=1)
    return decide(Evidence(**{"title": "T", "treatment_launches": 2, "judged": judged, **evidence}), under or rule())


def test_a_clear_gain_of_at_least_the_asked_size_is_adopted() -> None:
    said = verdict(effect(31.04, 27.9, 34.2))
    assert said == Verdict(
        ADOPT, "helps: output_tok_s +31.0 % [+27.9, +34.2] at C=4, above the asked 3 %; accuracy was not tested"
    )


def test_a_clear_loss_is_rejected() -> None:
    said = verdict(effect(-38.2, -40.1, -36.2), label=REJECT)
    assert said == Verdict(REJECT, "hurts: output_tok_s −38.2 % [−40.1, −36.2] at C=4")


def test_an_interval_within_the_asked_band_is_no_effect() -> None:
    said = verdict(effect(0.4, -1.1, 1.9), label=NO_EFFECT)
    assert said == Verdict(NO_EFFECT, "any effect is smaller than 3 %: output_tok_s +0.4 % [−1.1, +1.9] at C=4")


def test_an_interval_that_holds_zero_and_the_asked_effect_is_inconclusive() -> None:
    said = verdict(effect(1.6, -1.2, 4.4), label=INCONCLUSIVE)
    assert said.label == INCONCLUSIVE
    assert said.reason.startswith("cannot be told from launch noise: output_tok_s +1.6 % [−1.2, +4.4] at C=4; about ")
    assert said.reason.endswith("more passes would tell")


def test_a_gain_that_may_be_smaller_than_the_asked_one_is_not_called_noise() -> None:
    said = verdict(effect(2.8, 0.5, 5.1), label=INCONCLUSIVE)
    assert said.label == INCONCLUSIVE
    assert said.reason.startswith("cannot be told from an effect below 3 %: output_tok_s +2.8 % [+0.5, +5.1] at C=4")


def test_no_further_passes_are_asked_for_when_the_interval_is_narrow_already() -> None:
    said = verdict(effect(2.9, 1.9, 3.9), label=INCONCLUSIVE)
    assert said.label == INCONCLUSIVE
    assert "more pass" not in said.reason


def test_the_passes_asked_for_follow_the_alpha_of_the_rule() -> None:
    texts = {verdict(effect(1.6, -4.2, 7.4), rule(alpha=alpha), INCONCLUSIVE).reason for alpha in (0.001, 0.4)}
    assert len(texts) == 2


def test_a_lever_that_is_not_decided_yet_says_so() -> None:
    said = verdict(effect(2.8, -1.0, 6.6), label=INCONCLUSIVE, settled=False)
    assert said.label == INCONCLUSIVE
    assert said.reason.startswith(
        "not decided yet after 2 of 8 passes: output_tok_s +2.8 % [−1.0, +6.6] at C=4; about "
    )


def test_a_lever_that_left_without_hope_says_so() -> None:
    said = verdict(effect(0.1, -7.0, 7.2), label=INCONCLUSIVE, hopeless=True)
    assert said.label == INCONCLUSIVE
    assert said.reason.startswith("left after 2 of 8 passes, since the rest would not tell: output_tok_s +0.1 %")


@pytest.mark.parametrize(("pct", "label"), [(-20.0, ADOPT), (20.0, REJECT), (0.5, NO_EFFECT), (-2.0, INCONCLUSIVE)])
def test_of_a_metric_where_lower_is_better_the_figures_keep_their_sign(pct: float, label: str) -> None:
    said = verdict(effect(pct, pct - 5, pct + 5), rule(metric="ttft_p50_ms"), label)
    assert said.label == label
    assert f"ttft_p50_ms {'+' if pct > 0 else '−'}{abs(pct):.1f} %" in said.reason


def test_one_launch_is_a_screening_however_large_its_effect() -> None:
    said = verdict(effect(50.0, 40.0, 60.0), label=INCONCLUSIVE, treatment_launches=1)
    assert said == Verdict(INCONCLUSIVE, "screened only: one launch; output_tok_s +50.0 % [+40.0, +60.0] at C=4")


def test_an_effect_without_an_interval_shows_none() -> None:
    said = verdict(effect(50.0, df=0, p_value=None), label=INCONCLUSIVE, treatment_launches=1)
    assert said.reason == "screened only: one launch; output_tok_s +50.0 % at C=4"


@pytest.mark.parametrize("of", [None, effect(None)])
def test_nothing_measured_is_inconclusive_and_says_so(of: Effect | None) -> None:
    said = verdict(of)
    assert said.label == INCONCLUSIVE
    assert said.reason.startswith("no pass was completed")


def test_a_broken_guard_rejects_a_gain() -> None:
    said = verdict(effect(31.0, 27.9, 34.2), guards={"ttft_p50_ms": "broken", "kv_tokens": "held"})
    assert said == Verdict(
        REJECT, "guard broken: ttft_p50_ms beyond its limit; output_tok_s +31.0 % [+27.9, +34.2] at C=4"
    )


@pytest.mark.parametrize("state", ["held", "unknown"])
def test_a_guard_that_is_not_broken_leaves_the_verdict(state: str) -> None:
    assert verdict(effect(31.0, 27.9, 34.2), guards={"ttft_p50_ms": state}).label == ADOPT


def test_a_guard_broken_in_one_launch_is_still_a_screening() -> None:
    broken = {"ttft_p50_ms": "broken"}
    said = verdict(effect(31.0, 27.9, 34.2), label=INCONCLUSIVE, treatment_launches=1, guards=broken)
    assert said.label == INCONCLUSIVE


def test_a_cap_is_told_with_the_effect_at_equal_batch() -> None:
    matched = effect(4.0, 2.0, 6.0)
    said = verdict(effect(-38.2, -40.1, -36.2), None, REJECT, capped=CAPPED, effect_matched=matched, running=2.0)
    assert said.label == REJECT
    assert said.findings == ("capacity-limited",)
    assert said.reason == (
        f"capacity-limited: {CAPPED.text}; at equal batch of 2: +4.0 %; "
        "hurts: output_tok_s −38.2 % [−40.1, −36.2] at C=4"
    )


def test_a_cap_without_a_window_at_equal_batch_is_told_without_it() -> None:
    said = verdict(effect(-38.2, -40.1, -36.2), None, REJECT, capped=CAPPED)
    assert said.reason.startswith(f"capacity-limited: {CAPPED.text}; hurts")


def test_a_cap_does_not_forbid_a_gain() -> None:
    said = verdict(effect(10.0, 8.0, 12.0), capped=CAPPED)
    assert (said.label, said.findings) == (ADOPT, ("capacity-limited",))


def test_wrong_answers_reject_a_gain_and_tell_its_size() -> None:
    said = verdict(effect(31.0, 27.9, 34.2), accuracy="worse", accuracy_codes=[WORSE], capped=CAPPED)
    assert said == Verdict(
        REJECT,
        f"accuracy-regression: {WORSE.text}; output_tok_s +31.0 % [+27.9, +34.2] at C=4",
        ("capacity-limited",),
    )


def test_wrong_answers_reject_without_an_effect_too() -> None:
    said = verdict(None, accuracy="worse", accuracy_codes=[WORSE])
    assert said == Verdict(REJECT, f"accuracy-regression: {WORSE.text}")


@pytest.mark.parametrize(
    ("accuracy", "allowed", "label", "ending"),
    [
        ("same", False, ADOPT, "above the asked 3 %"),
        ("not-tested", False, ADOPT, "; accuracy was not tested"),
        ("unknown", True, ADOPT, "; accuracy is unknown"),
        ("unknown", False, INCONCLUSIVE, "above the asked 3 %"),
    ],
)
def test_unknown_answers_forbid_adoption_unless_the_campaign_allows_them(
    accuracy: str, allowed: bool, label: str, ending: str
) -> None:
    said = verdict(effect(31.0, 27.9, 34.2), accuracy=accuracy, accuracy_unknown_allowed=allowed)
    assert said.label == label
    assert said.reason.endswith(ending)
    assert said.reason.startswith("not adopted, since nothing shows that answers are as right") == (label != ADOPT)


@pytest.mark.parametrize(("pct", "label"), [(-31.0, REJECT), (0.0, NO_EFFECT)])
def test_unknown_answers_change_no_other_verdict(pct: float, label: str) -> None:
    assert verdict(effect(pct, pct - 1, pct + 1), None, label, accuracy="unknown").label == label


def test_a_withdrawn_metric_is_the_reason_why_nothing_was_measured() -> None:
    said = verdict(None, rule(metric="ttft_p50_ms"), withdrawn=[WITHDRAWN])
    assert said == Verdict(INCONCLUSIVE, "ttft_p50_ms was withdrawn: too-few-requests: 12 requests at C=4")


STEPS: list[tuple[dict[str, Any], str, str]] = [
    ({"not_applicable": "one device: no collectives"}, NOT_APPLICABLE, "one device: no collectives"),
    ({"failure": "out-of-memory: 12 GB asked"}, FAILED, "out-of-memory: 12 GB asked"),
    ({"invalid": [BAD]}, INVALID_LABEL, f"batch-cap: {BAD.text}"),
    ({"accuracy_codes": [WORSE]}, REJECT, "accuracy-regression"),
    ({"of": None}, INCONCLUSIVE, "no pass was completed"),
    ({"treatment_launches": 1, "label": INCONCLUSIVE}, INCONCLUSIVE, "screened only"),
    ({"guards": {"ttft_p50_ms": "broken"}}, REJECT, "guard broken"),
    ({}, ADOPT, "helps"),
]


@pytest.mark.parametrize("first", range(len(STEPS)))
def test_the_first_reason_wins(first: int) -> None:
    evidence: dict[str, Any] = {}
    for changes, _, _ in reversed(STEPS[first:]):
        evidence |= changes
    said = verdict(**{"of": effect(31.0, 27.9, 34.2), **evidence})
    assert said.label == STEPS[first][1]
    assert said.reason.startswith(STEPS[first][2])


def test_a_refusal_carries_no_findings_of_the_effect() -> None:
    assert verdict(effect(10.0, 8.0, 12.0), capped=CAPPED, invalid=[BAD]).findings == ()


@pytest.mark.parametrize(
    ("label", "better", "said"),
    [
        (ADOPT, False, "; it costs ttft_p50_ms +21.0 %"),
        (ADOPT, True, None),
        (REJECT, True, "; it brings ttft_p50_ms +21.0 %"),
        (REJECT, False, None),
        (NO_EFFECT, True, "; it brings ttft_p50_ms +21.0 %"),
        (INCONCLUSIVE, True, None),
    ],
)
def test_what_a_lever_trades_is_told_in_its_row(label: str, better: bool, said: str | None) -> None:
    traded = {"ttft_p50_ms": (effect(21.0, 15.0, 27.0), better)}
    found = verdict(effect(10.0, 8.0, 12.0), label=label, accuracy="same", traded=traded)
    assert found.label == label
    assert found.reason.endswith(said) if said else "ttft" not in found.reason
    assert ("trade-off" in found.findings) == (said is not None)
