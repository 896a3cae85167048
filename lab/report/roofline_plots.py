"""The pictures of a run against its hardware: where its trials lie under the roof, where a step's time goes, and what
more users cost each of them.

Without them a share of the bound is a number: nobody sees whether memory, arithmetic or neither holds a server back,
nor at which load it stops to gain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lab.gap import COLLECTIVES, COMPUTE, MEMORY, SPECULATION, UNEXPLAINED
from lab.report import words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PART_NAMES = {
    "weights": "weights",
    "experts": "experts",
    "kv": "KV cache",
    "state": "recurrent state",
    COLLECTIVES: "collectives",
    COMPUTE: "arithmetic beyond reading",
    SPECULATION: "verifying drafts",
    UNEXPLAINED: "unexplained",
}
ANALYTIC = "analytic (server's own model)"
LABEL_STEP = 0.055
"""Least distance of two labels beside a picture, in heights of it: one line of text."""
Point = Mapping[str, Any]


def roof(
    points: Sequence[Point],
    bandwidth_bytes_s: float,
    peak_flops_s: Mapping[str, float],
    hardware: str,
    analytic: Sequence[Point] = (),
) -> Figure:
    """Trials under the roof of one device: FLOP/s over FLOPs per byte that it reads, both axes logarithmic.

    `points` hold `arm`, `asked`, `running`, `flop_per_byte` and `flop_s` (of one device); `bandwidth_bytes_s` is the
    slope; `peak_flops_s` are dense peaks by precision, empty where none is known: then the slope stands alone, and the
    picture says so. `analytic` are the same trials by the server's own cost model, drawn hollow.
    """
    from matplotlib.ticker import EngFormatter

    from lab.report import picture

    ridges = {name: peak / bandwidth_bytes_s for name, peak in sorted(peak_flops_s.items(), key=lambda one: one[1])}
    figure, (axes,) = picture.picture(_roof_title(points, bandwidth_bytes_s), width=9, height=5.5)
    intensities = [point["flop_per_byte"] for point in (*points, *analytic)] or [1.0]
    left, right = min(intensities) / 3, 3 * max([*intensities, *ridges.values()])
    end = max(ridges.values(), default=right)
    slope = f"{hardware}: memory, {bandwidth_bytes_s / 1e9:,.1f} GB/s"
    axes.plot([left, end], [left * bandwidth_bytes_s, end * bandwidth_bytes_s], color=picture.BLACK, label=slope)
    for (name, ridge), dashes in zip(ridges.items(), ("--", "-.", ":"), strict=False):
        peak = ridge * bandwidth_bytes_s
        label = f"{name} peak {_three(peak / 1e12)} TFLOP/s, from {_three(ridge)} FLOP/byte"
        axes.plot([ridge, right], [peak, peak], dashes, color=picture.GREY, marker="|", markevery=[0], label=label)
    if not ridges:
        axes.plot([], [], " ", label="arithmetic peaks of this device are not known: the slope alone")
    _marked(axes, points, "flop_per_byte", "flop_s")
    if analytic:
        own = [(point["flop_per_byte"], point["flop_s"]) for point in analytic]
        axes.plot(*zip(*own, strict=True), "o", color=picture.BLACK, fillstyle="none", label=ANALYTIC)
    axes.set_xlim(left, right)
    _log_axes(axes)
    axes.yaxis.set_major_formatter(EngFormatter())
    axes.set_xlabel("FLOP per byte that a device reads")
    axes.set_ylabel("FLOP/s of one device")
    _beside(axes, _labels(points, "flop_per_byte", "flop_s"))
    figure.legend(fontsize=8, frameon=False, loc="outside lower center", ncols=2)
    return figure


def waterfall(parts_ms: Mapping[str, float], step_ms: float, layers: int, label: str) -> Figure:
    """Where one measured step goes: its parts one after another in milliseconds (`gap.Gap.parts_ms`), and their sum.

    Each bar begins where the one above it ends; an unexplained part below zero goes back. `label` names the trial.
    """
    from lab.report import picture

    figure, (axes,) = picture.picture(_waterfall_title(parts_ms, step_ms, layers, label), 9, 1.6 + 0.42 * len(parts_ms))
    looks = {name: (picture.BLUE, "") for name in MEMORY}
    looks |= {COLLECTIVES: (picture.ORANGE, "//"), COMPUTE: (picture.PURPLE, "\\\\"), SPECULATION: (picture.SKY, "..")}
    looks[UNEXPLAINED] = (picture.VERMILLION, "xx")
    begin, reach = 0.0, max(step_ms, sum(max(0.0, ms) for ms in parts_ms.values()))
    for y, (name, ms) in enumerate(parts_ms.items()):
        colour, hatch = looks[name]
        axes.barh(y, ms, left=begin, height=0.62, color=colour, hatch=hatch, edgecolor="white", linewidth=0)
        axes.plot([begin, begin], [y - 0.31, y + 0.31], color=colour, linewidth=1.5)
        _amount(axes, max(begin, begin + ms), y, ms, layers)
        begin += ms
        axes.plot([begin, begin], [y - 0.31, y + 1.31], color=picture.GREY, linewidth=0.8)
    axes.barh(len(parts_ms), step_ms, height=0.62, color=picture.GREY)
    _amount(axes, step_ms, len(parts_ms), step_ms, layers)
    axes.set_yticks(range(len(parts_ms) + 1), [*(PART_NAMES[name] for name in parts_ms), "measured step"])
    axes.set_ylim(len(parts_ms) + 0.5, -0.5)
    axes.set_xlim(min(0.0, begin), 1.35 * reach)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("milliseconds of one step")
    axes.set_ylabel("part of the step")
    return figure


def pareto(points: Sequence[Point], curve: Sequence[Point], hardware: str) -> Figure:
    """What more users cost each of them: tok/s of one GPU over tok/s of one running request, both axes logarithmic.

    `points` (measured) hold `arm`, `asked`, `running`, `tok_s_per_user` and `tok_s_per_gpu`; `curve` (the bound) holds
    `batch` and the same two. Up and to the right is better.
    """
    from lab.report import picture

    if not points and not curve:
        return unknown(_pareto_title(points))
    figure, (axes,) = picture.picture(_pareto_title(points), width=9, height=5)
    if curve:
        line = [[entry[name] for entry in curve] for name in ("tok_s_per_user", "tok_s_per_gpu")]
        label = f"bound ({hardware}), by requests that run"
        axes.plot(*line, "-", color=picture.BLACK, marker=".", linewidth=1.2, label=label)
    for entry in curve:
        place = (entry["tok_s_per_user"], entry["tok_s_per_gpu"])
        axes.annotate(f"{entry['batch']:g}", place, (5, 4), textcoords="offset points", fontsize=8)
    _marked(axes, points, "tok_s_per_user", "tok_s_per_gpu")
    axes.margins(0.08)
    _log_axes(axes)
    axes.set_xlabel("tok/s of each running request")
    axes.set_ylabel("tok/s of each device")
    _beside(axes, _labels(points, "tok_s_per_user", "tok_s_per_gpu"))
    figure.legend(fontsize=8, frameon=False, loc="outside lower center", ncols=3)
    return figure


def unknown(why: str) -> Figure:
    """A picture that says why there is none."""
    from lab.report import picture

    figure, (axes,) = picture.picture(why, height=0.8)
    axes.set_axis_off()
    return figure


def _marked(axes: Axes, points: Sequence[Point], x: str, y: str) -> None:
    """Every point in the colour and shape of its arm."""
    from lab.report import picture

    for arm, (colour, shape) in picture.arm_marks(point["arm"] for point in points).items():
        own = [(point[x], point[y]) for point in points if point["arm"] == arm]
        axes.plot(*zip(*own, strict=True), shape, color=colour, markersize=7, alpha=0.85, label=arm)


def _log_axes(axes: Axes) -> None:
    """Both axes logarithmic in plain numbers: by tens over three decades and more, in 1-2-5 steps below."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        axis.set_major_locator(LogLocator(subs=(1,) if high >= 1000 * low else (1, 2, 5)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())


