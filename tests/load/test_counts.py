"""Totals shared among chunks."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from lab.load.counts import spread


@given(st.integers(0, 300), st.lists(st.integers(1, 30), min_size=1, max_size=40))
@settings(deadline=None)
def test_spread_adds_up_and_never_leaves_a_chunk_empty_that_can_have_one(total: int, lengths: list[int]):
    shares = spread(total, lengths)
    assert sum(shares) == total
    assert len(shares) == len(lengths)
    assert min(shares) >= (1 if total >= len(lengths) else 0)
    assert total == 0 or shares[0] >= 1
