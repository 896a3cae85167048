"""A line of progress on standard error, for people and for log files.

Without it a minute of silence looks like a hang, and a bar drawn into a log file fills it with control characters.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Say = Callable[[str, float | None], None]


@contextmanager
def progress() -> Iterator[Say]:
    """A function that shows a text and the share of the time that has passed (None: unknown)."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _line
        return
    columns = (BarColumn(24), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None)

        def show(text: str, share: float | None) -> None:
            bar.update(task, description=text, total=None if share is None else 1.0, completed=share or 0.0)

        yield show


def _line(text: str, share: float | None) -> None:
    """Whole steps only: a line every second says nothing in a log."""
    if share is None:
        print(f"lab: {text}", file=sys.stderr, flush=True)
