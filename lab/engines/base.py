"""What every serving engine must be able to do, and the words in which it answers.

Without one contract each lever would ask each engine in its own way, and "it is applied" would mean something
else every time. A new engine is one file: a subclass of `Engine` under `@register`, and a subclass of
`Server`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from lab.errors import LabError
from lab.hosts import Exit, Process
from lab.secrets import redacted

if TYPE_CHECKING:
    from lab.campaign import Arm, Limits

__all__ = [
    "ArmFailed",
    "Capabilities",
    "Engine",
    "Exit",
    "Fact",
    "Failure",
    "Sample",
    "Server",
    "register",
]

REGISTERED: dict[str, Engine] = {}


@dataclass(frozen=True)
class Fact:
    """One thing the server said of itself, and where; `value` None: it was looked for there and not said."""

    value: Any
    source: str


@dataclass(frozen=True)
class Failure:
    """Why an arm did not start or died: the engine's own words, more of its log.

    kind: out-of-memory, bad-flag, missing-checkpoint, port-in-use, unsupported, start-timeout, crashed, unresponsive.
    """

    kind: str
    reason: str
    detail: str = ""


class ArmFailed(LabError):
    """A server did not come up, or died; `failure` says why."""

    def __init__(self, arm: str, failure: Failure) -> None:
        super().__init__(f"arm '{arm}' failed ({failure.kind}): {failure.reason}")
        self.failure = failure


@dataclass(frozen=True)
class Sample:
    """The server's own account at one instant; what it does not count is None, or no key of `counters`.

    running, waiting: requests, summed over data-parallel ranks; kv_usage: share of the cache in use, 0 to 1, of the
    fullest rank; running_by_rank: one value a data-parallel rank, empty where there is one. Counters only grow, so
    take differences: prompt_tokens (computed, cached ones excluded), cached_tokens, output_tokens, requests_finished
    (aborted ones excluded), requests_aborted, decode_steps, drafts (verification steps), draft_tokens,
    draft_accepted, draft_accepted_at_<position>, prefix_queries and prefix_hits (tokens), preemptions, graph_steps,
    eager_steps.
    """

    running: float | None
    waiting: float | None
    kv_usage: float | None
    counters: dict[str, float] = field(default_factory=dict)
    running_by_rank: tuple[float, ...] = ()


@dataclass(frozen=True)
class Capabilities:
    """What a lever may ask before it proposes a treatment.

    devices: how many accelerators (or CPUs taken as one) a server of this engine spreads over; collectives:
    whether they talk through a collective library; graph_mechanism: what plays the part of CUDA graphs, None
    without one; speculative_methods and kv_dtypes: words the engine's flags accept.
    """

    devices: int
    collectives: bool
    graph_mechanism: str | None = None
    speculative_methods: tuple[str, ...] = ()
    kv_dtypes: tuple[str, ...] = ()


class Server(ABC):
    """One running server; a context manager that stops it.

    url: base address; model: the name its API answers to; pid: the server process itself; argv, env: the full
    command and what the arm set, without secrets; started_at: ISO time in UTC; ready_seconds: until the first
    completion; time_factor: server seconds in one real second, more than one only on a simulated server.
    """

    time_factor: float = 1.0

    def __init__(
        self, url: str, model: str, process: Process, argv: list[str], env: Mapping[str, str], log: Path
    ) -> None:
        self.url = url
        self.model = model
        self.pid = process.pid
        self.argv = argv
        self.env = redacted(env)
        self.started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        self.ready_seconds: float | None = None
        self.exit: Exit | None = None
        self._process = process
        self._log = log

    @abstractmethod
    def describe(self) -> dict[str, Fact]:
        """The effective state, as resolved; raises requests.RequestException without an answer."""

    @abstractmethod
    def sample(self) -> Sample:
        """One reading of gauges and counters; raises requests.RequestException without an answer."""

    def log_text(self) -> str:
        """Everything the server has written so far."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def alive(self) -> bool:
        """Whether the server process has not ended."""
        return self._process.alive()

    def stop(self) -> Exit:
        """End the server and all its processes; the same answer however often it is called."""
        if self.exit is None:
            self.exit = self._process.stop()
        return self.exit

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Engine(ABC):
    """A kind of server: how to check, launch and talk to it. Knows nothing of levers."""

    name: ClassVar[str]
    chunk_tokens_path: ClassVar[tuple[str, ...] | None] = None
    """Where a stream chunk carries the running count of generated tokens; None: nowhere."""
    live_counters: ClassVar[frozenset[str]] = frozenset()
    """Counters that move while requests run; the others move when a request ends."""
    shown_by: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Flag or variable → `describe()` keys that show its effective value; others cannot be proven."""

    @abstractmethod
    def capabilities(self) -> Capabilities:
        """What this engine can do at all."""

    @abstractmethod
    def check(self, arm: Arm) -> None:
        """Raise InputError (one line: arm, field, what to do) for what is certain to fail; start nothing."""

    def check_all(self, arms: Iterable[Arm]) -> None:
        """`check` for several arms, in one go where a check is costly; raises the first InputError."""
        for arm in arms:
            self.check(arm)

    @abstractmethod
    def build(self, arm: Arm) -> str:
        """Which build would serve this arm, known without starting a server; equal for equal software."""

    @abstractmethod
    def launch(self, arm: Arm, folder: Path, limits: Limits, marker: str) -> Server:
        """Start a server and wait until it has completed a request.

        `folder` receives server.log; LAB_LAUNCH=`marker` is in the server's environment. Raises ArmFailed
        when it exits or is not ready within `limits.start_seconds`, InputError when it cannot even be tried.
        """

    @abstractmethod
    def failure(self, log: str, code: int | None) -> Failure:
        """Why a server ended, from its log and its exit code: the engine's own words for the root cause."""

    def request_extras(self) -> dict[str, Any]:
        """Body fields that every measured request carries (no prompt cache, counts in each chunk)."""
        return {}


def register(engine: type[Engine]) -> type[Engine]:
    """Class decorator: make an engine known under its `name`; a name taken twice is a mistake."""
    if engine.name in REGISTERED:
        raise ValueError(f"two engines are called {engine.name}")
    REGISTERED[engine.name] = engine()
    return engine
