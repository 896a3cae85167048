"""Plays many scenes, equal ones once.

Without it the scenarios of the whole catalogue would take as long as a campaign.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.golden.scenario import Scenario
from tests.golden.stage import Play, Played, play

STAGES = 1
"""Scenes at once on two cores: a server and its client take both for moments; more would make the noise of the machine
the subject."""
FIRES, SILENT = "fires", "silent"


def play_all(scenarios: Iterable[Scenario]) -> Iterator[tuple[Scenario, str, Played | Exception]]:
    """(scenario, `fires` or `silent`, what came of it), in order. Equal scenes are played once.

    Scenes that break the client or observer patch this process and are played alone, after the others.
    """
    with tempfile.TemporaryDirectory(prefix="lab-golden-") as folder, ThreadPoolExecutor(STAGES) as pool:
        wanted = [(scenario, name, getattr(scenario, name)) for scenario in scenarios for name in (FIRES, SILENT)]
        scenes: list[Play] = []
        for _, _, scene in wanted:
            if scene not in scenes:
                scenes.append(scene)
        together = {
            index: pool.submit(_played, scene, Path(folder) / str(index))
            for index, scene in enumerate(scenes)
            if not scene.alone
        }
        outcomes = {index: future.result() for index, future in together.items()}
        for index, scene in enumerate(scenes):
            if scene.alone:
                outcomes[index] = _played(scene, Path(folder) / str(index))
        for scenario, name, scene in wanted:
            yield scenario, name, outcomes[scenes.index(scene)]


def _played(scene: Play, folder: Path) -> Played | Exception:
    folder.mkdir()
    try:
        return play(scene, folder)
    except Exception as error:
        return error
