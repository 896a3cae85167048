"""Read a Prometheus text page, cheaply and strictly.

Without strictness a page that is no metrics page (an error body, a proxy's HTML) would read as "no requests
running".
"""

from __future__ import annotations


def parse(text: str) -> dict[str, float]:
    """Metric name (with labels, as written) → value. Raises ValueError on a line of another form."""
    values: dict[str, float] = {}
    for line in text.splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        name, _, rest = line.rpartition("}") if "}" in line else line.partition(" ")
        name = name + "}" if "}" in line else name
        fields = rest.split()  # value, and perhaps a time stamp
        if not fields:
            raise ValueError(f"not a metrics line: {line[:80]!r}")
        values[name] = float(fields[0])
    return values
