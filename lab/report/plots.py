"""The pictures of a campaign: effects, running requests, distance from the bound, launches.

Without pictures that state their finding in the title and carry units on their axes, a reader takes an interval
for a range, a capped server for a busy one and a drift for an effect.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.report import words

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

CONTROL = "control"


def save(figure: Figure, path: Path) -> Path:
    """Write the figure as a PNG in one step; raises DiskFullError or InputError when it cannot be written."""
    from lab.report.picture import save

    return save(figure, path)


def effect_forest(rows: Sequence[words.Row], min_effect_pct: float | None = None) -> Figure:
    """The effect of every lever in percent of the control, with its interval.

    `rows` are verdict rows; `min_effect_pct` shades the band in which an effect is too small to matter. A row
    without an effect keeps its line and says why in words.
    """
    from matplotlib.lines import Line2D

    from lab.report import picture

    figure, (axes,) = picture.picture(_forest_title(rows), height=1.6 + 0.42 * max(len(rows), 1))
    if min_effect_pct:
        axes.axvspan(-min_effect_pct, min_effect_pct, color=picture.GREY, alpha=0.13, linewidth=0)
    axes.axvline(0, color=picture.BLACK, linewidth=0.8)
    for y, row in enumerate(rows):
        colour, shape = picture.VERDICT_MARKS[row["verdict"]]
        effect_pct = row.get("effect_pct")
        if effect_pct is None:
            axes.annotate(row["verdict"], (0, y), (6, 0), textcoords="offset points", va="center", color=picture.GREY)
            continue
        low, high = (effect_pct if row.get(key) is None else row[key] for key in ("ci_low_pct", "ci_high_pct"))
        axes.plot([low, high], [y, y], color=colour, linewidth=2, solid_capstyle="butt")
        axes.plot([effect_pct], [y], marker=shape, markersize=8, color=colour)
        axes.annotate(
            f"{words.percent(effect_pct, signed=True)} %",
            (max(high, effect_pct), y),
            (6, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
        )
    axes.set_yticks(range(len(rows)), [words.lever_name(row) for row in rows])
    axes.set_ylim(max(len(rows), 1) - 0.5, -0.5)
    axes.margins(x=0.15)
    axes.grid(axis="y", visible=False)
    axes.set_ylabel("lever")
    metric = rows[0]["metric"] if rows else "the metric"
    axes.set_xlabel(f"effect on {metric} with its interval, % of the control")
    shown = dict.fromkeys(row["verdict"] for row in rows if row.get("effect_pct") is not None)
    marks = [(verdict, *picture.VERDICT_MARKS[verdict]) for verdict in shown]
    handles = [Line2D([], [], color=colour, marker=shape, label=verdict) for verdict, colour, shape in marks]
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9)
    return figure


def running_over_time(
    timelines: Mapping[str, pandas.DataFrame],
    requested: float,
    caps: Mapping[str, float | None] | None = None,
    windows: Mapping[str, tuple[float, float]] | None = None,
) -> Figure:
    """Running and waiting requests over time against the requests asked for, one panel per arm.

    `timelines` maps a label to a `timeline.parquet` (t_s, running, waiting); `windows` maps it to the opening and
    closing second of its judged window, which is shaded and starts the clock; `caps` maps it to the most requests
    that the server admits. Gaps in the server's account stay gaps.
    """
    from lab.report import picture

    windows, caps = windows or {}, caps or {}
    means = {label: _mean_running(frame, windows.get(label)) for label, frame in timelines.items()}
    ran = ", ".join(f"{label} {words.MISSING if mean is None else f'{mean:.1f}'}" for label, mean in means.items())
    title = f"Requests that ran, of {requested:g} asked: {ran}"
    figure, panels = picture.picture(title, height=1.1 + 1.7 * max(len(timelines), 1), rows=max(len(timelines), 1))
    for axes, (label, frame) in zip(panels, timelines.items(), strict=False):
        opened, closed = windows.get(label, (frame["t_s"].min(), None))
        elapsed = frame["t_s"] - opened
        if closed is not None:
            axes.axvspan(0, closed - opened, color=picture.SKY, alpha=0.15, linewidth=0, label="judged window")
        axes.axhline(requested, color=picture.BLACK, linewidth=1, linestyle="--", label="requested")
        cap = caps.get(label)
        if cap is not None and cap != requested:
            axes.axhline(cap, color=picture.VERMILLION, linewidth=1, linestyle=":", label="server's cap")
        for column, colour, style in (("running", picture.BLUE, "-"), ("waiting", picture.ORANGE, "--")):
            if column in frame and frame[column].notna().any():
                axes.step(elapsed, frame[column], style, where="post", color=colour, linewidth=1.8, label=column)
        axes.set_title(label, fontsize=9, loc="left")
        axes.set_ylabel("requests", fontsize=9)
    panels[0].set_ylim(0, None)
    panels[-1].set_xlabel("seconds since the window opened" if windows else "seconds since the first sample")
    entries = {text: line for axes in panels for line, text in zip(*axes.get_legend_handles_labels(), strict=True)}
    if entries:
        figure.legend(
            entries.values(),
            entries,
            loc="outside lower center",
            ncols=len(entries),
            frameon=False,
            fontsize=9,
        )
    return figure


def roofline(
    points: Sequence[Mapping[str, Any]], bound: Sequence[Mapping[str, Any]], hardware: str | None = None
) -> Figure:
    """Measured trials against the roofline: tokens per second over the running batch, both axes logarithmic.

    `points` hold `arm`, `batch` (running requests) and `output_tok_s`; `bound` holds `batch` and `bound_tok_s`
    along the curve; `hardware` names what the curve assumes. A point with a missing figure is left out.
    """
    from lab.report import picture

    points = [point for point in points if _positive(point.get("batch")) and _positive(point.get("output_tok_s"))]
    bound = sorted((entry for entry in bound if _positive(entry.get("bound_tok_s"))), key=lambda entry: entry["batch"])
    figure, (axes,) = picture.picture(_roofline_title(points, bound), width=7.5, height=4.6)
    if bound:
        label = f"bound ({hardware})" if hardware else "bound"
        line = [entry["batch"] for entry in bound], [entry["bound_tok_s"] for entry in bound]
        axes.plot(*line, color=picture.BLACK, linewidth=1.6, label=label)
    for arm, (colour, shape) in picture.arm_marks(point["arm"] for point in points).items():
        own = [(point["batch"], point["output_tok_s"]) for point in points if point["arm"] == arm]
        axes.plot(*zip(*own, strict=True), shape, color=colour, markersize=7, alpha=0.85, label=arm)
    picture.log_axes(axes)
    axes.set_xlabel("batch: requests running at once")
    axes.set_ylabel("output, tok/s")
    if points or bound:
        axes.legend(fontsize=9, frameon=False)
    return figure


def launches(frame: pandas.DataFrame, metric: str = "output_tok_s", unit: str = "tok/s") -> Figure:
    """Every launch in the order in which it ran, coloured by arm; the controls are joined, so that drift shows.

    `frame` has one row per launch: pass, order, arm, value.
    """
    from lab.report import picture

    frame = frame.dropna(subset=["value"]).sort_values("order")
    controls = frame[frame["arm"] == CONTROL]
    figure, (axes,) = picture.picture(_launches_title(list(controls["value"])), height=3.8)
    axes.plot(controls["order"], controls["value"], color=picture.GREY, linewidth=1, linestyle="--", zorder=1)
    arms = [CONTROL, *(arm for arm in frame["arm"] if arm != CONTROL)] if len(controls) else frame["arm"]
    for arm, (colour, shape) in picture.arm_marks(arms).items():
        own = frame[frame["arm"] == arm]
        axes.plot(own["order"], own["value"], shape, color=colour, markersize=7, label=arm)
    for _, group in frame.groupby("pass"):
        axes.axvline(group["order"].max() + 0.5, color=picture.GREY, linewidth=0.6, alpha=0.5)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.margins(y=0.15)
    axes.set_xlabel("launch order (thin lines end a pass)")
    axes.set_ylabel(f"{metric}, {unit}")
    if len(frame):
        figure.legend(loc="outside right upper", fontsize=9, frameon=False)
    return figure


def _forest_title(rows: Sequence[words.Row]) -> str:
    simulated = "SIMULATED: " if any(row.get("simulated") for row in rows) else ""
    adopted = [
        f"{words.lever_name(row)} {words.percent(row.get('effect_pct'), signed=True)} %"
        for row in rows
        if row["verdict"] == "adopt"
    ]
    if adopted:
        return f"{simulated}{len(adopted)} of {len(rows)} levers adopted: {', '.join(adopted)}"
    counts = Counter(row["verdict"] for row in rows)
    return f"{simulated}No lever adopted: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items())


def _roofline_title(points: Sequence[Mapping[str, Any]], bound: Sequence[Mapping[str, Any]]) -> str:
    shares = [(point["output_tok_s"] / limit, point) for point in points if (limit := _bound_at(bound, point["batch"]))]
    if not shares:
        return "Measured throughput; the bound is not known"
    share, best = max(shares, key=lambda pair: pair[0])
    percent = words.of_bound({"bound_fraction": share})
    return f"The nearest trial reaches {percent} of its bound ({best['arm']}, batch {best['batch']:.3g})"


def _bound_at(bound: Sequence[Mapping[str, Any]], batch: float) -> float | None:
    """The bound at a batch, read off the curve (straight between its points); None outside it."""
    for left, right in itertools.pairwise(bound):
        if left["batch"] <= batch <= right["batch"]:
            part = (batch - left["batch"]) / (right["batch"] - left["batch"])
            return left["bound_tok_s"] + part * (right["bound_tok_s"] - left["bound_tok_s"])
    return next((entry["bound_tok_s"] for entry in bound if entry["batch"] == batch), None)


def _launches_title(controls: Sequence[float]) -> str:
    if len(controls) < 2:
        return "Launches in the order in which they ran; too few controls to see drift"
    change = words.percent(100 * (controls[-1] / controls[0] - 1), signed=True)
    return f"The control moved {change} % from its first to its last launch"


def _mean_running(frame: pandas.DataFrame, window: tuple[float, float] | None) -> float | None:
    """The time-weighted mean of the running requests inside the window; None without two samples there."""
    known = frame[["t_s", "running"]].dropna()
    if window is not None:
        known = known[(known["t_s"] >= window[0]) & (known["t_s"] < window[1])]
    if len(known) < 2:
        return None
    seconds = known["t_s"].diff().shift(-1).iloc[:-1]
    return float((known["running"].iloc[:-1] * seconds).sum() / seconds.sum())


def _positive(value: float | None) -> bool:
    return value is not None and math.isfinite(value) and value > 0
