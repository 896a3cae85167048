"""Plays the scenes of many scenarios, equal ones once.

Without it each code would be shown by a measurement of its own, although many scenes are the same.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.golden.scenario import Scenario
from tests.golden.stage import Play, Played, play

FIRES, SILENT = "fires", "silent"


def play_all(scenarios: Iterable[Scenario]) -> Iterator[tuple[Scenario, str, Played | Exception]]:
    """(scenario, `fires` or `silent`, what came of it), in order. Equal scenes are played once.

    One at a time: a server and its client take both of two cores for moments, and more at once would make the noise of
    the machine the subject.
    """
    with tempfile.TemporaryDirectory(prefix="lab-golden-") as folder:
        scenes: list[Play] = []
        outcomes: list[Played | Exception] = []
        for scenario in scenarios:
            for name in (FIRES, SILENT):
                scene = getattr(scenario, name)
                if scene not in scenes:
                    outcomes.append(_played(scene, Path(folder) / str(len(scenes))))
                    scenes.append(scene)
                yield scenario, name, outcomes[scenes.index(scene)]


def _played(scene: Play, folder: Path) -> Played | Exception:
    folder.mkdir()
    try:
        return play(scene, folder)
    except Exception as error:
        return error
