"""Every picture states its finding, labels its axes with units and survives missing figures."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from verdict_rows import ROWS, row

from lab.report import plots

SECONDS = np.arange(0, 12, 0.5)
CONTROL = pd.DataFrame({"t_s": 100 + SECONDS, "running": np.clip(2 * SECONDS, 0, 4), "waiting": 0.0})
CAPPED = pd.DataFrame(
    {"t_s": 200 + SECONDS, "running": np.clip(2 * SECONDS, 0, 2), "waiting": np.clip(2 * SECONDS - 2, 0, 2)}
)
WINDOWS = {"control": (103.0, 109.0), "fewer_slots": (203.0, 209.0)}
BOUND = [{"batch": n, "bound_tok_s": 180 * n / (1 + 0.25 * n)} for n in (1, 2, 4, 8, 16)]
POINTS = [
    {"arm": "control", "batch": 3.98, "output_tok_s": 110.0},
    {"arm": "autotune", "batch": 3.98, "output_tok_s": 144.0},
    {"arm": "control", "batch": None, "output_tok_s": 50.0},
]
ORDERED = pd.DataFrame(
    {
        "pass": [0, 1, 1, 2, 2],
        "order": [0, 1, 2, 3, 4],
        "arm": ["control", "autotune", "control", "autotune", "control"],
        "value": [55.0, 72.0, 54.0, 71.0, 53.9],
    }
)


def pictures() -> dict[str, Figure]:
    timelines = {"control": CONTROL, "fewer_slots": CAPPED}
    return {
        "forest": plots.effect_forest(ROWS, 3),
        "running": plots.running_over_time(timelines, 4, {"control": None, "fewer_slots": 2}, WINDOWS),
        "roofline": plots.roofline(POINTS, BOUND, "12.3 GB/s"),
        "launches": plots.launches(ORDERED),
    }


def title(figure: Figure) -> str:
    return figure.get_suptitle().replace("\n", " ")


@pytest.mark.parametrize("name", ["forest", "running", "roofline", "launches"])
def test_a_picture_has_labels_a_title_and_a_modest_size(name: str, tmp_path: Path) -> None:
    figure = pictures()[name]
    assert all(axes.get_ylabel() for axes in figure.axes) and figure.axes[-1].get_xlabel()
    assert title(figure) and figure.dpi <= 100
    path = plots.save(figure, tmp_path / "plots" / f"{name}.png")
    assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size < 100_000
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_the_titles_say_the_finding() -> None:
    titles = {name: title(figure) for name, figure in pictures().items()}
    assert titles["forest"] == "1 of 7 levers adopted: autotune (n_threads=2) +31.0 %"
    assert titles["running"] == "Requests that ran, of 4 asked: control 4.0, fewer_slots 2.0"
    assert titles["roofline"] == "The nearest trial reaches 40 % of its bound (autotune, batch 3.98)"
    assert titles["launches"] == "The control moved −2.0 % from its first to its last launch"


def test_units_are_on_the_axes() -> None:
    figures = pictures()
    assert "%" in figures["forest"].axes[0].get_xlabel()
    assert "seconds" in figures["running"].axes[-1].get_xlabel()
    assert figures["roofline"].axes[0].get_ylabel() == "output, tok/s"
    assert plots.launches(ORDERED, "ttft_p50_ms", "ms").axes[0].get_ylabel() == "ttft_p50_ms, ms"


def test_the_roofline_is_logarithmic_both_ways() -> None:
    axes = pictures()["roofline"].axes[0]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")


def test_nothing_measured_is_a_picture_too() -> None:
    assert title(plots.effect_forest([row("mtp", "failed", "no start")])) == "No lever adopted: 1 failed"
    plots.effect_forest([])
    plots.running_over_time({}, 4)
    assert "not known" in title(plots.roofline(POINTS, []))
    plots.roofline([], [])
    assert "too few controls" in title(plots.launches(ORDERED.head(0)))


def test_a_gap_in_the_servers_account_is_no_zero() -> None:
    gappy = CONTROL.assign(running=CONTROL["running"].where(CONTROL.index != 12))
    figure = plots.running_over_time({"control": gappy}, 4, windows=WINDOWS)
    assert "control 4.0" in title(figure)
    unknown = CONTROL.assign(running=np.nan)
    assert "control –" in title(plots.running_over_time({"control": unknown}, 4))


def test_the_mean_weighs_samples_by_their_time() -> None:
    uneven = pd.DataFrame({"t_s": [0.0, 9.0, 10.0], "running": [4.0, 0.0, 0.0], "waiting": 0.0})
    assert "control 3.6" in title(plots.running_over_time({"control": uneven}, 4))


def test_simulated_figures_are_marked() -> None:
    assert title(plots.effect_forest([{**ROWS[0], "simulated": True}])).startswith("SIMULATED")


def test_pictures_can_be_drawn_in_threads(tmp_path: Path) -> None:
    workers = [
        threading.Thread(target=lambda n=n: plots.save(plots.roofline(POINTS, BOUND), tmp_path / f"{n}.png"))
        for n in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len({path.read_bytes() for path in tmp_path.glob("*.png")}) == 1
    assert len(list(tmp_path.glob("*.png"))) == 4


def test_matplotlib_is_loaded_by_the_first_picture_and_pyplot_never() -> None:
    code = (
        "import sys; from lab.report import plots; assert 'matplotlib' not in sys.modules; "
        "plots.effect_forest([]); assert 'matplotlib' in sys.modules; assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
