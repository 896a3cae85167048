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
BURST_PARTS, BURST_SHARE = 500, 0.75
"""Tokens that arrive within a five-hundredth of the window are one burst; a quarter of all come in larger ones."""


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

    def share_of_window(self, chosen: np.ndarray) -> float | None:
        """The share of the window's tokens that these requests gave; None where none arrived."""
        of_them = np.repeat(chosen, self.lengths) & self.inside
        return float(self.tokens[of_them].sum() / self.window_tokens) if self.window_tokens else None

    def burst_share(self) -> float:
        """The share of the window's tokens that one burst brings, where a quarter of them come in bursts that large.

        It bounds what the throughput may be off by: as many bursts as by chance fall into the window. Single pauses,
        after which much arrives at once, are no pace and leave it as it is.
        """
        if not self.window_tokens:
            return 0.0
        places, tokens = self.t_s[self.inside] / self.seconds * BURST_PARTS, self.tokens[self.inside]
        # Twice, half a part apart: a burst on the edge of two parts is whole in the other division.
        parts = [np.bincount((places + shift).astype(np.int64), weights=tokens) for shift in (0.0, 0.5)]
        return max(_typical(part) for part in parts) / self.window_tokens

    def first_s(self) -> np.ndarray:
        """The first arrival of each request; NaN for one without any."""
        return self._of_each(self._starts[:-1])

    def last_s(self) -> np.ndarray:
        """The last arrival of each request; NaN for one without any."""
        return self._of_each(self._starts[1:] - 1)

    def _of_each(self, places: np.ndarray) -> np.ndarray:
        times_s = np.full(len(places), np.nan)
        begun = self.lengths > 0
        times_s[begun] = self.t_s[places[begun]]
        return times_s

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


def _typical(bursts: np.ndarray) -> float:
    """The size such that BURST_SHARE of all tokens come in bursts of at most that."""
    sizes = np.sort(bursts)
    reached = np.cumsum(sizes)
    return float(sizes[np.searchsorted(reached, BURST_SHARE * reached[-1])])


def _lists(column: pd.Series) -> list:
    return [value if value is not None else () for value in column]


def _flat(lists: list, dtype: type) -> np.ndarray:
    return np.concatenate([np.empty(0, dtype), *lists]).astype(dtype, copy=False)
