"""Sharing a total of tokens among the chunks that carried them.

Without it the tokens that no chunk accounts for are lost, or all fall on the last chunk, outside the window that
they were made in.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

LEAST_CHUNKS_A_TOKEN = 0.95
"""With fewer chunks than this for each token they do not carry one token each (catalogue 14, `chunk-not-token`)."""


def corrected(tokens: Sequence[int], lengths: Sequence[int], total: int) -> list[int]:
    """Counts that add up to `total`, from one token a chunk and the chunks' lengths in characters.

    A few tokens too few (an end token has no text) go to the last chunk. More than that, or too many, refute one
    token a chunk: then the characters decide.
    """
    counted = sum(tokens)
    if counted == total:
        return list(tokens)
    if total >= counted >= LEAST_CHUNKS_A_TOKEN * total or len(lengths) != len(tokens):
        return ended(tokens, total)
    return spread(total, lengths)


def ended(tokens: Sequence[int], total: int) -> list[int]:
    """Counts that add up to `total`: what is missing goes to the last chunk, what is too much comes off the last."""
    tokens = list(tokens)
    missing = total - sum(tokens)
    tokens[-1] += max(0, missing)
    surplus = max(0, -missing)
    for index in reversed(range(len(tokens))):
        taken = min(tokens[index], surplus)
        tokens[index] -= taken
        surplus -= taken
    return tokens


def spread(total: int, lengths: Sequence[int]) -> list[int]:
    """`total` tokens over chunks of these lengths: one each where they suffice, the rest by length, rounded forward."""
    each = 1 if total >= len(lengths) else 0
    rest, characters = total - each * len(lengths), sum(lengths)
    reached = (-(-rest * length // characters) for length in accumulate(lengths, initial=0))
    return [each + after - before for before, after in pairwise(reached)]
