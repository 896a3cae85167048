"""The KV cache in fewer bytes: more room and fewer bytes read per step, at some risk to answers.

Without the bytes from the server's log, a cache type that was silently replaced goes unseen.
"""

from __future__ import annotations

from lab.campaign import Arm, Strict
from lab.engines.base import Engine
from lab.levers.base import Lever, Proof, compare_fact, register
from lab.predictions import Planned, Prediction, of_cache
from lab.records import Launch
from lab.roofline.model import KV_BLOCKS, Model


@register
class KvCacheDtype(Lever):
    """Keys and values in another type."""

    class Options(Strict):
        """`dtype`: a KV-cache type in the engine's own words (llama.cpp: q8_0, q4_0, bf16 …)."""

        dtype: str

    title = "KV-cache dtype"
    notebook = "07_kv_cache_dtype"
    mechanism = (
        "Every step reads the keys and values of the whole context; a smaller type halves those bytes and doubles "
        "the room."
    )
    predicted = "positive for long contexts and large batches; no effect where weights dominate"
    backfires = "unpacking costs compute at short context; coarse types harm answers, more so at long context"
    changes_text = True

    def not_applicable(self, engine: Engine, model: Model) -> str | None:
        return None if engine.name == "llamacpp" else f"no treatment is defined for {engine.name}"

    def treatments(self, control: Arm, engine: Engine) -> list[Arm]:
        dtype = self.options.dtype
        return [self.arm(control, f"KV {dtype}", flags={"cache_type_k": dtype, "cache_type_v": dtype})]

    def prediction(self, control: Planned, treatment: Planned) -> Prediction:
        return of_cache(control, treatment)

    def proof(self, control: Launch, treatment: Launch, engine: Engine) -> Proof:
        dtype, facts = self.options.dtype, ("kv_dtype_k", "kv_dtype_v")
        reported = {fact: treatment.effective.get(fact) for fact in facts}
        other = [f"{fact} {value}" for fact, value in reported.items() if str(value).lower() != dtype.lower()]
        if other:
            return Proof(False, f"asked for KV {dtype}, the server reports {', '.join(other)}")
        types = [compare_fact(control, treatment, fact, "KV type") for fact in facts]
        proofs = [next((proof for proof in types if proof.applied), types[0])]
        if self._bytes_differ(control, treatment):
            proofs.append(compare_fact(control, treatment, "kv_bytes", "KV bytes"))
        return Proof(all(proof.applied for proof in proofs), "; ".join(proof.text for proof in proofs))

    def _bytes_differ(self, control: Launch, treatment: Launch) -> bool:
        """Whether the cache must change its size: f16 and bf16 take the same room."""
        sizes = [
            [KV_BLOCKS.get(launch.effective.get(fact, "")) for fact in ("kv_dtype_k", "kv_dtype_v")]
            for launch in (control, treatment)
        ]
        return sizes[0] != sizes[1]
