"""The levers, found by registration: one file each, and any ad-hoc lever of a campaign file.

Without one place that resolves a campaign's levers, a typo in a name or an option surfaces after the first launch.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence

from lab.campaign import Campaign
from lab.files import suggest
from lab.levers.base import LEVERS, Lever
from lab.levers.custom import Custom

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["LEVERS", "Lever", "get", "resolve"]


def get(campaign: Campaign, name: str) -> Lever:
    """The lever `name` with the options of the campaign file; raises InputError for what is unknown."""
    levers = campaign.levers
    if name not in levers:
        raise campaign.document.error(("levers",), f"there is no lever '{name}' in it{suggest(name, levers)}")
    location = ("levers", name)
    options = levers[name]
    if "custom" in options:
        extra = sorted(set(options) - {"custom"})
        if extra:
            raise campaign.document.error((*location, extra[0]), "an ad-hoc lever holds only the key 'custom'")
        parsed = campaign.document.validate(Custom.Options, options["custom"], (*location, "custom"))
        return Custom(name, parsed)
    if name not in LEVERS:
        hint = suggest(name, LEVERS)
        text = f"unknown lever '{name}'{hint}; or give it a key 'custom' with the treatment"
        raise campaign.document.error(location, text)
    kind = LEVERS[name]
    return kind(name, campaign.document.validate(kind.Options, options, location))


def resolve(campaign: Campaign, only: Sequence[str] | None = None) -> list[Lever]:
    """The campaign's levers in the order of the file; `only` names those wanted, None all."""
    for name in only or []:
        get(campaign, name)
    return [get(campaign, name) for name in campaign.levers if only is None or name in only]
