"""The model of a checkpoint is remembered, and a damaged memory is only forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import models


def test_a_damaged_note_is_made_anew(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_CACHE", str(tmp_path))
    first = models.describe(checkpoint)
    (note,) = (tmp_path / "models").iterdir()
    for damage in ("{}", "no JSON"):
        note.write_text(damage)
        assert models.describe(checkpoint) == first
        assert note.read_text() != damage
