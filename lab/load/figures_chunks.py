"""The arrivals of tokens, as flat arrays.

Without flat arrays every figure of a long trial walks over millions of chunks one by one, and a summary takes longer
than the measurement.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from lab.load.record_columns import numbers

if TYPE_CHECKING:
    import pandas as pd

BINS_AT_LEAST, BINS_AT_MOST = 12, 60
BIN_SECONDS = 2.0


def bin_count(seconds: float) -> int:
    """Equal time bins of a window: one for each 2 s, at least twelve and at most sixty.

    The contract (section 7) asks for eight or more. A rank test of eight cannot be surer than 1 in 20,000, and more
    than sixty would tell the noise of single steps (rates of both errors: lab/load/steady.py).
    """
    return int(min(BINS_AT_MOST, max(BINS_AT_LEAST, round(seconds / BIN_SECONDS))))


class Chunks:
    """Every chunk that carried tokens, request after request; times are seconds after the window opened.

    Raises ValueError when a request has other than one token count for each chunk: a missing count is not guessed.
    """

    def __init__(self, requests: pd.DataFrame, opened_s: float, seconds: float, time_factor: float) -> None:
        times, counts = _lists(requests.chunk_s), _lists(requests.chunk_tokens)
        self.lengths = np.fromiter(map(len, times), dtype=np.int64, count=len(times))
        if not np.array_equal(self.lengths, np.fromiter(map(len, counts), dtype=np.int64, count=len(counts))):
            wrong = next(i for i, pair in enumerate(zip(times, counts, strict=True)) if len(pair[0]) != len(pair[1]))
            raise ValueError(f"requests.parquet, row {wrong}: not every chunk has a token count")
        self.seconds = seconds
        self.t_s = (_flat(times, np.float64) - opened_s) * time_factor
        self.tokens = _flat(counts, np.int64)
        self.prompt_tokens = numbers(requests, "prompt_tokens")
        self._starts = np.concatenate([[0], np.cumsum(self.lengths)])

    @cached_property
    def inside(self) -> np.ndarray:
        """Which chunks arrived in the window [opened, closed)."""
        return (self.t_s >= 0) & (self.t_s < self.seconds)

    @cached_property
    def window_tokens(self) -> int:
        """Tokens that arrived in the window."""
        return int(self.tokens[self.inside].sum())

    def bins_tok_s(self) -> np.ndarray:
        """Tokens per second in equal time bins of the window."""
        count = bin_count(self.seconds)
        index = (self.t_s[self.inside] / self.seconds * count).astype(np.int64).clip(0, count - 1)
        return np.bincount(index, weights=self.tokens[self.inside], minlength=count) * count / self.seconds

    def gaps_s(self) -> np.ndarray:
        """Seconds between successive chunks of one request, where the later one arrived in the window."""
        follows = np.ones(len(self.t_s), dtype=bool)
        follows[self._starts[:-1][self.lengths > 0]] = False
        chosen = np.flatnonzero(follows & self.inside)
        return self.t_s[chosen] - self.t_s[chosen - 1]

    def mean_context(self) -> float | None:
        """Mean length of prompt and answer so far, in tokens, over the tokens that arrived in the window.

        None when no prompt length is known.
        """
        chosen = np.flatnonzero(self.inside)
        row = np.repeat(np.arange(len(self.lengths), dtype=np.int32), self.lengths)[chosen]
        so_far = np.concatenate([[0], np.cumsum(self.tokens)])
        context = so_far[chosen + 1] - so_far[self._starts[row]] + self.prompt_tokens[row]
        known = ~np.isnan(context)
        weights = self.tokens[chosen][known]
        total = weights.sum()
        return float((context[known] * weights).sum() / total) if total else None

    def late_tokens(self) -> int:
        """Tokens of last chunks beyond the largest other chunk of the same answer.

        A count that was corrected by the final usage is booked there: when those tokens really came is unknown.
        """
        several = np.flatnonzero(self.lengths > 1)
        if not len(several):
            return 0
        last = self._starts[several + 1] - 1
        others = self.tokens.copy()
        others[last] = 0
        filled = self.lengths > 0
        largest = np.zeros(len(self.lengths), dtype=np.int64)
        largest[filled] = np.maximum.reduceat(others, self._starts[:-1][filled])
        return int((self.tokens[last] - largest[several]).clip(min=0).sum())


def _lists(column: pd.Series) -> list:
    return [value if value is not None else () for value in column]


def _flat(lists: list, dtype: type) -> np.ndarray:
    return np.concatenate([np.empty(0, dtype), *lists]).astype(dtype, copy=False)
