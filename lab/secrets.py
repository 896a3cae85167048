"""Keeping secrets out of what is written down.

Without it a token given to a server by its environment ends up in records, notebooks and dashboards.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_SECRET = re.compile(r"token$|(^|_)(api_?keys?|secret|password|credentials?)", re.IGNORECASE)
HIDDEN = "<removed>"


def redacted(value: Any) -> Any:
    """A copy in which the value of every key that looks like a secret's name is replaced, at any depth."""
    if isinstance(value, Mapping):
        return {key: HIDDEN if item and _SECRET.search(str(key)) else redacted(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(item) for item in value]
    return value
