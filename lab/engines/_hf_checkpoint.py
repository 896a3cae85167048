"""Which weights a Hugging Face checkpoint is: a folder with config.json and safetensors, or a hub name.

Without it two arms could serve different revisions under one name, and the model of a checkpoint that this machine does
not hold would be unknown to every bound.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from lab import checkpoints
from lab.checkpoints import Checkpoint
from lab.engines._runtime import expanded
from lab.errors import InputError
from lab.files import digest, sha256_text
from lab.roofline.config_json import from_config
from lab.roofline.model import Model
from lab.served_model import served_model

_HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_BLOB = re.compile(r"[0-9a-f]{64}")
_DESCRIBING = ("config.json", "hf_quant_config.json", "generation_config.json")


def located(name: str, base: Path) -> str:
    """The folder that a checkpoint means, absolute, or its hub name where this machine does not hold it.

    A path may begin with `~` or hold `$VARIABLES`; a relative one starts at `base`. A hub name is looked up in the
    hub's cache. Raises InputError for a folder without config.json, and for a name that nobody knows.
    """
    text = expanded(name, "checkpoint")
    folder = base / Path(text)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise InputError(f"checkpoint: {folder}: there is no config.json in it; name a Hugging Face model folder")
        return str(folder.resolve())
    if folder.exists():
        raise InputError(f"checkpoint: {folder}: is a file; name a folder with config.json and safetensors")
    if not _HUB_NAME.fullmatch(text):
        raise InputError(f"checkpoint: {folder}: no such folder; name one, or a model of the hub as owner/name")
    snapshot = _snapshot(text)
    if snapshot is not None:
        return str(snapshot)
    served_model([text], None)
    return text


def describe(name: str) -> tuple[Checkpoint, Model]:
    """Digest, size and model of a located checkpoint; a hub name is described by the catalogue, and proven by nothing
    but its name.

    Raises InputError when config.json cannot be read.
    """
    folder = Path(name)
    if not folder.is_dir():
        model = served_model([name], None)
        found = Checkpoint(folder, sha256_text(name), model.weight_bytes or 0, model.format, model.architecture, None)
    else:
        model = from_config(folder, label(name))
        parts = [path for path in map(folder.joinpath, _DESCRIBING) if path.is_file()]
        weights = sorted(folder.glob("*.safetensors"))
        names = {path.name: _sha256(path) for path in (*parts, *weights)}
        size = sum(path.stat().st_size for path in weights)
        found = Checkpoint(folder, sha256_text(digest(names)), size, model.format, model.architecture, None)
    return Checkpoint(**{**vars(found), "experts": model.n_experts or None}), model


def label(name: str) -> str:
    """A short name for people and APIs: the last part, of a folder in the hub's cache the model's."""
    folder = Path(name)
    if folder.parent.name == "snapshots" and folder.parent.parent.name.startswith("models--"):
        return folder.parent.parent.name.rpartition("--")[2]
    return folder.name


def _snapshot(name: str) -> Path | None:
    """The folder of the hub's cache that `main` of this model means, if it was fetched."""
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache/huggingface")
    place = Path(os.environ.get("HF_HUB_CACHE") or home / "hub") / f"models--{name.replace('/', '--')}"
    try:
        folder = place / "snapshots" / (place / "refs/main").read_text().strip()
    except OSError:
        return None
    return folder if (folder / "config.json").is_file() else None


def _sha256(path: Path) -> str:
    """A file's digest; files of the hub's cache are called by theirs, and are not read again."""
    blob = path.resolve().name
    return blob if _BLOB.fullmatch(blob) else checkpoints.file_digest(path)
