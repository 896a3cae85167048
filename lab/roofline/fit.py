"""The fixed cost of a layer, from one stream.

Without it the bound says what hardware allows and not what this stack will do: launches, kernel floors and barriers
cost 50 to 130 microseconds a layer and rule at batch 1. The cost is calibration and never enters a bound.
"""

from __future__ import annotations

from lab.errors import InputError
from lab.roofline.model import Model
from lab.roofline.step import Bound


def fixed_ms_per_layer(measured_tok_s: float, limit: Bound, model: Model) -> float:
    """Milliseconds per layer that a measured step took beyond its bound.

    `limit`: the bound at the batch, context and speculation of the measurement, best of a single stream, where the step
    is shortest and the fixed cost its largest part. Raises InputError for a figure above its bound: then an input is
    wrong, and no cost may be made of it.
    """
    if not 0 < measured_tok_s <= limit.bound_tok_s:
        raise InputError(
            f"{measured_tok_s:g} tok/s measured and {limit.bound_tok_s:.4g} possible: no fixed cost can be fitted; "
            "check model, hardware, batch and speculation"
        )
    tokens = 1e3 * limit.batch * limit.tokens_per_step
    return float((tokens / measured_tok_s - tokens / limit.bound_tok_s) / model.layers)
