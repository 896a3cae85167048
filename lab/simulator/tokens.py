"""The simulated server's tokenizer: text to tokens and back, the same for /tokenize, usage, counters and answers.

Without one tokenizer for all of them, a difference between two counts would be the simulator's own mistake.

A token is up to six characters that are no white space with at most one white-space character before them, or
one white-space character. Ids below 32,768 are three-syllable words with a blank before them (` badufe`), so that
any list of such ids is a text of as many tokens; other pieces get an id from their checksum.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

VOCABULARY = 131_072
WORDS = 32_768
CHAT_OVERHEAD_TOKENS = 3
MESSAGE_OVERHEAD_TOKENS = 4

_PIECE = re.compile(r"\s?\S{1,6}|\s")
_SYLLABLES = [consonant + vowel for consonant in "bdfgklmn" for vowel in "aeiu"]
_SYLLABLE_IDS = {syllable: index for index, syllable in enumerate(_SYLLABLES)}
_WORD = re.compile(r" (?:[bdfgklmn][aeiu]){3}")
_PUNCTUATION = re.compile(r"[.,;:?!]")
_LONGEST_UNPUNCTUATED = 20
_seen: dict[int, str] = {}
_SEEN_LIMIT = 200_000


def pieces(text: str) -> list[str]:
    """The tokens of a text; joined they are the text again."""
    return _PIECE.findall(text)


def piece_id(piece: str) -> int:
    """The id of one token."""
    if _WORD.fullmatch(piece):
        first, second, third = (_SYLLABLE_IDS[piece[at : at + 2]] for at in (1, 3, 5))
        return (first * 32 + second) * 32 + third
    number = WORDS + zlib.crc32(piece.encode()) % (VOCABULARY - WORDS)
    if len(_seen) < _SEEN_LIMIT:
        _seen[number] = piece
    return number


def token_ids(text: str) -> list[int]:
    """The ids of a text."""
    return [piece_id(piece) for piece in pieces(text)]


def text_of(ids: Sequence[int]) -> str:
    """The text of ids; one that no text has had yet reads `?`."""
    return "".join(_text_of(number) for number in ids)


def _text_of(number: int) -> str:
    if 0 <= number < WORDS:
        return " " + _SYLLABLES[number >> 10] + _SYLLABLES[number >> 5 & 31] + _SYLLABLES[number & 31]
    return _seen.get(number, "?")


def is_synthetic(ids: Sequence[int], text: str) -> bool:
    """Whether nobody writes like that: the tokenizer's own words, or more than 20 tokens without a punctuation mark."""
    if ids and sum(0 <= number < WORDS for number in ids) > len(ids) / 2:
        return True
    return len(ids) > _LONGEST_UNPUNCTUATED and not _PUNCTUATION.search(text)
