"""Rows of requests.parquet and timeline.parquet for the tests of the figures.

Without one builder each test would leave out other columns, and a figure would be tested on tables that no
measurement ever writes.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from lab.load.summary import summarise
from lab.observe.machine import KEYS

OPENED, CLOSED, CAP = 100.0, 108.0, 4


def request(
    sent: float | None, first: float | None, chunks: list[tuple[float, int]], end: float, **fields: Any
) -> dict:
    """A row of requests.parquet; each row is of another prompt unless the test says so."""
    request.number += 1
    row = {
        "request": request.number,
        "client": 0,
        "process": 0,
        "prompt": request.number,
        "phase": "window",
        "max_tokens": CAP,
        "due_s": sent,
        "sent_s": sent,
        "first_event_s": first,
        "first_token_s": first,
        "end_s": end,
        "prompt_tokens": 10,
        "cached_tokens": 0,
        "output_tokens": sum(count for _, count in chunks),
        "reasoning_tokens": None,
        "reasoning_seen": False,
        "first_chunk_tokens": sum(count for t, count in chunks if first is not None and t <= first) or None,
        "tokens_source": "usage",
        "draft_tokens": None,
        "draft_accepted": None,
        "error": None,
        "error_text": None,
        "repeats": None,
        "chunk_s": [t for t, _ in chunks],
        "chunk_tokens": [count for _, count in chunks],
    }
    return row | fields


request.number = 0


def timeline(*rows: tuple[float, float | None, float | None], **fields: Any) -> pd.DataFrame:
    """A timeline of (t_s, running, waiting)."""
    machine = dict.fromkeys(KEYS)
    samples = [{"t_s": t, "running": r, "waiting": w, "kv_usage": None} | machine | fields for t, r, w in rows]
    columns = ["t_s", "running", "waiting", "kv_usage", *machine, *(name for name in fields if name not in machine)]
    return pd.DataFrame(samples, columns=list(dict.fromkeys(columns)), dtype="float64")


def summary(rows: list[dict], samples: pd.DataFrame | None = None, delta: dict | None = None, **values: Any) -> dict:
    """The sections for two clients and a window of eight seconds, unless told otherwise."""
    return summarise(
        pd.DataFrame(rows),
        timeline() if samples is None else samples,
        **{
            "opened_s": OPENED,
            "closed_s": CLOSED,
            "concurrency": 2,
            "output_tokens": CAP,
            "delta": delta or {},
            **values,
        },
    )
