"""Models by name, with the recipes in which their checkpoints are published.

Without it every campaign would have to bring a config.json, and "Qwen3.5 in NVFP4" would mean half a byte for all of
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import yaml

from lab.errors import InputError
from lab.files import quoted, suggest, typed_path
from lab.roofline.config_fields import PER_LAYER
from lab.roofline.config_json import from_config
from lab.roofline.gguf_file import from_gguf
from lab.roofline.model import Model
from lab.roofline.recipes import FORMATS, Recipe, known_recipe

_FILE = Path(__file__).parent / "data" / "models.yaml"


def find(name: str, recipe: str | None = None) -> Model:
    """A model of the catalogue, or that of a GGUF file, a config.json or the folder that holds one.

    `recipe`: how the weights are stored: one of the model's own (NVFP4 of Qwen3.5 leaves all but the experts in BF16)
    or the usual one of a format (`recipes.plain`); None: as first published, or as the file says.

    Raises InputError: an unknown name or recipe (with the nearest), a file that is absent or damaged, a recipe for a
    GGUF file, which says itself how its tensors are stored.
    """
    if name.endswith(".gguf"):
        if recipe is not None:
            raise InputError(f"{name}: a GGUF file says how its tensors are stored; leave the recipe {recipe!r} out")
        return from_gguf(name)
    if name.endswith(".json") or typed_path(name).is_dir():
        return from_config(name, recipe=recipe)
    known = {key.lower(): key for key in names()}
    key = known.get(name.lower().rpartition("/")[2])
    if key is None:
        raise InputError(f"unknown model {quoted(name)}{suggest(name, names())}")
    return _model(key, recipe)


def names() -> tuple[str, ...]:
    """Every model of the catalogue."""
    return tuple(_entries())


def recipes(name: str) -> tuple[str, ...]:
    """The recipes of a model of the catalogue, the published one first."""
    return tuple(_entries()[name]["recipes"])


@cache
def _model(key: str, recipe: str | None) -> Model:
    entry = _entries()[key]
    own = entry["recipes"]
    wanted = next(iter(own)) if recipe is None else known_recipe(recipe, [*FORMATS, *own])
    chosen: Recipe | str = wanted
    if wanted in own:
        parts = own[wanted]
        chosen = Recipe(wanted, parts["experts"], parts["others"], parts.get("except_for", {}))
    config = dict(entry["config"])
    for field in PER_LAYER:  # written as a cycle that repeats to the last layer
        if field in config:
            config[field] = list(islice(cycle(config[field]), config["num_hidden_layers"]))
    return from_config(config, key, chosen)


@cache
def _entries() -> Mapping[str, Any]:
    return yaml.safe_load(_FILE.read_text())
