"""Frozen dataclasses back from what `dataclasses.asdict` wrote down.

Without it a record that was cut, edited or written by another version surfaces as a KeyError far from the file, or as
a number that nobody measured.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from lab.errors import LabError
from lab.roofline.fields import shown

Kind = TypeVar("Kind")
_FINITE = ConfigDict(allow_inf_nan=False)


def rebuilt(kind: type[Kind], record: Any, what: str) -> Kind:
    """`kind` with the fields of the record, nested dataclasses already rebuilt; those that have a default may lack.

    Raises LabError `the record of WHAT: …`: no mapping, a field that lacks, one of a wrong type, one that is not known.
    """
    record, checks = mapping(record, what), _checks(kind)
    for name in record:
        if name not in checks:
            raise _damaged(what, f"{shown(name)} is not known to this version")
    for name, (adapter, required) in checks.items():
        if name not in record:
            if required:
                raise _damaged(what, f"{name} is missing")
            continue
        try:
            adapter.validate_python(record[name], strict=True)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            raise _damaged(what, f"{name}: {problem['msg'].lower()}, got {shown(problem['input'])}") from None
    return kind(**record)


def mapping(record: Any, what: str) -> dict[str, Any]:
    """A record with fields that can be replaced; raises LabError for what is no record."""
    if not isinstance(record, Mapping):
        raise _damaged(what, f"expected a mapping, got {shown(record)}")
    return dict(record)


def listed(record: Mapping[str, Any], field: str, what: str) -> list[Any]:
    """The entries of a list in a record, none where it is absent; raises LabError for anything else."""
    found = record.get(field, ())
    if not isinstance(found, list | tuple):
        raise _damaged(what, f"{field}: expected a list, got {shown(found)}")
    return list(found)


def _damaged(what: str, why: str) -> LabError:
    return LabError(f"the record of {what} is damaged: {why}")


@cache
def _checks(kind: type[Any]) -> Mapping[str, tuple[TypeAdapter[Any], bool]]:
    """A check of its type for each field of a dataclass, and whether it must be there."""
    hints = get_type_hints(kind)
    return types.MappingProxyType(
        {
            field.name: (
                TypeAdapter(hints[field.name], config=None if is_dataclass(hints[field.name]) else _FINITE),
                field.default is MISSING and field.default_factory is MISSING,
            )
            for field in fields(kind)
        }
    )
