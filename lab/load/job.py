"""The job of one client process: what to send, where, how often and for how long.

Without one description the owner and the client process would each have their own idea of a trial, and a list of
long prompts would have to pass through a pipe, and be parsed, before the first byte is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson


class Lines(Sequence):
    """The items of a JSON-lines file, each parsed when it is asked for."""

    def __init__(self, path: Path) -> None:
        self._lines = path.read_bytes().splitlines()

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return orjson.loads(self._lines[index])


@dataclass(frozen=True)
class Job:
    """What one of `processes` client processes offers; all seconds are real ones.

    items: prompts in the order of sending, each with `messages`, `text` or `input_ids`, and perhaps `max_tokens`
    (else `output_tokens`) and `at_s`; sampling and extras: body fields of every request; concurrency: clients, or
    client slots of an open loop, over all processes; time_factor: server seconds in one real second, by which the
    client shortens its own pauses; headers may hold a secret and are shown nowhere.
    """

    server_url: str
    model: str
    items: Sequence[dict[str, Any]]
    concurrency: int
    output_tokens: int
    warmup_seconds: float
    seconds: float
    stall_seconds: float
    drain_seconds: float
    requests_path: Path
    api: str = "chat"
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    sampling: dict[str, Any] = field(default_factory=dict)
    extras: dict[str, Any] = field(default_factory=dict)
    tokens_path: tuple[str, ...] | None = None
    arrivals: str = "closed"
    rate_rps: float | None = None
    salt: str = ""
    time_factor: float = 1.0
    process: int = 0
    processes: int = 1

    @classmethod
    def read(cls, line: bytes) -> Job:
        """The job of a JSON line, whose `items` are a list or the path of a JSON-lines file."""
        values = orjson.loads(line)
        if isinstance(values["items"], str):
            values["items"] = Lines(Path(values["items"]))
        if values.get("tokens_path"):
            values["tokens_path"] = tuple(values["tokens_path"])
        return cls(**values | {"requests_path": Path(values["requests_path"])})

    @property
    def clients(self) -> range:
        """The clients of this process, by their number over all processes."""
        return range(self.process, self.concurrency, self.processes)
