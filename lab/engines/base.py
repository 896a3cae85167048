"""What every serving engine must be able to do, and the words in which it answers.

Without one contract each lever would ask each engine in its own way, and "it is applied" would mean something
else every time. A new engine is one file: a subclass of `Engine` under `@register`, and a subclass of
`lab.engines.server.Server`. Servers that the lab can look into but not start have a `Reader` only, under
`@register_reader`: a campaign cannot name them, `lab.engines.attach` finds them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from lab.engines.server import Server
from lab.errors import LabError

if TYPE_CHECKING:
    from lab.campaign import Arm, Limits
    from lab.checkpoints import Checkpoint
    from lab.roofline.model import Model

REGISTERED: dict[str, Engine] = {}
"""Engines that the lab can start, by name."""
READERS: dict[str, Reader] = {}
"""All kinds of server that the lab can look into, by name; the ones it can start among them."""


@dataclass(frozen=True)
class Failure:
    """Why an arm did not start or died: the engine's own words, more of its log.

    kind: out-of-memory, bad-flag, missing-checkpoint, port-in-use, unsupported, nccl, shared-memory, missing-cubin,
    hang, start-timeout, crashed, unresponsive;
    healthy: its health check answered although no completion came, None: not asked.
    """

    kind: str
    reason: str
    detail: str = ""
    healthy: bool | None = None


class ArmFailed(LabError):
    """A server did not come up, or died; `failure` says why."""

    def __init__(self, arm: str, failure: Failure) -> None:
        super().__init__(f"arm '{arm}' failed ({failure.kind}): {failure.reason}")
        self.failure = failure


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


class Reader(ABC):
    """How to recognise, read and talk to a running server of one kind; it knows nothing of starting one."""

    name: ClassVar[str]
    server: ClassVar[type[Server]]
    """What an attached server of this kind is."""
    metrics_prefix: ClassVar[str] = ""
    """What the names on its /metrics page begin with."""
    owned_by: ClassVar[str] = ""
    """Its word in `owned_by` of /v1/models."""
    own_page: ClassVar[tuple[str, str]] = ("", "")
    """A path that only this kind answers with a JSON object, and a key of that object."""
    apis: ClassVar[tuple[str, ...]] = ("chat", "completions")
    """The request dialects it speaks: chat, completions, generate (SGLang's own), llamacpp (its own)."""
    chunk_tokens_path: ClassVar[tuple[str, ...] | None] = None
    """Where a chunk of its OpenAI streams carries the running count of generated tokens; None: nowhere."""
    window_tokens_source: ClassVar[str] = ""
    """In words: where the number of tokens emitted inside a window comes from."""
    simulated: ClassVar[bool] = False
    """Whether its figures say nothing about a machine."""
    live_counters: ClassVar[frozenset[str]] = frozenset()
    """Counters that move while requests run; the others move when a request ends."""

    def request_extras(self, api: str = "chat") -> dict[str, Any]:
        """Body fields that every measured request of that API carries (no prompt cache, counts in each chunk)."""
        return {}

    def attach(self, url: str, model: str, headers: Mapping[str, str] | None = None) -> Server:
        """A server that somebody else runs; raises requests.RequestException when it does not answer."""
        server = self.server(url, model, headers=headers)
        server.missing = server.look()
        return server


class Engine(Reader):
    """A kind of server that the lab can start: how to check and launch it. Knows nothing of levers."""

    shown_by: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Flag or variable → `describe()` keys that show its effective value; others cannot be proven."""
    leaves_gpus_alone: ClassVar[bool] = False
    """Whether its servers compute on processors even where there are GPUs."""

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

    def located(self, arm: Arm, folder: Path) -> Arm:
        """The arm with its checkpoint found; relative paths start at `folder`. Raises InputError when it is missing."""
        from lab import checkpoints

        return arm.model_copy(update={"checkpoint": str(checkpoints.resolve(arm.checkpoint, folder))})

    def model_of(self, arm: Arm) -> tuple[Checkpoint, Model]:
        """The checkpoint of a located arm and the model in it; raises InputError when it cannot be read."""
        from lab import models

        return models.describe(Path(arm.checkpoint))

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


def register(engine: type[Engine]) -> type[Engine]:
    """Class decorator: make an engine known under its `name`; a name taken twice is a mistake."""
    register_reader(engine)
    REGISTERED[engine.name] = engine()
    return engine


def register_reader(reader: type[Reader]) -> type[Reader]:
    """Class decorator: make a kind of server known that the lab reads and cannot start; see `register`."""
    if reader.name in READERS:
        raise ValueError(f"two engines are called {reader.name}")
    READERS[reader.name] = reader()
    return reader
