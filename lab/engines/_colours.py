"""Log lines without the colours that an engine writes when it thinks that somebody watches.

Without it a line that is coloured in one environment and plain in another would be read in the plain one only.
"""

from __future__ import annotations

import re

_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def without_colours(line: str) -> str:
    """The line without the escape sequences that set colours."""
    return _ANSI.sub("", line)
