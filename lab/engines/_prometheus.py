"""Read a Prometheus text page, strictly.

Without strictness a page that is no metrics page (an error body, a proxy's HTML) would read as "no requests
running".
"""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families


def parse(text: str) -> dict[str, float]:
    """Metric name → value, summed over labels. Raises ValueError when the page is not of this format."""
    values: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            values[sample.name] = values.get(sample.name, 0.0) + float(sample.value)
    return values
