"""A page of text for a terminal: labelled entries, wrapped, never wider than asked.

Without one page, each command would wrap, label and write missing figures in its own way.
"""

from __future__ import annotations

import textwrap

from lab.report.words import MISSING

WIDTH, WIDTH_MIN = 100, 50
LABEL = 11


class Page:
    """Lines of at most so many columns, 50 to 100 whatever was asked."""

    def __init__(self, width: int) -> None:
        self.width = max(WIDTH_MIN, min(WIDTH, width))
        self._lines: list[str] = []

    def text(self) -> str:
        """The whole page; ends with a line break."""
        return "\n".join(self._lines) + "\n"

    def blank(self) -> None:
        """An empty line."""
        self._lines.append("")

    def title(self, parts: list[str]) -> None:
        """On one line, or one line for each part where that is too long."""
        whole = " · ".join(parts)
        for line in [whole] if len(whole) <= self.width else parts:
            self.wrapped("", line)

    def entry(self, label: str, text: str) -> None:
        """A label in its column, and what it says beside it."""
        self.wrapped(f"{label:<{LABEL}}", text)

    def wrapped(self, head: str, text: str) -> None:
        """A text after `head`, further lines below its beginning."""
        indent = " " * len(head)
        self._lines += textwrap.wrap(
            text, self.width, initial_indent=head, subsequent_indent=indent, break_on_hyphens=False
        )

    def row(self, text: str) -> None:
        """A line of a table, as it is; the caller keeps it within `width`."""
        self._lines.append(text.rstrip())


def number(value: float | None, decimals: int = 1) -> str:
    """`1,234.5`; a dash when missing."""
    return MISSING if value is None else f"{value:,.{decimals}f}"


def tok_s(value: float | None) -> str:
    """Tokens per second: whole numbers from a hundred, one decimal below; a dash when missing."""
    return number(value, 0 if value is not None and value >= 99.95 else 1)
