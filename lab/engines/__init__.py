"""Serving engines, found by name.

Without a registry every caller would list the engines, and a new one would mean edits in many files. A module
in this folder registers itself (`base.register`); modules whose name starts with an underscore belong to an
engine and are not engines. Nothing is imported before an engine is asked for.

An engine can be started by a campaign. A reader can only be looked into while somebody else runs it (`base.Reader`,
`attach.recognise`): kinds of server that the lab cannot start yet are readers and no engines, so that nothing promises
to launch them.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

from lab.errors import InputError
from lab.files import suggest

if TYPE_CHECKING:
    from lab.engines.base import Engine, Reader


def get(name: str) -> Engine:
    """The engine of that name; raises InputError with the nearest known name, or saying that it is a reader only."""
    engines = _registered()
    if name in engines:
        return engines[name]
    if name in readers():
        raise InputError(f"the lab cannot start {name} servers yet; for a running one: lab check URL")
    raise InputError(f"unknown engine '{name}'{suggest(name, engines)}")


def readers() -> dict[str, Reader]:
    """Every kind of server that the lab can look into, by name."""
    _registered()
    from lab.engines import base

    return dict(base.READERS)


def names() -> list[str]:
    """Every engine the lab can start, sorted."""
    return sorted(_registered())


def _registered() -> dict[str, Engine]:
    for module in pkgutil.iter_modules(__path__):
        if not module.name.startswith("_"):
            importlib.import_module(f"{__name__}.{module.name}")
    from lab.engines import base

    return base.REGISTERED
