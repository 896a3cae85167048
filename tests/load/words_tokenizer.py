"""A tokenizer for tests: pieces of at most six letters, each with its blank, and every other character by itself."""

from __future__ import annotations

import re


class WordsTokenizer:
    """Counts and joins as a server's tokenizer does; `calls` is how often it was asked for tokens."""

    source = "a tokenizer for tests"

    def __init__(self) -> None:
        self.calls = 0
        self._ids: dict[str, int] = {}

    def tokens(self, text: str) -> list[int]:
        """One id a piece, equal for equal pieces."""
        self.calls += 1
        pieces = re.findall(r" ?[a-z]{1,6}|.", text, re.DOTALL)
        return [self._ids.setdefault(piece, len(self._ids)) for piece in pieces]

    def text(self, ids: list[int]) -> str:
        """The pieces, put together."""
        pieces = {number: piece for piece, number in self._ids.items()}
        return "".join(pieces[number] for number in ids)
