"""A Prometheus text page, with families left out or zeroed on order.

Without one writer every dialect would have its own idea of the format, and of a missing metric.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lab.simulator.tally import Histogram
from lab.simulator.truth import Truth

Sample = tuple[str, Mapping[str, str], float]


class Page:
    """Collects families in order; `text()` is the page."""

    def __init__(self, truth: Truth, integers: bool = False) -> None:
        self._absent = set(truth.metrics.absent)
        self._zero = set(truth.metrics.zero)
        self._integers = integers
        self._lines: list[str] = []

    def family(self, name: str, kind: str, text: str, samples: Iterable[Sample]) -> None:
        """One family: `samples` are suffix, labels and value; a family without samples still has its head."""
        names = {name, name.removesuffix("_total")}
        if names & self._absent:
            return
        zero = bool(names & self._zero)
        self._lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        for suffix, labels, value in samples:
            inner = ",".join(f'{key}="{labels[key]}"' for key in labels)
            braces = f"{{{inner}}}" if inner else ""
            self._lines.append(f"{name}{suffix}{braces} {self._number(0.0 if zero else value)}")

    def text(self) -> bytes:
        """The page so far."""
        return ("\n".join(self._lines) + "\n").encode()

    def _number(self, value: float) -> str:
        return f"{value:.6g}" if self._integers else repr(float(value))


def histogram(values: Histogram, labels: Mapping[str, str], sort: bool = False) -> list[Sample]:
    """The samples of a histogram; `sort`: labels in alphabetical order, le among them."""
    samples: list[Sample] = []
    bounds = [*(repr(float(bound)) for bound in values.bounds), "+Inf"]
    for bound, count in zip(bounds, values.cumulative(), strict=True):
        with_bound = {**labels, "le": bound}
        samples.append(("_bucket", dict(sorted(with_bound.items())) if sort else with_bound, count))
    return [*samples, ("_count", labels, values.count), ("_sum", labels, values.sum)]
