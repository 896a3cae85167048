"""The bound of a server that was looked at from outside, and why there is none where there is none.

Without it a check says what ran and not how far that is from what the hardware allows; and a bound that silently takes
one GPU for eight, or a 16-bit cache for an 8-bit one, is worse than none.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from lab.audit import FINDING, Code
from lab.errors import LabError
from lab.gap import structural_gap
from lab.health import drafted_per_step, tokens_per_step
from lab.records import Trial
from lab.roofline.hardware import Hardware
from lab.roofline.layout import Layout
from lab.roofline.model import Model
from lab.roofline.step import Bound
from lab.served import TENSOR, layout_of
from lab.served_bound import cache_types, served_bound
from lab.served_model import served_model


@dataclass(frozen=True)
class CheckBound:
    """limit: nominal, for the batch and context that ran, None with the reason in `unknown`; hard_tok_s: what nothing
    exceeds, None where the last-level cache is not known or holds all; taken: in words, for which deployment; model:
    the one that serves, None where it is not known."""

    limit: Bound | None = None
    hard_tok_s: float | None = None
    unknown: str | None = None
    taken: str | None = None
    model: Model | None = None

    @property
    def bound_tok_s(self) -> float | None:
        """Output tokens per second that memory, arithmetic and collectives allow."""
        return None if self.limit is None else float(self.limit.bound_tok_s)

    def fraction(self, output_tok_s: float | None) -> float | None:
        """Measured over nominal, never clamped; None where one of them is not known."""
        return output_tok_s / self.bound_tok_s if output_tok_s is not None and self.bound_tok_s else None

    def finding(self, trial: Trial) -> Code | None:
        """`structural-gap`: far below the bound, so that no lever on it is worth a try before the cause is found."""
        if self.limit is None or self.model is None:
            return None
        launch = replace(trial.launch, record={**trial.launch.record, "model": asdict(self.model)})
        text = structural_gap(replace(trial, launch=launch), self.limit)
        return None if text is None else Code("structural-gap", FINDING, text)


def bound_of(trial: Trial, served: str, hardware: Hardware) -> CheckBound:
    """The bound of a check's trial on this hardware; `served`: the name that the server answers to.

    A cache type that is only asked for counts in the nominal bound, and so does the verification of drafts where their
    number is known; the hard one takes only what is proven.
    """
    facts, model = trial.launch.effective, None
    try:
        model = served_model((served, facts.get("model_name"), facts.get("model_path")), facts.get("quantization"))
    except LabError as error:
        return CheckBound(unknown=str(error))
    layout = layout_of(facts, mixture=model.experts is not None)
    unknown = _unknown(trial, layout)
    if layout is None or unknown is not None:
        return CheckBound(unknown=unknown, model=model)
    batch, context = trial.server["running"], trial.metrics["mean_context_tokens"]
    inputs = {"tokens_per_step": tokens_per_step(trial) or 1.0}
    try:
        drafted = drafted_per_step(trial) or 0.0
        nominal = served_bound(facts, model, hardware, batch, context, draft_tokens=drafted, **inputs)
        hard = served_bound(facts, model, hardware, batch, context, proven=True, **inputs)
    except LabError as error:
        return CheckBound(unknown=str(error), model=model)
    cache = cache_types(facts).words(model)
    return CheckBound(
        limit=nominal,
        hard_tok_s=None if hard.bound_hard_tok_s is None else float(hard.bound_hard_tok_s),
        taken=f"{model.name} in {model.format} on {layout.devices} x {hardware.name}, {_degrees(layout)}, "
        f"KV cache {cache}",
        model=model,
    )


def _unknown(trial: Trial, layout: Layout | None) -> str | None:
    """What the bound would need and the trial does not have."""
    if layout is None:
        shown = [fact for name, fact in trial.launch.record["effective"].items() if name in TENSOR]
        why = "; ".join(fact["source"] for fact in shown if fact["value"] is None)
        return f"how the server is spread over its GPUs is not shown{f' ({why})' if why else ', or not modelled'}"
    if not trial.server["running"]:
        return "the server does not show how many requests ran"
    if not trial.metrics["mean_context_tokens"]:
        return "how long the contexts were is not known: nobody counted the prompts' tokens"
    if tokens_per_step(trial) is None:
        return "the server speculates, and its counters do not tell how many drafts it kept"
    return None


def _degrees(layout: Layout) -> str:
    degrees = {name: degree for name, degree in asdict(layout).items() if name == "tp" or degree > 1}
    return " ".join(f"{name} {degree}" for name, degree in degrees.items())
