"""Pictures of a run say how far they can be trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab import views
from lab.runs import Run
from tests.builders import RunBuilder, lever_plan


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A lever measured in windows of two seconds."""
    return RunBuilder(tmp_path, [lever_plan("mtp")]).passes(2, {"mtp": 120})


def told(figure: Any) -> str:
    return figure.axes[0].get_title(loc="right")


def test_pictures_of_short_windows_say_so(run: Run) -> None:
    for figure in (views.effect_picture(run), views.roofline_picture(run), views.launches_picture(run)):
        assert told(figure) == "short windows: 2 s each, where 60 s are usual"


def test_pictures_of_usual_windows_carry_no_note(run: Run) -> None:
    run.campaign["file"]["window"]["seconds"] = views.USUAL_WINDOW_SECONDS
    assert told(views.effect_picture(run)) == ""
