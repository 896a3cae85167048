"""The model inside a checkpoint, read once.

Without a memory of it every launch would parse the vocabulary of the header again, seconds each time.
"""

from __future__ import annotations

import contextlib
from dataclasses import asdict, fields
from pathlib import Path

from lab import checkpoints
from lab.checkpoints import Checkpoint
from lab.errors import LabError
from lab.files import cache_dir, digest, read_json, write_json
from lab.roofline.gguf_file import from_gguf
from lab.roofline.model import Model


def describe(path: Path) -> tuple[Checkpoint, Model]:
    """A GGUF's digest and size, and its model; raises InputError when the file is missing or no GGUF."""
    checkpoint = checkpoints.describe_checkpoint(path)
    shape = digest([field.name for field in fields(Model)])
    note = cache_dir() / "models" / f"{checkpoint.sha256[:16]}-{shape}.json"
    with contextlib.suppress(LabError):  # a damaged note is made anew
        return checkpoint, Model.from_record(read_json(note))
    model = from_gguf(path)
    write_json(note, asdict(model))
    return checkpoint, model
