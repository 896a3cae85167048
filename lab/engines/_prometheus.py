"""Read a Prometheus text page, strictly and quickly.

Without strictness a page that is no metrics page (an error body, a proxy's HTML) reads as "no requests running", a name
that is the beginning of another one reads the wrong series, and NaN or a series that is not there reads as zero.
Without speed the reading itself takes time from the server that shares the machine: the whole page of an engine, 700
lines, costs the library 14 ms, the twenty lines that are wanted less than one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import requests
from prometheus_client.parser import text_string_to_metric_families

from lab.engines._control import Control

_EXCERPT_CHARACTERS = 100
_LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{.*\})?\s+[^\s{}]+(?:\s+-?\d+)?\s*$")
"""A sample line of the text format: name, labels, value, perhaps a time stamp."""


@dataclass(frozen=True)
class Series:
    """One value of one metric at one moment."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True)
class Page:
    """The wanted metrics of one page, all finite and not negative: other values are left out, as if not on it."""

    metrics: Mapping[str, tuple[Series, ...]]

    def series(self, name: str, **labels: str) -> list[Series]:
        """The metric's series that carry all these labels; empty when the page has none."""
        return [one for one in self.metrics.get(name, ()) if labels.items() <= one.labels.items()]

    def total(self, name: str, **labels: str) -> float | None:
        """The sum over `series`; None when there is none."""
        found = self.series(name, **labels)
        return sum(one.value for one in found) if found else None

    def largest(self, name: str, **labels: str) -> float | None:
        """The largest of `series`, for shares, which must not be added; None when there is none."""
        return max((one.value for one in self.series(name, **labels)), default=None)


def scrape(control: Control, names: Collection[str]) -> Page:
    """`read` of a server's /metrics; raises requests.RequestException also for a page that is none."""
    try:
        return read(control.text("/metrics"), names)
    except ValueError as error:
        raise requests.RequestException(f"/metrics: {control.concealed(str(error), _EXCERPT_CHARACTERS)}") from None


def read(text: str, names: Collection[str]) -> Page:
    """The metrics with exactly these names (a histogram's parts by theirs: `…_sum`, `…_count`).

    Every line is checked, the wanted ones are parsed. Raises ValueError when the page is not of this format or empty.
    """
    wanted = []
    lines = 0
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        matched = _LINE.match(line)
        if not matched:
            raise ValueError(f"no metrics page: {line.strip()!r}")
        lines += 1
        if matched[1] in names:
            wanted.append(line)
    if not lines:
        raise ValueError("no metrics page: it holds no metric")
    metrics: dict[str, list[Series]] = {}
    for family in text_string_to_metric_families("\n".join(wanted) + "\n"):
        for sample in family.samples:
            if math.isfinite(sample.value) and sample.value >= 0:
                metrics.setdefault(sample.name, []).append(Series(sample.labels, float(sample.value)))
    return Page({name: tuple(series) for name, series in metrics.items()})


def largest_of_copies(series: Iterable[Series], copies: Collection[str]) -> list[Series]:
    """One series for each group that differs in nothing but the labels `copies`: the largest of the group.

    For ranks that repeat one number: tensor-parallel workers each report the same batch.
    """
    groups: dict[frozenset[tuple[str, str]], Series] = {}
    for one in series:
        labels = {name: value for name, value in one.labels.items() if name not in copies}
        key = frozenset(labels.items())
        if key not in groups or one.value > groups[key].value:
            groups[key] = Series(labels, one.value)
    return list(groups.values())


def by_label(series: Iterable[Series], label: str) -> dict[str, float]:
    """The sums for each value of a label; series without it stand under the empty value."""
    sums: dict[str, float] = {}
    for one in series:
        key = one.labels.get(label, "")
        sums[key] = sums.get(key, 0.0) + one.value
    return sums
