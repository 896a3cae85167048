"""The verdict table, for a terminal, a note, a page, a spreadsheet and a program.

Without one renderer, the same verdict would read differently in the terminal, the notebook and MLflow, and the
reason, the only part that explains it, would be the first thing cut off.
"""

from __future__ import annotations

import csv
import html
import io
import json
import math
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence

from lab.errors import InputError
from lab.files import suggest
from lab.report import words
from lab.report.words import MISSING, Row

# The keys of a verdict row, in the order in which a spreadsheet shows them.
KEYS = (
    "campaign",
    "run_id",
    "lever",
    "treatment",
    "verdict",
    "reason",
    "metric",
    "workload",
    "concurrency_offered",
    "concurrency_running",
    "concurrency_running_control",
    "effect_pct",
    "ci_low_pct",
    "ci_high_pct",
    "p_value",
    "p_adjusted",
    "effect_matched_batch_pct",
    "launches",
    "passes",
    "screened",
    "bound_tok_s",
    "bound_fraction",
    "bound_fraction_control",
    "predicted_effect_pct",
    "accuracy",
    "codes",
    "findings",
    "guards",
    "simulated",
)
FORMATS = ("table", "md", "html", "csv", "json")
TERMINAL_STYLES = {
    "adopt": "bold green",
    "reject": "bold red",
    "inconclusive": "yellow",
    "invalid": "magenta",
    "failed": "bold magenta",
}
PLAIN_WIDTH = 160
GAP = 2
WHY_WIDTH = 48


