"""The table of requests: one row for every request that was sent or fell due, whatever became of it.

Without a row for failed and aborted requests their tokens and their share of the concurrency vanish, and the
trial looks better than it was.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab import files
from lab.errors import InputError
from lab.load.answer import Answer
from lab.load.events import Fault
from lab.load.exchange import Exchange

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

ROWS = 8192
"""Requests a row group: so many become columns at once, which bounds the memory that writing takes."""


@dataclass(slots=True, eq=False)
class Request:
    """One request: what fell due, what was sent, and what became of it. Times are monotonic seconds.

    due_s: when it should have been sent; sent_s: when its bytes went out, None when they never did. `fault` is
    None for a complete answer, of kind `aborted` for one that the client closed after the window.
    """

    request: int
    client: int
    process: int
    prompt: int
    max_tokens: int
    due_s: float
    answer: Answer
    sent_s: float | None = None
    end_s: float | None = None
    status: int | None = None
    fault: Fault | None = None
    retry_after_s: float | None = None
    reused: bool | None = None

    def ended(self, exchange: Exchange, fault: Fault | None) -> None:
        """Take over what an exchange that has ended knows."""
        self.sent_s, self.end_s, self.status = exchange.sent_s, exchange.end_s, exchange.status
        self.retry_after_s, self.reused = exchange.retry_after_s, exchange.reused
        self.fault = fault


def phase(at_s: float, opened_s: float | None, closed_s: float | None) -> str:
    """`warmup`, `window` or `drain`: when in the trial a request was sent."""
    if opened_s is None or at_s < opened_s:
        return "warmup"
    return "window" if closed_s is None or at_s < closed_s else "drain"


def _of_fault(name: str) -> Callable[[Request], Any]:
    return lambda request: getattr(request.fault, name, None)


def _of_answer(path: str) -> Callable[[Request], Any]:
    """A figure of the answer; None for a request that was never sent."""
    get = attrgetter(path)
    return lambda request: None if request.sent_s is None else get(request.answer)


_COLUMNS: dict[str, tuple[str, Callable[[Request], Any] | None]] = {
    "request": ("int32", attrgetter("request")),
    "client": ("int32", attrgetter("client")),
    "process": ("int16", attrgetter("process")),
    "prompt": ("int32", attrgetter("prompt")),
    "phase": ("string", None),
    "max_tokens": ("int32", attrgetter("max_tokens")),
    "due_s": ("float64", attrgetter("due_s")),
    "sent_s": ("float64", attrgetter("sent_s")),
    "first_event_s": ("float64", _of_answer("first_event_s")),
    "first_token_s": ("float64", _of_answer("first_token_s")),
    "end_s": ("float64", attrgetter("end_s")),
    "prompt_tokens": ("int32", _of_answer("totals.prompt_tokens")),
    "cached_tokens": ("int32", _of_answer("totals.cached_tokens")),
    "output_tokens": ("int32", _of_answer("output_tokens")),
    "reasoning_tokens": ("int32", _of_answer("totals.reasoning_tokens")),
    "reasoning_seen": ("bool", _of_answer("reasoning_seen")),
    "first_chunk_tokens": ("int32", _of_answer("first_chunk_tokens")),
    "tokens_source": ("string", _of_answer("tokens_source")),
    "draft_tokens": ("int32", _of_answer("totals.draft_tokens")),
    "draft_accepted": ("int32", _of_answer("totals.draft_accepted")),
    "finish_reason": ("string", _of_answer("finish_reason")),
    "status": ("int32", attrgetter("status")),
    "error": ("string", _of_fault("kind")),
    "error_text": ("string", _of_fault("text")),
    "retry_after_s": ("float64", attrgetter("retry_after_s")),
    "reused": ("bool", attrgetter("reused")),
    "repeats": ("bool", _of_answer("repeats")),
    "server_queue_s": ("float64", _of_answer("totals.server_queue_s")),
    "server_prefill_s": ("float64", _of_answer("totals.server_prefill_s")),
    "server_decode_s": ("float64", _of_answer("totals.server_decode_s")),
    "server_e2e_s": ("float64", _of_answer("totals.server_e2e_s")),
    "server_started_s": ("float64", _of_answer("totals.server_started_s")),
    "server_finished_s": ("float64", _of_answer("totals.server_finished_s")),
    "chunk_s": ("list<float64>", attrgetter("answer.chunk_s")),
    "chunk_tokens": ("list<int32>", attrgetter("answer.chunk_tokens")),
}
_FLAT = {"list<float64>": ("float64", "d"), "list<int32>": ("int32", "i")}


def schema() -> pa.Schema:
    """Names and types of the table, in order."""
    import pyarrow as pa

    types = {
        name: pa.list_(pa.type_for_alias(_FLAT[kind][0])) if kind in _FLAT else pa.type_for_alias(kind)
        for name, (kind, _) in _COLUMNS.items()
    }
    return pa.schema(list(types.items()))


def write(requests: Sequence[Request], opened_s: float | None, closed_s: float | None, path: Path) -> None:
    """Write the requests of one process to `path` in one step; raises DiskFullError or InputError.

    A request that was never sent has the phase of the time at which it fell due, and no figures.
    """

    def batches() -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for start in range(0, len(requests), ROWS):
            part = requests[start : start + ROWS]
            phases = [phase(r.due_s if r.sent_s is None else r.sent_s, opened_s, closed_s) for r in part]
            columns = [
                pa.array(phases) if get is None else _column([get(request) for request in part], kind)
                for kind, get in _COLUMNS.values()
            ]
            yield pa.record_batch(columns, schema=schema())

    _write(batches(), path)


def merge(paths: Sequence[Path], path: Path) -> None:
    """One table of the tables of several client processes, each in order of its request numbers, in that order too.

    Raises InputError naming a table that cannot be read, DiskFullError or InputError when `path` cannot be written.
    """
    _write(_merged([_batches(one) for one in paths]), path)


def _merged(sources: list[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """A batch of each source is at hand at most, and what comes before the end of every batch goes out."""
    import pyarrow as pa
    import pyarrow.compute as pc

    waiting = schema().empty_table()
    reached = {source: -1 for source in sources}
    while reached:
        source = min(reached, key=reached.get)
        batch = next(source, None)
        if batch is None:
            del reached[source]
        elif len(batch):
            waiting = pa.concat_tables([waiting, pa.table(batch)])
            reached[source] = pc.max(batch.column("request")).as_py()
        ripe = pc.less_equal(waiting.column("request"), min(reached.values(), default=2**31 - 1))
        yield from waiting.filter(ripe).sort_by("request").combine_chunks().to_batches()
        waiting = waiting.filter(pc.invert(ripe)).combine_chunks()


def read(path: Path) -> pd.DataFrame:
    """The table as pandas reads it, except that lists are slices of one numpy array, not copies.

    Raises InputError when there is no such table or it cannot be read.
    """
    import numpy as np
    import pandas as pd

    table = _table(path).combine_chunks()
    columns = {}
    for name, (kind, _) in _COLUMNS.items():
        column = table.column(name)
        if kind not in _FLAT:
            columns[name] = column.to_pandas()
            continue
        slices = np.empty(len(column), dtype=object)
        done = 0
        for chunk in column.chunks:
            offsets = chunk.offsets.to_numpy()
            values = chunk.values.to_numpy()
            slices[done : done + len(chunk)] = [values[a:b] for a, b in pairwise(offsets)]
            done += len(chunk)
        columns[name] = pd.Series(slices, dtype=object)
    return pd.DataFrame(columns)


def _column(values: list[Any], kind: str) -> pa.Array:
    import pyarrow as pa

    if kind not in _FLAT:
        return pa.array(values, pa.type_for_alias(kind))
    alias, code = _FLAT[kind]
    flat = array(code)
    for value in values:
        flat.extend(value)
    offsets = array("i", accumulate(map(len, values), initial=0))
    items = pa.Array.from_buffers(pa.type_for_alias(alias), len(flat), [None, pa.py_buffer(flat)])
    return pa.ListArray.from_arrays(
        pa.Array.from_buffers(pa.int32(), len(offsets), [None, pa.py_buffer(offsets)]), items
    )


def _write(batches: Iterable[pa.RecordBatch], path: Path) -> None:
    """One row group a batch. The bytes of a time differ least from those of the next when they are sorted by place."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = pa.BufferOutputStream()
    times = [name for name, (kind, _) in _COLUMNS.items() if "float64" in kind]
    places = {name: "BYTE_STREAM_SPLIT" for name in times if name != "chunk_s"}
    with pq.ParquetWriter(
        buffer,
        schema(),
        compression="zstd",
        use_dictionary=[name for name in _COLUMNS if name not in times and name != "chunk_s"],
        column_encoding=places | {"chunk_s.list.element": "BYTE_STREAM_SPLIT"},
    ) as writer:
        for batch in batches:
            writer.write_batch(batch)
    files.write_bytes(path, memoryview(buffer.getvalue()))


def _table(path: Path) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_batches(_batches(path), schema())


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                yield from file.read_row_group(group).cast(schema()).combine_chunks().to_batches()
    except (OSError, ValueError, pa.ArrowInvalid) as error:
        raise InputError(f"{path}: no table of requests ({error})") from error
