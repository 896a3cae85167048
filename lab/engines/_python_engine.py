"""What vLLM and SGLang have in common as engines: a Python package, a command line, a Hugging Face checkpoint.

Without it each of the two would check flags, pick ports and tell builds apart in its own way, and only one of them
would try again when somebody else took the port.
"""

from __future__ import annotations

import os
import socket
import time
from abc import abstractmethod
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from lab.engines import _hf_checkpoint, _options, _runtime
from lab.engines._options import Command, Options, Renamed
from lab.engines._readiness import Start
from lab.engines._runtime import Packaged
from lab.engines.base import ArmFailed, Capabilities, Engine
from lab.engines.server import Fact, Server
from lab.errors import InputError
from lab.hosts import LocalHost, Process
from lab.observe.gpus import local_gpus
from lab.secrets import redacted

if TYPE_CHECKING:
    from lab.campaign import Arm, Limits
    from lab.checkpoints import Checkpoint
    from lab.roofline.model import Model

PORT_TRIES = 3
"""How often a port is picked: between the pick and the server's own bind somebody else may take it."""


class PackagedServer(Server):
    """A server of such an engine; build: which one the lab started, None of somebody else's."""

    build: str | None = None

    def own_facts(self) -> dict[str, Fact]:
        """What the lab knows because it started the server; nothing of an attached one."""
        return {} if self.build is None else {"build": Fact(self.build, "package files in the server's Python")}


class PythonEngine(Engine):
    """An engine that is a Python package with a command line; a subclass names its parts."""

    server: ClassVar[type[PackagedServer]]
    packaged: ClassVar[Packaged]
    command: ClassVar[Command]
    """Its own command, asked for the options that it takes."""
    refused: ClassVar[Mapping[str, str]]
    """Flag → why an arm cannot set it."""
    renamed: ClassVar[tuple[Renamed, ...]]
    pinned: ClassVar[Mapping[str, Any]]
    """Flags that every server of the lab has, where the build takes them."""
    needed: ClassVar[Mapping[str, str]]
    """Variables that every server of the lab has, unless the arm sets them."""
    listens: ClassVar[tuple[str, ...]]
    """Words of the log once the server accepts requests."""
    speculative_methods: ClassVar[tuple[str, ...]]
    kv_dtypes: ClassVar[tuple[str, ...]]

    def capabilities(self) -> Capabilities:
        """What this machine's GPUs let it do; on processors there are neither graphs nor collectives to tune."""
        count = len(local_gpus(os.environ).describe())
        return Capabilities(
            devices=max(1, count),
            collectives=count > 1,
            graph_mechanism="CUDA graphs" if count else None,
            speculative_methods=self.speculative_methods,
            kv_dtypes=self.kv_dtypes,
        )

    def located(self, arm: Arm, folder: Path) -> Arm:
        """See `Engine.located`: a folder with config.json, or a model of the hub."""
        return arm.model_copy(update={"checkpoint": _hf_checkpoint.located(arm.checkpoint, folder)})

    def model_of(self, arm: Arm) -> tuple[Checkpoint, Model]:
        """See `Engine.model_of`."""
        return _hf_checkpoint.describe(arm.checkpoint)

    def build(self, arm: Arm) -> str:
        """Version, digest of the package's files, and versions of the libraries that it computes with."""
        return _runtime.build_of(arm, self.packaged)

    def check(self, arm: Arm) -> None:
        """Check checkpoint, runtime, variables and every flag against the options of the arm's own build.

        The engine is imported for it once a build (10 s and more), not started.
        """
        _hf_checkpoint.located(arm.checkpoint, Path.cwd())
        options = self._options(arm)
        try:
            options.check(arm.flags, self.refused, self.renamed)
            self.check_environment(arm.env, options)
        except InputError as error:
            raise InputError(f"arm '{arm.name}': {error}") from None

    def check_environment(self, env: Mapping[str, str], options: Options) -> None:
        """Raise InputError for a variable that this build does not read."""

    def caches(self, arm: Arm) -> dict[str, str]:
        """Variables of folders in which the engine keeps what it compiled and tuned for this arm."""
        return {}

    @abstractmethod
    def serving(self, checkpoint: str, name: str, port: int) -> tuple[list[str], dict[str, Any]]:
        """Words after the module, and flags: what is served, under which name, where."""

    def launch(self, arm: Arm, folder: Path, limits: Limits, marker: str) -> Server:
        """See `Engine.launch`; with another port where somebody else took the first."""
        options, build = self._options(arm), self.build(arm)
        started_s = time.monotonic()
        for left in reversed(range(PORT_TRIES)):
            server, process, url = self._started(arm, options, folder, marker)
            server.build = build
            address = partial(_address, url, self.listens)
            try:
                Start(arm.name, server, process, self.failure, started_s, limits.start_seconds, address).wait()
                return server
            except ArmFailed as error:
                if error.failure.kind != "port-in-use" or not left:
                    raise
        raise AssertionError("the last try returns or raises")

    def _started(self, arm: Arm, options: Options, folder: Path, marker: str) -> tuple[PackagedServer, Process, str]:
        """A server that begins to start, its process, and where it will listen."""
        python = _runtime.python_of(arm, self.packaged)
        checkpoint = _hf_checkpoint.located(arm.checkpoint, Path.cwd())
        name, port = _hf_checkpoint.label(checkpoint), _free_port()
        words, own = self.serving(checkpoint, name, port)
        pinned = {flag: value for flag, value in self.pinned.items() if options.find(flag)}
        flags, head = {**pinned, **arm.flags, **own}, [python, "-m", self.command.module, *words]
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / "server.log"
        log.unlink(missing_ok=True)
        env = self._environment(arm, python, checkpoint)
        shown = [*head, *options.arguments(redacted(flags))]
        process = LocalHost().start([*head, *options.arguments(flags)], env, log, marker)
        return self.server("", name, process, shown, arm.env, log), process, f"http://127.0.0.1:{port}"

    def _options(self, arm: Arm) -> Options:
        python, build = _runtime.python_of(arm, self.packaged), self.build(arm)
        version = _runtime.version_of(arm, self.packaged)
        env = _runtime.environment(arm, python, self.needed)
        known_by = [build, *(f"{name}={value}" for name, value in sorted({**self.needed, **arm.env}.items()))]
        return _options.ask(f"{self.name} {version}".strip(), self.command, python, env, known_by)

    def _environment(self, arm: Arm, python: str, checkpoint: str) -> dict[str, str]:
        """The server's whole environment; a checkpoint on this machine is served without asking the hub."""
        offline = {"HF_HUB_OFFLINE": "1"} if Path(checkpoint).is_dir() else {}
        return _runtime.environment(arm, python, {**self.needed, **self.caches(arm), **offline})


def _address(url: str, listens: tuple[str, ...], log: str) -> str:
    """Where to ask, once the log says that the server listens: before that another one may answer at the port."""
    return url if any(words in log for words in listens) else ""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
