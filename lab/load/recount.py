"""Counting with the server's own tokenizer what the server did not count itself.

Without it, an answer whose stream brought no counts has as many tokens as it had chunks: a chunk that carried a word
of three tokens counts once, and the server looks three times slower than it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from lab.errors import LabError
from lab.load.job import Job
from lab.load.record import Request

if TYPE_CHECKING:
    from lab.load.tokenizer import Tokenizer

TELL_SECONDS = 1.0
AT_ONCE = 8


def recount(job: Job, requests: Iterable[Request], tell: Callable[[], None]) -> None:
    """Give every answer that nobody counted the tokenizer's count; `tell` is called each second meanwhile.

    All or none: when the server has no tokenizer endpoint, or it fails on one of them, the counts stay what they were.
    """
    uncounted = [request.answer for request in requests if request.answer.tokens_source == "chunks"]
    uncounted = [answer for answer in uncounted if answer.text]
    if not uncounted:
        return
    from lab.load import tokenizer

    tell()
    found = tokenizer.find(job.server_url, job.model, job.headers)
    if found is None:
        return
    counts, told_s = [], monotonic()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            for count in pool.map(partial(_count, found), [answer.text for answer in uncounted]):
                counts.append(count)
                if monotonic() - told_s >= TELL_SECONDS:
                    tell()
                    told_s = monotonic()
        except LabError:
            pool.shutdown(cancel_futures=True)
            return
    for answer, count in zip(uncounted, counts, strict=True):
        answer.recount(count)


def _count(found: Tokenizer, text: str) -> int:
    """Asked twice at most: a server may close a kept connection just as the question is sent."""
    try:
        return len(found.tokens(text))
    except LabError:
        return len(found.tokens(text))