def _labels(points: Sequence[Point], x: str, y: str) -> list[tuple[str, float, float]]:
    """One label for the points of an arm at one load, at its last point: `control: 16 asked, 8.0 ran`."""
    last = {(point["arm"], point["asked"]): point for point in points}
    return [(f"{arm}: {asked} asked, {one['running']:.1f} ran", one[x], one[y]) for (arm, asked), one in last.items()]


def _beside(axes: Axes, labels: Sequence[tuple[str, float, float]]) -> None:
    """Labels in a column beside the picture, each joined to its point by a thin line, none over another."""
    from lab.report import picture

    to_axes = axes.transData + axes.transAxes.inverted()
    placed = sorted((float(to_axes.transform((x, y))[1]), text, (x, y)) for text, x, y in labels)
    heights = [height for height, _, _ in placed]
    for index in range(1, len(heights)):
        heights[index] = max(heights[index], heights[index - 1] + LABEL_STEP)
    over = max(0.0, heights[-1] - 1.0) if heights else 0.0
    for height, (_, text, point) in zip(heights, placed, strict=True):
        line = {
            "arrowstyle": "-",
            "color": picture.GREY,
            "linewidth": 0.5,
            "shrinkA": 0,
            "shrinkB": 4,
            "relpos": (0, 0.5),
        }
        axes.annotate(
            text,
            point,
            (1.02, height - over),
            textcoords="axes fraction",
            va="center",
            fontsize=8,
            arrowprops=line,
            annotation_clip=False,
            parse_math=False,
        )


