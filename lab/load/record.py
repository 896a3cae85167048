"""The table of requests: one row for every request that was sent, whatever became of it.

Without a row for failed and aborted requests their tokens and their share of the concurrency vanish, and the
trial looks better than it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lab import files
from lab.load.answer import Answer, Fault

SCHEMA = pa.schema(
    [
        ("request", pa.int32()),
        ("client", pa.int32()),
        ("prompt", pa.int32()),
        ("phase", pa.string()),
        ("max_tokens", pa.int32()),
        ("sent_s", pa.float64()),
        ("first_token_s", pa.float64()),
        ("end_s", pa.float64()),
        ("prompt_tokens", pa.int32()),
        ("cached_tokens", pa.int32()),
        ("output_tokens", pa.int32()),
        ("tokens_source", pa.string()),
        ("draft_tokens", pa.int32()),
        ("draft_accepted", pa.int32()),
        ("finish_reason", pa.string()),
        ("status", pa.int32()),
        ("error", pa.string()),
        ("error_text", pa.string()),
        ("chunk_s", pa.list_(pa.float64())),
        ("chunk_tokens", pa.list_(pa.int32())),
    ]
)


@dataclass
class Request:
    """One request. `phase` follows from the time of its send; `max_tokens` is the cap it asked for.

    `error` is None for a complete answer, `aborted` for one that the client closed after the window, else the
    Fault's kind.
    """

    request: int
    client: int
    prompt: int
    max_tokens: int
    sent_s: float
    answer: Answer
    end_s: float | None = None
    status: int | None = None
    fault: Fault | None = None

    def row(self, opened_s: float | None, closed_s: float | None) -> dict:
        """The request as a row of SCHEMA."""
        answer = self.answer
        return {
            "request": self.request,
            "client": self.client,
            "prompt": self.prompt,
            "phase": phase(self.sent_s, opened_s, closed_s),
            "max_tokens": self.max_tokens,
            "sent_s": self.sent_s,
            "first_token_s": answer.first_token_s,
            "end_s": self.end_s,
            "prompt_tokens": answer.prompt_tokens,
            "cached_tokens": answer.cached_tokens,
            "output_tokens": answer.output_tokens,
            "tokens_source": answer.tokens_source,
            "draft_tokens": answer.draft_tokens,
            "draft_accepted": answer.draft_accepted,
            "finish_reason": answer.finish_reason,
            "status": self.status,
            "error": self.fault.kind if self.fault else None,
            "error_text": self.fault.text if self.fault else None,
            "chunk_s": answer.chunk_s,
            "chunk_tokens": answer.chunk_tokens,
        }


def phase(sent_s: float, opened_s: float | None, closed_s: float | None) -> str:
    """`warmup`, `window` or `drain`: when in the trial a request was sent."""
    if opened_s is None or sent_s < opened_s:
        return "warmup"
    return "window" if closed_s is None or sent_s < closed_s else "drain"


def write(rows: list[dict], path: Path) -> None:
    """Write the rows to `path` in one step; raises DiskFullError or InputError."""
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), buffer)
    files.write_bytes(path, buffer.getvalue().to_pybytes())