def render(rows: Sequence[Row], fmt: str = "table", width: int | None = None, heading: str = "") -> str:
    """Verdict rows (CONTRACT section 4) as text that ends with a newline.

    `fmt` is table, md, html, csv or json; csv and json hold every key of every row and no heading. `width` is the
    number of columns of a table: by default the terminal's, or 160 where there is none. `heading`
    (`words.heading`) stands above the table. Raises InputError for an unknown format.
    """
    match fmt:
        case "table":
            return _table(rows, width, heading)
        case "md":
            return _markdown(rows, heading)
        case "html":
            return _html(rows, heading)
        case "csv":
            return _csv(rows)
        case "json":
            return json.dumps(list(rows), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    raise InputError(f"unknown format '{fmt}'{suggest(fmt, FORMATS)}")


def _figures(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Titles and cells of the short columns; `of gap` only where a target was set."""
    titles = ["lever", "verdict", words.effect_title(rows), "ran/asked", "of bound", "accuracy"]
    gap = any(row.get("gap_closed_pct") is not None for row in rows)
    return titles + ["of gap"] * gap, [_cells(row, gap) for row in rows]


def _cells(row: Row, gap: bool) -> list[str]:
    name, verdict = words.lever_name(row), row["verdict"]
    if verdict == "not-applicable":
        return [name, verdict] + [MISSING] * (4 + gap)
    figures = [
        words.effect(row),
        words.ran_of_asked(row),
        words.of_bound(row),
        row.get("accuracy") or MISSING,
    ]
    return [name, verdict, *figures] + [words.of_gap(row)] * gap


def _why(row: Row) -> str:
    """Codes, reason and the effect at equal batch in one sentence that says nothing twice."""
    reason = words.reason(row)
    remarks = ", ".join(remark for remark in words.remarks(row) if remark not in reason)
    matched = None if "at equal batch" in reason else words.matched_batch(row)
    return (f"{remarks}: " if remarks else "") + reason + (f"; {matched}" if matched else "")


def _notes(rows: Sequence[Row], heading: str) -> list[str]:
    lines = heading.splitlines()
    return [words.SIMULATED, *lines] if any(row.get("simulated") for row in rows) else lines


def _table(rows: Sequence[Row], width: int | None, heading: str) -> str:
    """The reason stands beside the figures where there is room for it, otherwise below them, indented."""
    width = width or (shutil.get_terminal_size().columns if sys.stdout.isatty() else PLAIN_WIDTH)
    lines = [part for note in _notes(rows, heading) for part in textwrap.wrap(note, width) or [""]]
    if not rows:
        return "\n".join([*lines, "no verdicts yet"]) + "\n"
    titles, cells = _figures(rows)
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    indent = sum(widths) + GAP * len(widths)
    beside = width - indent >= WHY_WIDTH
    lines += [""] * bool(lines) + [_aligned([*titles, "why"] if beside else titles, widths)]
    verdicts = {}
    for row, texts in zip(rows, cells, strict=True):
        figures, verdicts[len(lines)] = _aligned(texts, widths), row["verdict"]
        if beside:
            why = textwrap.wrap(_why(row), width - indent)
            lines.append(figures.ljust(indent) + why[0])
            lines += [" " * indent + line for line in why[1:]]
        else:
            lines.append(figures)
            lines += textwrap.wrap(_why(row), width, initial_indent="    ", subsequent_indent="    ")
    for text in words.explanations(rows):
        lines += ["", *textwrap.wrap(text, width, subsequent_indent="    ")]
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        return _coloured(lines, verdicts, start=widths[0] + GAP)
    return "\n".join(lines) + "\n"


def _aligned(texts: Sequence[str], widths: Sequence[int]) -> str:
    padded = [text.ljust(size) for text, size in zip(texts, widths, strict=False)]
    return (" " * GAP).join([*padded, *texts[len(widths) :]]).rstrip()


def _coloured(lines: Sequence[str], verdicts: Mapping[int, str], start: int) -> str:
    """The lines with verdicts in colour: `verdicts` maps a line's index to its verdict, which begins at `start`."""
    from rich.console import Console
    from rich.text import Text

    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, soft_wrap=True, highlight=False)
    for index, line in enumerate(lines):
        text = Text(line)
        text.stylize(TERMINAL_STYLES.get(verdicts.get(index, ""), ""), start, start + len(verdicts.get(index, "")))
        console.print(text)
    return stream.getvalue()


def _long_form(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Titles and cells for pages, which have room for a column of codes and one of reasons."""
    titles, cells = _figures(rows)
    effect = titles.index(words.effect_title(rows))
    for row, texts in zip(rows, cells, strict=True):
        matched = words.matched_batch(row)
        texts[effect] += f"; {matched}" if matched else ""
        texts += [", ".join(words.remarks(row)) or MISSING, words.reason(row)]
    return [*titles, "codes, findings", "why"], cells


def _markdown(rows: Sequence[Row], heading: str) -> str:
    titles, cells = _long_form(rows)
    notes = "  \n".join(escaped(line) for line in _notes(rows, heading))
    table = [titles, ["---"] * len(titles), *([escaped(text) for text in texts] for texts in cells)]
    explained = "".join(f"\n{escaped(text)}\n" for text in words.explanations(rows))
    return (f"{notes}\n\n" if notes else "") + "".join(f"| {' | '.join(line)} |\n" for line in table) + explained


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, on one line, inside a table cell."""
    return re.sub(r"([\\|`*<])", r"\\\1", words.one_line(text))


def _html(rows: Sequence[Row], heading: str) -> str:
    titles, cells = _long_form(rows)
    notes = "".join(f"<p>{html.escape(line)}</p>\n" for line in _notes(rows, heading))
    head = "".join(f"<th>{html.escape(title)}</th>" for title in titles)
    body = "".join(
        f'<tr class="{html.escape(row["verdict"])}">{"".join(f"<td>{html.escape(text)}</td>" for text in texts)}</tr>\n'
        for row, texts in zip(rows, cells, strict=True)
    )
    explained = "".join(f"<p>{html.escape(text)}</p>\n" for text in words.explanations(rows))
    table = f'<table class="verdicts">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n'
    return notes + table + explained


def _csv(rows: Sequence[Row]) -> str:
    """One line per row; lists and guards are joined by spaces, missing stays empty."""
    keys = [*KEYS, *dict.fromkeys(key for row in rows for key in row if key not in KEYS)]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, keys, lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: flat(row.get(key)) for key in keys} for row in rows)
    return stream.getvalue()


def flat(value: object) -> object:
    """A value as one cell: lists and mappings as text, a number that is not finite as missing."""
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    if isinstance(value, dict):
        return " ".join(f"{key}={state}" for key, state in value.items())
    if isinstance(value, str):
        return words.one_line(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
