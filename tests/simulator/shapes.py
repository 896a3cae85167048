"""The shape of a page or an answer: names, types and labels, without values.

Without it a test of a dialect would compare figures, which differ, instead of what a reader depends on.
"""

from __future__ import annotations

import re
from typing import Any

_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? \S+$")


def families(page: str) -> dict[str, dict[str, Any]]:
    """Metric family → its type, help text, and the sets of label names of its series."""
    found: dict[str, dict[str, Any]] = {}
    for line in page.splitlines():
        if line.startswith("# HELP "):
            _, _, name, text = line.split(" ", 3)
            found[name] = {"help": text, "labels": []}
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ", 3)
            found[name]["type"] = kind
        elif sample := _SAMPLE.match(line):
            family = _family_of(sample[1], found)
            labels = sorted(re.findall(r'(\w+)="', sample[2] or ""))
            if labels not in found[family]["labels"]:
                found[family]["labels"].append(labels)
    return found


def _family_of(name: str, known: dict[str, Any]) -> str:
    for suffix in ("", "_bucket", "_count", "_sum"):
        base = name.removesuffix(suffix) if suffix else name
        if base in known and (not suffix or name.endswith(suffix)):
            return base
    raise ValueError(f"{name} belongs to no family of the page")


def paths(value: Any, prefix: str = "") -> set[str]:
    """Every key path of a JSON value; list elements count as one."""
    if isinstance(value, dict):
        inner = [paths(item, f"{prefix}.{key}") | {f"{prefix}.{key}"} for key, item in value.items()]
    elif isinstance(value, list):
        inner = [paths(item, f"{prefix}[]") for item in value]
    else:
        inner = []
    return set().union(*inner)
