"""Another checkpoint format: NVFP4 on Blackwell, Q4_0 against Q4_1 on llama.cpp.

Without naming the real formats, a table says "NVFP4" of something that is not.
"""

from __future__ import annotations

from lab.campaign import Arm, Strict
from lab.engines.base import Engine
from lab.levers.base import Lever, Proof, compare_fact, register
from lab.predictions import Planned, Prediction, of_checkpoint
from lab.records import Launch


@register
class Nvfp4Checkpoint(Lever):
    """The same model from another checkpoint."""

    class Options(Strict):
        """`checkpoint`: a path on the server's host, or a name the lab can fetch or make."""

        checkpoint: str

    title = "Checkpoint format"
    notebook = "06_nvfp4_checkpoint"
    mechanism = (
        "Fewer weight bytes are read per step, and formats have kernels of different speed: llama.cpp repacks Q4_0 for "
        "wide vector units, Q4_1 it does not."
    )
    predicted = "positive: fewer bytes, and a repacked layout"
    backfires = "a coarser format can change answers; unpacking costs compute where a step is not bound by memory"
    changes_text = True

    def treatments(self, control: Arm, engine: Engine) -> list[Arm]:
        return [self.arm(control, self.options.checkpoint, checkpoint=self.options.checkpoint)]

    def prediction(self, control: Planned, treatment: Planned) -> Prediction:
        return of_checkpoint(control, treatment)

    def proof(self, control: Launch, treatment: Launch, engine: Engine) -> Proof:
        return compare_fact(control, treatment, "checkpoint_format", "checkpoint format")
