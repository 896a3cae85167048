"""Does a text end in a loop? A model that repeats itself drafts, caches and routes better than one that writes.

Without this a speculative arm looks twice as fast on text that nobody would want, and nobody notices.
"""

from __future__ import annotations

PERIOD_CHARACTERS = 128
REPETITIONS = 4
CYCLE_CHARACTERS = 64
RULE_CHARACTERS = 160
SUFFIX_CHARACTERS = 16
TAIL_CHARACTERS = PERIOD_CHARACTERS * REPETITIONS
"""A period of 128 characters is about 32 tokens of English. Lines drawn with signs (`-----`, `+---+---+`, `=====`) and
indentation are cycles too, and ordinary: a cycle without a letter or digit counts from 160 characters. Where the last
16 characters stand before says which periods there can be."""


def repeats(text: str | None) -> bool | None:
    """Whether `text` ends in the same stretch four times or more, 64 characters or more in all.

    The last repetition may be cut off. Only the last 512 characters matter. None when there is no text.
    """
    if not text:
        return None
    tail = text[-TAIL_CHARACTERS:]
    end_at = len(tail) - SUFFIX_CHARACTERS
    suffix = tail[max(0, end_at) :]
    at = end_at
    while (at := tail.rfind(suffix, 0, at + len(suffix) - 1)) >= 0:
        period = end_at - at
        if not _is_cycle(tail, period, max(CYCLE_CHARACTERS, REPETITIONS * period)):
            continue
        if any(character.isalnum() for character in tail[-period:]):
            return True
        return _is_cycle(tail, period, max(RULE_CHARACTERS, REPETITIONS * period))
    return False


def _is_cycle(text: str, period: int, length: int) -> bool:
    return len(text) >= length and text[-length + period :] == text[-length:-period]
