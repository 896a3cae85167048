"""Answers that were cut before anybody counted their tokens.

Without it, an answer that is aborted at the end of the drain has one token a chunk, although every answer that ended
shows two: the slower the server, the more of its tokens are lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lab.load.record_columns import numbers

if TYPE_CHECKING:
    import pandas as pd

CHUNKS, SCALED = "chunks", "scaled"
SEVERAL = 1.05
"""Tokens a chunk from which a chunk is not a token (catalogue 14, `chunk-not-token`)."""


def scaled(requests: pd.DataFrame) -> pd.DataFrame:
    """The table with the uncounted chunks of unfinished answers worth what a chunk of the counted complete ones is.

    Their `tokens_source` becomes `scaled`. Where no complete answer was counted, or a chunk is a token, nothing
    changes.
    """
    complete, cut = requests.error.isna(), requests.tokens_source == CHUNKS
    counted = requests[complete & ~cut & requests.tokens_source.notna()]
    carried = int(counted.chunk_s.map(_length).sum())
    each = float(np.nansum(numbers(counted, "output_tokens"))) / carried if carried else 1.0
    chosen = cut & ~complete
    if each < SEVERAL or not chosen.any():
        return requests
    table = requests.copy()
    counts = table.chunk_tokens[chosen].map(lambda tokens: _times(tokens, each))
    table["chunk_tokens"] = table.chunk_tokens.where(~chosen, counts)
    table["output_tokens"] = numbers(table, "output_tokens")
    table.loc[chosen, "output_tokens"] = counts.map(_total).astype("float64")
    table.loc[chosen, "tokens_source"] = SCALED
    return table


def _length(values: object) -> int:
    return 0 if values is None else len(values)


def _total(values: np.ndarray | None) -> int:
    return 0 if values is None else int(values.sum())


def _times(tokens: object, each: float) -> np.ndarray | None:
    """Whole counts whose running total is `each` times that of `tokens`."""
    if tokens is None:
        return None
    reached = np.round(each * np.cumsum(np.asarray(tokens, dtype=np.float64))).astype(np.int64)
    return np.diff(reached, prepend=0)
