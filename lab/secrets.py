"""Keeping secrets out of what is written down.

Without it a token given to a server by its environment ends up in records, notebooks and dashboards.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_SECRET = re.compile(
    r"(^|[_.-])(api_?keys?|access_?keys?|tokens?|keys?|secrets?|[a-z]*pass(word|wd|phrase)?s?|pwd|auth(orization)?|credentials?)$",
    re.IGNORECASE,
)
_HARMLESS = re.compile(
    r"(^|_)(bos|eos|eot|pad|unk|max|min|output|input|prompt|draft|match|num|n)_tokens?$", re.IGNORECASE
)
_IN_URL = re.compile(r"(?<=://)[^/\s@]+(?=@)")
HIDDEN = "<removed>"


def redacted(value: Any) -> Any:
    """A copy fit for a record: values whose key names a secret are replaced, and user names and passwords in URLs."""
    if isinstance(value, Mapping):
        return {key: HIDDEN if item and _is_secret(str(key)) else redacted(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(item) for item in value]
    return _IN_URL.sub(HIDDEN, value) if isinstance(value, str) else value


def _is_secret(name: str) -> bool:
    return bool(_SECRET.search(name)) and not _HARMLESS.search(name)
