"""A trial whose client holds less in flight than was asked.

Without one builder each test of the client would start from another pool of connections.
"""

from __future__ import annotations

from typing import Any

from lab.records import Trial
from tests.builders import trial_in_memory


def pool(**changes: Any) -> Trial:
    """A hundred of 128 requests in flight, all of them on a server that could run 256."""
    clean = {
        "concurrency": 128,
        "client.sent": 1000,
        "client.littles_law": 100.0,
        "client.in_flight_flat_pct": 0.4,
        "server.running": 99.0,
        "server.waiting": 0.0,
    }
    return trial_in_memory({**clean, **{key.replace("__", "."): value for key, value in changes.items()}}, {"cap": 256})
