"""Serving engines, found by name.

Without a registry every caller would list the engines, and a new one would mean edits in many files. A module
in this folder registers itself (`base.register`); modules whose name starts with an underscore belong to an
engine and are not engines. Nothing is imported before an engine is asked for.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

from lab.errors import InputError
from lab.files import suggest

if TYPE_CHECKING:
    from lab.engines.base import Engine


def get(name: str) -> Engine:
    """The engine of that name; raises InputError with the nearest known name."""
    engines = _registered()
    if name not in engines:
        raise InputError(f"server.engine: '{name}' is no engine{suggest(name, engines)}")
    return engines[name]


def names() -> list[str]:
    """Every engine the lab knows, sorted."""
    return sorted(_registered())


def _registered() -> dict[str, Engine]:
    for module in pkgutil.iter_modules(__path__):
        if not module.name.startswith("_"):
            importlib.import_module(f"{__name__}.{module.name}")
    from lab.engines import base

    return base.REGISTERED
