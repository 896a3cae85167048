"""How many distinct experts a step touches in one layer.

Without it a mixture is charged for all its experts at batch 1 or for k of them at batch 128. Independent tokens are the
usual assumption and no lower bound: skewed routing touches fewer.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from lab.errors import InputError
from lab.roofline.arrays import Numbers

UNIFORM, BALANCED = "uniform", "balanced"
# Exponents of the power law for the DeepSeek family and for other mixtures (ai-dynamo/aiconfigurator sdk/models).
POWER_LAWS = (1.01, 1.2)
DRAWS = 20
SEED = 20_260_101
_DENSE_GRID, _PER_OCTAVE = 64, 16


def distinct(experts: int, per_token: int, tokens: Numbers, routing: str | float = UNIFORM) -> Numbers:
    """Mean number of experts of one layer that `tokens` tokens touch; shape as `tokens`.

    `routing`: "uniform": every token picks alone, E(1 - (1 - k/E)^T) (SemiAnalysisAI/InferenceX PR 1061);
    "balanced": min(E, kT), as if the router avoided repeats (ai-dynamo/aiconfigurator operators/fpm_sol.rs);
    a number: exponent of a power law of loads (`_power_law`), mean of 20 seeded draws, taken at whole token counts and
    interpolated between them; where draws of more tokens hit fewer experts by chance (under 1 %), the larger count
    stays. Raises InputError for another routing.
    """
    tokens = np.asarray(tokens, dtype=float)
    if routing == UNIFORM:
        return (
            experts * -np.expm1(tokens * np.log1p(-per_token / experts))
            if per_token < experts
            else 0 * tokens + experts
        )
    if routing == BALANCED:
        return np.minimum(experts, per_token * tokens)
    if isinstance(routing, str) or not routing > 0:
        raise InputError(f"unknown routing {routing!r}; it is uniform, balanced or the exponent of a power law above 0")
    grid = _grid(float(np.max(tokens, initial=1.0)))
    counts = [0.0, *(_power_law(experts, per_token, int(size), float(routing)) for size in grid[1:])]
    return np.interp(tokens, grid, np.maximum.accumulate(counts))


def fewest(experts: int, per_token: int, tokens: Numbers) -> Numbers:
    """The smallest of what the known routing laws say; shape as `tokens`."""
    laws = [distinct(experts, per_token, tokens, routing) for routing in (UNIFORM, *POWER_LAWS)]
    return np.minimum.reduce(laws)


def _grid(most: float) -> NDArray[np.float64]:
    """Whole token counts from 0 to `most`: every one at first, then ever fewer."""
    octaves = max(0, int(np.ceil(np.log2(max(most, 1) / _DENSE_GRID))))
    coarse = _DENSE_GRID * 2.0 ** (np.arange(1, octaves * _PER_OCTAVE + 1) / _PER_OCTAVE)
    return np.concatenate([np.arange(_DENSE_GRID + 1.0), np.unique(np.rint(coarse))])


@cache
def _power_law(experts: int, per_token: int, tokens: int, exponent: float) -> float:
    """Experts with at least one token, where loads follow a power law (ai-dynamo/aiconfigurator collector/helper.py,
    power_law_logits_v3).

    Loads x = ((hi^(1-a) - lo^(1-a)) u + lo^(1-a))^(1/(1-a)) are scaled to k·T tokens, rounded, clipped to T; what
    rounding and clipping lost is given one by one to the emptiest experts, what they gained taken from the fullest.
    Only the number of experts that hold a token is asked for: each token given to an empty expert makes one more, and
    one is emptied only when all hold a single token.
    """
    total = per_token * tokens
    low, high = (1.0, 0.8 * tokens) if total > experts else (0.01, 2.0)
    drawn = np.random.default_rng(SEED).random((DRAWS, experts))
    power = 1 - exponent if exponent != 1 else 1e-9
    loads = ((high**power - low**power) * drawn + low**power) ** (1 / power)
    rounded = np.rint(loads / loads.sum(axis=1, keepdims=True) * total)
    clipped = np.minimum(rounded, tokens)
    holding = (clipped > 0).sum(axis=1)
    holding = np.minimum(experts, holding + (rounded - clipped).sum(axis=1))
    missing = total - rounded.sum(axis=1)
    holding = np.where(missing > 0, np.minimum(experts, holding + missing), np.minimum(holding, total))
    return float(holding.mean())
