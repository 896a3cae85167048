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
_TYPED = re.compile(r"""(?P<name>--[\w.-]+)(?P<between>\s*=\s*|\s+)(?!--)(?P<value>'[^']*'|"[^"]*"|[^\s'"]+)""")
_WRITTEN = re.compile(
    r"""(?<![#\w-])(?P<name>[A-Za-z_][\w.-]*)(?P<between>['"]?\s*[=:]\s*)(?P<value>'[^']*'|"[^"]*"|[^\s'",{}\[\]()&]+)"""
)
_COUNT = re.compile(r"[\d.]+$")
HIDDEN = "<removed>"


def redacted(value: Any) -> Any:
    """A copy fit for a record: values whose key names a secret are replaced, and user names and passwords in URLs."""
    if isinstance(value, Mapping):
        return {key: HIDDEN if item and _is_secret(str(key), item) else redacted(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(item) for item in value]
    return _IN_URL.sub(HIDDEN, value) if isinstance(value, str) else value


def redacted_text(text: str) -> str:
    """A command line or log text fit for a record: as `redacted`, for `--api-key VALUE`, `HF_TOKEN=VALUE` and
    `'api_key': 'VALUE'`."""
    return _IN_URL.sub(HIDDEN, _WRITTEN.sub(_without_value, _TYPED.sub(_without_value, text)))


def _without_value(found: re.Match[str]) -> str:
    value = found["value"].strip("'\"")
    if not value or value in ("None", "null", HIDDEN) or not _is_secret(found["name"].lstrip("-"), value):
        return found[0]
    return f"{found['name']}{found['between']}{HIDDEN}"


def _is_secret(name: str, value: Any) -> bool:
    """Whether a name says secret; a number of tokens is none, whatever kind of tokens."""
    if name.lower().endswith("tokens") and not isinstance(value, bool) and _COUNT.match(str(value)):
        return False
    return bool(_SECRET.search(name)) and not _HARMLESS.search(name)
