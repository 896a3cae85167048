"""One look for every plot, and the only place that loads matplotlib.

Without figures that know nothing of pyplot, a plot drawn in a thread or a kernel fights over global state and a
backend with a display; without one palette, a colour means another verdict in every picture.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from lab.files import write_bytes

DPI = 100
# Okabe and Ito's palette, told apart by colour-blind readers too; shapes repeat what the colours say.
GREEN, VERMILLION, ORANGE, BLUE = "#009E73", "#D55E00", "#E69F00", "#0072B2"
PURPLE, SKY, BLACK, GREY = "#CC79A7", "#56B4E9", "#000000", "#6E6E6E"
VERDICT_MARKS = {
    "adopt": (GREEN, "^"),
    "reject": (VERMILLION, "v"),
    "no-effect": (GREY, "o"),
    "inconclusive": (ORANGE, "D"),
    "invalid": (PURPLE, "X"),
    "failed": (BLACK, "P"),
    "not-applicable": (GREY, "_"),
}
ARM_COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BLACK)
ARM_SHAPES = ("o", "^", "s", "D", "v", "P", "X")


class Picture(Figure):
    """A figure that a notebook shows by itself, whatever backend is set."""

    def _repr_png_(self) -> bytes:
        stream = io.BytesIO()
        self.savefig(stream, format="png")
        return stream.getvalue()


def picture(title: str, width: float = 8, height: float = 4, rows: int = 1) -> tuple[Picture, list[Axes]]:
    """A figure of `width` × `height` inches with `rows` panels under each other that share their axes."""
    figure = Picture(figsize=(width, height), dpi=DPI, layout="constrained")
    title = textwrap.fill(title, int(11 * width))
    figure.suptitle(title, fontsize=11, fontweight="bold", x=0.01, ha="left", parse_math=False)
    panels = list(figure.subplots(rows, 1, sharex=True, sharey=True, squeeze=False)[:, 0])
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=9)
    return figure, panels


def log_axes(axes: Axes) -> None:
    """Both axes logarithmic, labelled in plain numbers: powers of two across, 1-2-5 steps upwards."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def arm_marks(arms: Iterable[Any]) -> dict[Any, tuple[str, str]]:
    """A colour and a shape for each arm, in order of appearance; both repeat after seven."""
    names = list(dict.fromkeys(arms))
    count = len(ARM_COLOURS)
    return {arm: (ARM_COLOURS[index % count], ARM_SHAPES[index % count]) for index, arm in enumerate(names)}


def note(figure: Figure, text: str) -> Figure:
    """The figure with a small line above its first panel: what a reader of the picture alone must know."""
    figure.axes[0].set_title(text, loc="right", fontsize=8, color=GREY, parse_math=False)
    return figure


def save(figure: Figure, path: Path) -> Path:
    """Write the figure as a PNG in one step; raises DiskFullError or InputError when it cannot be written."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png")
    write_bytes(path, stream.getvalue())
    return path
