"""The short door that notebooks use stays open however often, and in whatever order, it is used."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from pathlib import Path
from typing import Any

import pytest

import lab
from lab.errors import InputError
from tests.builders import RunBuilder, lever_plan


def test_no_module_takes_the_place_of_a_function_of_its_name() -> None:
    for module in pkgutil.iter_modules(lab.__path__, "lab."):
        if module.name != "lab.__main__":
            importlib.import_module(module.name)
    for name in ("study", "summary", "roofline_view", "load_campaign", "verdicts", "trials"):
        assert inspect.isfunction(getattr(lab, name))


def test_a_cell_can_be_run_again() -> None:
    for _ in range(2):
        with pytest.raises(InputError, match="there is no lever 'mtpp'"):
            lab.study("mtpp")


def test_the_pictures_are_behind_the_door_and_nothing_else_is_made_up() -> None:
    assert lab.plots is importlib.import_module("lab.report.plots")
    with pytest.raises(AttributeError, match="module 'lab' has no attribute 'plot'"):
        _ = lab.plot


def test_verdicts_and_trials_of_a_run_are_tables(tmp_path: Path, results: Path) -> None:
    build = RunBuilder(tmp_path, [lever_plan("mtp")])
    build.passes(2, {"mtp": 120})
    for arguments in ({}, {"campaign": "small"}, {"run": str(build.run.path)}):
        shown: Any = lab.verdicts(**arguments)
        assert [row["verdict"] for row in shown.rows] == ["adopt"]
        assert "mtp" in repr(shown) and "| mtp" in shown._repr_markdown_()
        trials = lab.trials(**arguments)
        assert list(trials["arm"]) == ["control", "mtp", "control", "mtp", "control"]
        assert trials["valid"].all() and (trials["bound_fraction"] < 1).all()


def test_a_campaign_file_is_read_through_the_door(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        lab.load_campaign(str(tmp_path / "absent.yaml"))


@pytest.mark.parametrize(
    ("state", "final"), [("running", False), ("interrupted", False), ("measured", True), ("done", True)]
)
def test_verdicts_that_may_still_change_say_so(tmp_path: Path, results: Path, state: str, final: bool) -> None:
    build = RunBuilder(tmp_path, [lever_plan("mtp")])
    build.passes(1, {"mtp": 120})
    build.run.set_status(state)
    assert ("not the last verdicts" not in lab.verdicts(run=str(build.run.path)).heading) == final


def test_the_roofline_is_drawn_for_the_batches_that_ran_and_without_a_curve_where_the_layout_is_unknown(
    tmp_path: Path, results: Path
) -> None:
    build = RunBuilder(tmp_path, [lever_plan("mtp")])
    build.passes(1, {"mtp": 120})
    (axes,) = lab.summary(run=str(build.run.path)).plot_roofline().axes
    assert any(line.get_label().startswith("bound (") for line in axes.lines)
    blind = RunBuilder(tmp_path / "blind", [lever_plan("mtp")])
    blind.launch("control", 0, "opening", facts={"tp_size": None})
    (axes,) = lab.summary(run=str(blind.run.path)).plot_roofline().axes
    assert not any(line.get_label().startswith("bound") for line in axes.lines)
