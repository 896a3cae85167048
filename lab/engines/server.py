"""One server that runs: what it says of itself, what it counts, and how it ends.

Without one form of these answers each check would ask each engine in its own way, and an attached server, which has no
process and no log here, would be a special case everywhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Self

import requests

from lab.engines._control import Control
from lab.hosts import Exit, Process
from lab.secrets import redacted


@dataclass(frozen=True)
class Fact:
    """One thing the server said of itself, and where; `value` None: it was looked for there and not said."""

    value: Any
    source: str


@dataclass(frozen=True)
class Sample:
    """The server's own account at one instant; what it does not count is None, or no key of `counters`.

    running, waiting: requests, summed over data-parallel ranks; kv_usage: share of the cache in use, 0 to 1, of the
    fullest rank; running_by_rank: one value a data-parallel rank, empty where there is one. Counters only grow, so
    take differences: prompt_tokens (computed, cached ones excluded), cached_tokens, output_tokens, requests_finished
    (aborted ones excluded), requests_aborted, decode_steps, drafts (verification steps), draft_tokens,
    draft_accepted, draft_accepted_at_<position>, prefix_queries and prefix_hits (tokens), preemptions, estimated_flops,
    estimated_read_bytes and estimated_write_bytes (a device, by the server's own model of its work), graph_steps,
    eager_steps.
    """

    running: float | None
    waiting: float | None
    kv_usage: float | None
    counters: dict[str, float] = field(default_factory=dict)
    running_by_rank: tuple[float, ...] = ()


class Server(ABC):
    """One running server; a context manager that stops it, if the lab started it.

    Launched by the lab: it has a process and a log. Attached (`process` None): somebody else's, reached by its URL;
    pid, started_at and ready_seconds are None, its log is empty, and nothing here ends it.

    url: base address; model: the name its API answers to; headers: sent with every request to it (may hold a key: never
    recorded, never shown); pid: the server process itself; argv, env: the full command and what the arm set, without
    secrets; started_at: ISO time in UTC; ready_seconds: until the first completion; missing: what this server does not
    show and how to switch it on; time_factor: server seconds in one real second, more than one only on a simulated
    server.
    """

    engine: ClassVar[str] = ""
    """The name of its `Reader`."""
    health_path: ClassVar[str] = "/health"
    """Answers 200 while the server can serve, at no cost to it."""
    time_factor: float = 1.0

    def __init__(
        self,
        url: str,
        model: str,
        process: Process | None = None,
        argv: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        log: Path | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.url = url
        self.model = model
        self.headers = dict(headers or {})
        self.pid = process.pid if process else None
        self.argv = list(argv)
        self.env = redacted(env or {})
        self.started_at = datetime.now(UTC).isoformat(timespec="milliseconds") if process else None
        self.ready_seconds: float | None = None
        self.exit: Exit | None = None
        self.missing: tuple[str, ...] = ()
        self._process = process
        self._log = log

    @abstractmethod
    def describe(self) -> dict[str, Fact]:
        """The effective state, as resolved; raises requests.RequestException without an answer."""

    @abstractmethod
    def sample(self) -> Sample:
        """One reading of gauges and counters; raises requests.RequestException without an answer."""

    def look(self) -> tuple[str, ...]:
        """Find out what an attached server does not show: texts for `missing`; one that the lab started shows all."""
        return ()

    @property
    def log(self) -> Path | None:
        """The file that the server writes to; None where it is out of reach."""
        return self._log

    @property
    def attached(self) -> bool:
        """Whether somebody else started it."""
        return self._process is None

    @property
    def control(self) -> Control:
        """Its control endpoints, under its present URL."""
        return Control(self.url, self.headers)

    def log_text(self) -> str:
        """Everything the server has written so far; empty where its log is out of reach."""
        return self._log.read_text(errors="replace") if self._log and self._log.exists() else ""

    def alive(self) -> bool:
        """Whether the server process has not ended; of an attached server, whether it says that it can serve."""
        return self._process.alive() if self._process else self.healthy()

    def healthy(self) -> bool:
        """Whether the server says that it can serve, which is less than a completion."""
        try:
            return bool(self.url) and self.control.get(self.health_path).status_code == requests.codes.ok
        except requests.RequestException:
            return False

    def reset_cache(self) -> bool:
        """Forget the prompts it has kept; False where the engine offers no way, or refuses while requests run."""
        return False

    def stop(self) -> Exit | None:
        """End the server and all its processes; the same answer however often it is called. An attached one is left
        alone: None."""
        if self.exit is None and self._process:
            self.exit = self._process.stop()
        return self.exit

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
