"""One MLflow run to be, within what MLflow accepts.

Without it a value that is too long is cut in silence, infinity is stored as 1.8e308, and an illegal name stops the
whole publication.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.files import digest, sha256_file, sha256_text

PARAM_LIMIT, NOTE_LIMIT, NAME_LIMIT = 500, 8000, 250


@dataclass(frozen=True)
class Entry:
    """One MLflow run to be: everything that is written, and the entries below it.

    `span_ms` is start and end in milliseconds since 1970. `metrics` may hold None and non-finite values: `finite` and
    `labels` say what is written of them. `artifacts` maps a path on the page to a file, `texts` to a generated text.
    """

    key: str
    name: str
    span_ms: tuple[int, int]
    status: str
    params: dict[str, str]
    metrics: dict[str, float | None]
    tags: dict[str, str]
    artifacts: dict[str, Path] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    children: list[Entry] = field(default_factory=list)

    @property
    def finite(self) -> dict[str, float]:
        """The metrics that are numbers, to six significant digits, under legal names."""
        numbers = {name: value for name, value in self.metrics.items() if _is_finite(value)}
        return {legal(name): float(f"{value:.6g}") for name, value in numbers.items()}

    @property
    def labels(self) -> dict[str, str]:
        """The tags, with `missing.<metric>` for each metric that has no finite value."""
        missing = {
            f"missing.{legal(name)}": "not measured" if value is None else "not a finite number"
            for name, value in self.metrics.items()
            if not _is_finite(value)
        }
        return {legal(name): value for name, value in {**self.tags, **missing}.items()}

    @property
    def digest(self) -> str:
        """Changes when anything that is written changes; the entries below have digests of their own."""
        files = {path: sha256_file(source) for path, source in self.artifacts.items()}
        files |= {path: sha256_text(text) for path, text in self.texts.items()}
        written = [
            self.name,
            self.span_ms,
            self.status,
            self.params,
            self.finite,
            self.labels,
        ]
        return digest([*written, files])


def legal(name: str) -> str:
    """A name that MLflow accepts: other characters become `_`, the rest is cut."""
    return re.sub(r"[^A-Za-z0-9_\-. :/]", "_", name)[:NAME_LIMIT]


def short(value: Any) -> str:
    """A parameter as text: numbers canonical, structures as JSON; one that is too long becomes its digest."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    return text if len(text) <= PARAM_LIMIT else f"sha256:{sha256_text(text)}"


def note(text: str, limit: int = NOTE_LIMIT) -> str:
    """A note that fits, and says so when it was cut."""
    ending = "\n\n… cut here; the whole is among the artifacts."
    return text if len(text) <= limit else text[: limit - len(ending)] + ending


def _is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
