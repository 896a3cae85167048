"""Kinds of workload, found by name.

Without a registry the campaign file and the builder of prompts would each list the kinds, and a new one would mean
edits in both. A module in this folder registers itself (`base.register`); modules whose name starts with an
underscore serve several kinds and are none.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from lab.errors import InputError
from lab.files import suggest
from lab.load.kinds.base import REGISTERED, Kind


def get(name: str) -> Kind:
    """The kind of that name; raises InputError with the nearest known name."""
    kinds = _registered()
    if name not in kinds:
        raise InputError(f"workload kind '{name}' is unknown{suggest(name, kinds)}")
    return kinds[name]


def names() -> list[str]:
    """Every kind the lab knows, sorted."""
    return sorted(_registered())


@cache
def _registered() -> dict[str, Kind]:
    for module in pkgutil.iter_modules(__path__):
        if not module.name.startswith("_"):
            importlib.import_module(f"{__name__}.{module.name}")
    return REGISTERED