def _amount(axes: Axes, x: float, y: float, ms: float, layers: int) -> None:
    """`7.27 ms, 0.169 ms a layer` behind the end of a bar."""
    text = f"{_three(ms)} ms, {_three(ms / layers)} ms a layer"
    axes.annotate(text, (x, y), (6, 0), textcoords="offset points", va="center", fontsize=9)


def _roof_title(points: Sequence[Point], bandwidth_bytes_s: float) -> str:
    if not points:
        return "No trial whose arithmetic and bytes are known"

    def share(point: Point) -> float:
        return point["flop_s"] / (point["flop_per_byte"] * bandwidth_bytes_s)

    best = max(points, key=share)
    reached = words.of_bound({"bound_fraction": share(best)})
    return f"The nearest trial reaches {reached} of what memory allows ({best['arm']}, batch {best['running']:.3g})"


def _waterfall_title(parts_ms: Mapping[str, float], step_ms: float, layers: int, label: str) -> str:
    left = parts_ms[UNEXPLAINED]
    if left < 0:
        return f"{label}: the step is {_three(-left)} ms shorter than its bound, so an input is wrong"
    told = f"{_three(left)} of {_three(step_ms)} ms of a step are unexplained"
    return f"{label}: {told}, {_three(left / layers)} ms a layer"


def _pareto_title(points: Sequence[Point]) -> str:
    if not points:
        return "No trial whose batch and throughput are known"
    most = max(points, key=lambda point: point["tok_s_per_gpu"])
    fastest = max(points, key=lambda point: point["tok_s_per_user"])
    return (
        f"At most {_three(most['tok_s_per_gpu'])} tok/s a device ({most['arm']}, {most['asked']} asked) and "
        f"{_three(fastest['tok_s_per_user'])} tok/s each ({fastest['arm']}, {fastest['asked']} asked)"
    )


def _three(value: float) -> str:
    """Three digits that count, without an exponent: `1,520`, `12.7`, `0.00421`, `−0.5`."""
    if not value:
        return "0"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    rounded = round(abs(value), 2 - math.floor(math.log10(abs(value))))
    return ("−" if value < 0 else "") + f"{rounded:,.{decimals}f}"
