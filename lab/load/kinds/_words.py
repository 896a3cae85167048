"""Random words of an exact length in tokens.

Without the server's tokenizer in the loop, synthetic prompts miss the length asked for by a third, and a
comparison of prefill at 4,096 tokens is one at 5,300.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from lab.errors import LabError
from lab.load.kinds.base import Ask, Item, Tokenizes

WORD_FILE = Path(__file__).parents[1] / "data" / "words.txt"
"""Common English words that are one token each, after a blank, in the vocabularies of current models."""
TAKES_IDS = frozenset({"completions", "generate", "llamacpp"})
"""APIs that take token ids for a prompt: `prompt` of the completions of vLLM, SGLang and llama.cpp, `input_ids` of
SGLang's own, `prompt` of llama.cpp's own."""
MOST_REPAIRS = 12


class Words:
    """Random words under a salt: the same key gives the same words, another key or salt gives others.

    With a tokenizer and an API that takes ids a piece is a list of ids, exact by construction: the ids are drawn from
    those of common words, so that its text is such words. Else a piece is text, of as many words as tokens are
    asked for.
    """

    def __init__(self, ask: Ask, api: str) -> None:
        self._salt = ask.salt
        self._tokenizer = ask.tokenizer
        self._pool = _ids_of_words(ask.tokenizer) if ask.tokenizer and api in TAKES_IDS else None
        self._shared: dict[tuple[str, int], Any] = {}

    @property
    def as_ids(self) -> bool:
        """Whether prompts are made of ids, whose number is exact."""
        return self._pool is not None

    @property
    def source(self) -> str:
        """How lengths come about, for the record."""
        if self.as_ids:
            return f"token ids drawn from those of common words ({self._tokenizer.source})"
        if self._tokenizer:
            return f"text cut to the length by {self._tokenizer.source}; the chat template adds its own tokens"
        return "one common word a token; the server offers no tokenizer"

    def item(self, key: str, tokens: int, before: Sequence[tuple[str, int]] = ()) -> Item:
        """A prompt `{"input_ids"}` or `{"text"}`: a piece of its own behind the pieces (key, tokens) of `before`, which
        other prompts may have too."""
        for piece in before:
            if piece not in self._shared:
                self._shared[piece] = self._piece(*piece)
        pieces = [self._shared[piece] for piece in before]
        if tokens:
            pieces.append(self._piece(key, tokens))
        return {"input_ids": list(chain(*pieces))} if self.as_ids else {"text": " ".join(pieces)}

    def _piece(self, key: str, tokens: int) -> Any:
        draw = random.Random(f"{self._salt} {key}")
        if self._pool is not None:
            return draw.choices(self._pool, k=tokens)
        words = draw.choices(load_words(), k=tokens)
        return fitted(words, tokens, self._tokenizer, draw) if self._tokenizer else " ".join(words)


def fitted(words: list[str], tokens: int, tokenizer: Tokenizes, draw: random.Random) -> str:
    """A text of exactly `tokens` tokens by the tokenizer's own count: words are cut off and added until it is.

    Raises LabError when the tokenizer never agrees.
    """
    words = list(words)
    for _ in range(MOST_REPAIRS):
        text = " ".join(words)
        surplus = len(tokenizer.tokens(text)) - tokens
        if surplus == 0:
            return text
        if surplus > 0:
            del words[max(0, len(words) - surplus) :]
        words += draw.choices(load_words(), k=max(-surplus, 0 if words else 1))
    raise LabError(f"no text of {tokens} tokens could be made: the tokenizer counts {tokens + surplus} for it")


@cache
def load_words() -> tuple[str, ...]:
    """The common words."""
    return tuple(WORD_FILE.read_text().split())


def _ids_of_words(tokenizer: Tokenizes) -> list[int]:
    ids = sorted(set(tokenizer.tokens(" " + " ".join(load_words()))))
    if not ids:
        raise LabError(f"{tokenizer.source}: counts no tokens in a list of words")
    return ids
