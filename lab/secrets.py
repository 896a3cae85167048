"""Keeping secrets out of what is written down.

Without it a token given to a server by its environment ends up in records, notebooks and dashboards.
"""

from __future__ import annotations

import base64
import binascii
import html
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
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
LENGTH_MIN, LENGTH_MIN_NAMED = 8, 4
"""Shorter words of a header are none of its secrets; under a name that says secret, shorter ones are."""
_SCHEMES = ("bearer", "basic", "digest", "token", "negotiate")
_SHORTEST_BASE64 = 8
_LONGEST_FORM = 28
"""Characters that the longest form of one character takes: four bytes, each as %2525XX."""


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


def in_headers(headers: Mapping[str, str]) -> frozenset[str]:
    """The values in request headers that may be secret: all long words, a password in Basic credentials on its own."""
    found: set[str] = set()
    for name, value in headers.items():
        least = LENGTH_MIN_NAMED if _is_secret(name, value) else LENGTH_MIN
        scheme, _, given = value.strip().partition(" ")
        words = (given if given and scheme.lower() in _SCHEMES else value).split()
        if scheme.lower() == "basic":
            words += _credentials(given)
        found.update(word for word in words if len(word) >= least)
    return frozenset(found)


def concealed(text: str, values: Iterable[str], most: int | None = None) -> str:
    """The text without these values, and then its first `most` characters.

    A value is found as it is, escaped as in JSON, HTML or a URL, each of its characters or some, and inside base64. No
    more of a long text is looked at than its beginning takes.
    """
    pattern, longest = _forms(frozenset(values))
    limit = len(text) if most is None else most
    told, at = "", 0
    while len(told) < limit and at < len(text):
        rest = limit - len(told)
        found = pattern.search(text, at, at + rest + longest) if pattern else None
        if found is None or found.start() >= at + rest:
            return told + text[at : at + rest]
        told += text[at : found.start()] + HIDDEN
        at = found.end()
    return told[:limit] if most is not None else told


@lru_cache(maxsize=16)
def _forms(values: frozenset[str]) -> tuple[re.Pattern[str] | None, int]:
    """A pattern of all forms of these values, and the length of the longest match; no pattern without a value."""
    forms: list[str] = []
    for value in sorted(filter(None, values), key=len, reverse=True):
        forms += ["".join(map(_character, value)), *map(_inside_base64, _base64(value))]
    return (re.compile("|".join(forms)) if forms else None), _LONGEST_FORM * max(map(len, values), default=0)


def _character(one: str) -> str:
    """A pattern of one character and its escapes, which may have been escaped once more."""
    code = f"{ord(one):x}"
    plain = r"\\{1,4}" if one == "\\" else re.escape(one)
    percent = "".join(f"%(?:25){{0,2}}{_digits(f'{byte:02x}')}" for byte in one.encode())
    forms = [
        rf"\\{{1,4}}u{_digits(code.zfill(4))}",
        rf"\\{{1,4}}x{_digits(code.zfill(2))}",
        percent,
        rf"&#(?:0{{0,4}}{ord(one)}|[xX]0{{0,4}}{_digits(code)});",
        re.escape(html.escape(one)),
        rf"\\{{0,4}}{plain}" if one in "\"'/" else plain,
    ]
    return f"(?:{'|'.join(dict.fromkeys(forms))})"


def _digits(code: str) -> str:
    """Hexadecimal digits in either case."""
    return "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in code)


def _inside_base64(text: str) -> str:
    """A pattern of a piece of base64 with the digits beside it that hold the rest of the value."""
    return rf"[\w+/-]{{0,4}}{re.escape(text)}[\w+/-]{{0,4}}={{0,2}}"


def _base64(value: str) -> list[str]:
    """What of the value's base64 does not depend on its neighbours, for each place at which it may begin."""
    found = []
    for before in range(3):
        raw = b"\0" * before + value.encode()
        whole = len(raw) // 3 * 3
        text = base64.b64encode(raw[:whole]).decode()[(0, 4, 4)[before] :]
        if len(text) >= _SHORTEST_BASE64:
            found += {text, text.translate(str.maketrans("+/", "-_"))}
    return found


def _credentials(given: str) -> list[str]:
    """User and password, and the password, of Basic credentials; empty when they are none."""
    try:
        pair = base64.b64decode(given, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return []
    return [pair, pair.partition(":")[2]]


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
