"""The pictures against the hardware: finding in the title, units on the axes, labels that do not lie on each other."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from lab.report import plots, roofline_plots

PEAKS = {"bf16": 480e12, "fp8": 960e12, "fp4": 1920e12}
CARD, BANDWIDTH = "RTX PRO 6000 Server", 1597e9
SWEEP = [(1, 1.0, 14.8), (2, 2.0, 24.3), (4, 4.0, 25.9), (8, 8.0, 27.5), (16, 16.0, 28.7), (64, 48.0, 29.5)]
ARMS = [("control", 1), ("attention_backend_of_its_own", 12)]
UNDER_ROOF = [
    {"arm": arm, "asked": asked, "running": ran, "flop_per_byte": 3 + ran / 5, "flop_s": 7e9 * tok_s * times}
    for arm, times in ARMS
    for asked, ran, tok_s in SWEEP
]
USERS = [
    {
        "arm": arm,
        "asked": asked,
        "running": ran,
        "tok_s_per_user": tok_s * times / ran,
        "tok_s_per_gpu": tok_s * times / 4,
    }
    for arm, times in ARMS
    for asked, ran, tok_s in SWEEP
]
CURVE = [
    {"batch": 2**power, "tok_s_per_user": 362 / 1.4**power, "tok_s_per_gpu": 90 * 1.43**power} for power in range(11)
]
PARTS = {"weights": 1.055, "experts": 7.275, "kv": 0.059, "collectives": 2.14, "compute": 0.0, "unexplained": 546.962}


def pictures() -> dict[str, Figure]:
    return {
        "roof": roofline_plots.roof(UNDER_ROOF, BANDWIDTH, PEAKS, CARD),
        "gap": roofline_plots.waterfall(PARTS, 557.491, 43, "control, 16 asked, 16.0 ran"),
        "users": roofline_plots.pareto(USERS, CURVE, CARD),
    }


def test_a_servers_own_model_is_drawn_hollow_and_only_where_there_is_one() -> None:
    own = [{**point, "flop_per_byte": 2 * point["flop_per_byte"]} for point in UNDER_ROOF]
    (axes,) = roofline_plots.roof(UNDER_ROOF, BANDWIDTH, PEAKS, CARD, own).axes
    (line,) = [line for line in axes.lines if line.get_label() == roofline_plots.ANALYTIC]
    assert line.get_fillstyle() == "none" and len(line.get_xdata()) == len(own)
    left, right = axes.get_xlim()
    assert left < min(line.get_xdata()) and max(line.get_xdata()) < right
    (plain,) = roofline_plots.roof(UNDER_ROOF, BANDWIDTH, PEAKS, CARD).axes
    assert all(line.get_label() != roofline_plots.ANALYTIC for line in plain.lines)


def title(figure: Figure) -> str:
    return figure.get_suptitle().replace("\n", " ")


def legend(figure: Figure) -> list[str]:
    (axes,) = figure.axes
    return axes.get_legend_handles_labels()[1]


def texts(figure: Figure) -> list[Any]:
    return list(figure.axes[0].texts)


@pytest.mark.parametrize("name", ["roof", "gap", "users"])
def test_a_picture_has_labels_a_title_and_a_modest_size(name: str, tmp_path: Path) -> None:
    figure = pictures()[name]
    (axes,) = figure.axes
    assert axes.get_xlabel() and axes.get_ylabel() and title(figure)
    path = plots.save(figure, tmp_path / f"{name}.png")
    assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size < 150_000


@pytest.mark.parametrize("name", ["roof", "gap", "users"])
def test_no_label_lies_on_another_or_outside_the_picture(name: str, tmp_path: Path) -> None:
    figure = pictures()[name]
    plots.save(figure, tmp_path / "drawn.png")
    width, height = figure.bbox.width, figure.bbox.height
    extents = [Text.get_window_extent(text) for text in texts(figure)]  # without the line to the point
    for one, other in itertools.combinations(extents, 2):
        assert not one.overlaps(other)
    assert all(min(one.x0, one.y0) >= 0 and one.x1 <= width and one.y1 <= height for one in extents)


def test_the_titles_say_the_finding() -> None:
    titles = {name: title(figure) for name, figure in pictures().items()}
    assert (
        titles["roof"].startswith("The nearest trial reaches 3") and "(attention_backend_of_its_own" in titles["roof"]
    )
    assert titles["gap"] == "control, 16 asked, 16.0 ran: 547 of 557 ms of a step are unexplained, 12.7 ms a layer"
    assert titles["users"].startswith("At most 88.5 tok/s a device (attention_backend_of_its_own, 64 asked)")
    assert titles["users"].endswith("and 178 tok/s each (attention_backend_of_its_own, 1 asked)")


def test_every_trial_is_labelled_with_its_arm_and_the_batch_that_was_asked_and_ran() -> None:
    for name in ("roof", "users"):
        said = [text.get_text() for text in texts(pictures()[name])]
        assert "control: 64 asked, 48.0 ran" in said and "attention_backend_of_its_own: 1 asked, 1.0 ran" in said


def test_the_roof_has_a_slope_and_a_ridge_for_each_known_peak() -> None:
    figure = pictures()["roof"]
    (axes,) = figure.axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    slope = axes.lines[0]
    assert list(slope.get_ydata()) == pytest.approx([x * BANDWIDTH for x in slope.get_xdata()])
    assert legend(figure)[1:4] == [
        "bf16 peak 480 TFLOP/s, from 301 FLOP/byte",
        "fp8 peak 960 TFLOP/s, from 601 FLOP/byte",
        "fp4 peak 1,920 TFLOP/s, from 1,200 FLOP/byte",
    ]
    assert slope.get_xdata()[-1] == pytest.approx(1920e12 / BANDWIDTH)


def test_the_peak_of_a_processor_keeps_its_digits() -> None:
    figure = roofline_plots.roof(UNDER_ROOF, 20e9, {"fp32": 0.0915e12}, "a processor")
    assert "fp32 peak 0.0915 TFLOP/s, from 4.58 FLOP/byte" in legend(figure)


def test_without_known_peaks_the_slope_stands_alone_and_the_picture_says_so() -> None:
    figure = roofline_plots.roof(UNDER_ROOF, 20e9, {}, "a processor")
    assert "arithmetic peaks of this device are not known: the slope alone" in legend(figure)
    assert not any("TFLOP/s" in text for text in legend(figure))


def test_the_parts_of_the_waterfall_join_end_to_end_and_reach_the_measured_step() -> None:
    figure = pictures()["gap"]
    (axes,) = figure.axes
    bars = list(axes.patches)
    assert [bar.get_x() for bar in bars[1:-1]] == pytest.approx([bar.get_x() + bar.get_width() for bar in bars[:-2]])
    assert bars[-2].get_x() + bars[-2].get_width() == pytest.approx(bars[-1].get_width())
    assert len({(bar.get_facecolor(), bar.get_hatch()) for bar in bars}) == 5  # four readings look alike
    assert "12.7 ms a layer" in " ".join(text.get_text() for text in texts(figure))


def test_an_unexplained_part_below_zero_goes_back_and_the_title_says_why() -> None:
    figure = roofline_plots.waterfall({"weights": 8.0, "kv": 2.0, "unexplained": -2.5}, 7.5, 10, "control")
    assert title(figure) == "control: the step is 2.50 ms shorter than its bound, so an input is wrong"
    assert figure.axes[0].patches[2].get_width() == -2.5


def test_the_bound_of_the_users_goes_to_1024() -> None:
    said = [text.get_text() for text in texts(pictures()["users"])]
    assert [text for text in said if text.isdecimal()] == [str(2**power) for power in range(11)]


def test_nothing_measured_is_a_picture_too(tmp_path: Path) -> None:
    empty = {
        "roof": roofline_plots.roof([], BANDWIDTH, {}, CARD),
        "users": roofline_plots.pareto([], [], CARD),
        "unknown": roofline_plots.unknown("The hardware of this run is not known"),
    }
    for name, figure in empty.items():
        assert "known" in title(figure)
        assert plots.save(figure, tmp_path / f"{name}.png").stat().st_size > 0


def test_matplotlib_is_loaded_by_the_first_picture() -> None:
    code = "import sys; from lab.report import roofline_plots; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
