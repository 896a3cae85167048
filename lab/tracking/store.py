"""Which MLflow is written to: the one of MLFLOW_TRACKING_URI, or the project's own behind a server of its own.

Without a single server as the only writer, two clients migrate one SQLite file at once and break it for good;
without an owner, that server outlives everybody who knows of it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psutil
import requests

from lab.errors import InputError, LabError
from lab.files import make_folder, read_json, write_json, write_text
from lab.hosts import LocalHost, Process

HEALTH_SECONDS = 120.0
LOCK_SECONDS = 300.0
GRACE_SECONDS = 5.0  # less than the grace of a keeper that may hold this process in turn
PROBE_SECONDS = 10.0
LOOPBACK = "127.0.0.1"
QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true"}
SERVER_ENV = {**QUIET, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}


def shown(uri: str) -> str:
    """A tracking address without user name and password, fit to be printed."""
    parts = urlsplit(uri)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def scrubbed(text: str, uri: str) -> str:
    """The first line of a message without the secrets of the address that it may quote."""
    parts = urlsplit(uri)
    for secret in filter(None, (parts.netloc.rpartition("@")[0], parts.password)):
        text = text.replace(secret, "***")
    return text.strip().partition("\n")[0][:300]


@dataclass(frozen=True)
class Store:
    """An MLflow that answers: its address, and whether it goes on doing so after the publication."""

    uri: str
    lasting: bool


@contextlib.contextmanager
def opened(results: Path, meanwhile: Callable[[], object]) -> Iterator[Store]:
    """The MLflow to publish to, answering for as long as the block lasts.

    MLFLOW_TRACKING_URI when it is set; else the project's server when one runs (`lab ui`); else a server that ends
    with the block; `meanwhile` is called while that one starts. Raises LabError when nothing answers.
    """
    uri = os.environ.get("MLFLOW_TRACKING_URI")
    if uri:
        _probe(uri)
        yield Store(uri, lasting=True)
        return
    folder = results / "mlflow"
    with only_writer(folder):
        url = running(folder)
        if url:
            yield Store(url, lasting=True)
            return
        prepare(folder)
        process, url = start(folder, free_port())
        try:
            meanwhile()
            wait_healthy(process, url, folder)
            yield Store(url, lasting=False)
        finally:
            process.stop()


@contextlib.contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Hold the project's store; raises LabError when somebody else keeps it for five minutes."""
    make_folder(folder)
    with (folder / "lock").open("a") as stream:
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise LabError(f"{folder}: another `lab publish` is writing; try again when it ended") from None
                time.sleep(0.2)
        yield


def running(folder: Path) -> str | None:
    """The address of the project's server when `server.json` names one that lives and answers."""
    path = folder / "server.json"
    if not path.exists():
        return None
    server = read_json(path)
    return server["url"] if psutil.pid_exists(server["pid"]) and _healthy(server["url"]) else None


def record(folder: Path, process: Process, url: str) -> None:
    """Let others find the server while it runs."""
    write_json(folder / "server.json", {"pid": process.pid, "url": url})


def prepare(folder: Path) -> None:
    """Bring an older database to this MLflow's schema; call it only while holding the store.

    A new database is made by the server itself, which nobody else can race. Raises LabError when MLflow cannot
    migrate.
    """
    made_by, current = folder / "mlflow-version", version("mlflow")
    if _database(folder).exists() and (not made_by.exists() or made_by.read_text().strip() != current):
        argv = [sys.executable, "-m", "mlflow", "db", "upgrade", f"sqlite:///{_database(folder)}"]
        process = LocalHost().start(argv, _server_env(), folder / "server.log", f"mlflow-upgrade-{os.getpid()}")
        code = process.wait(HEALTH_SECONDS)
        process.stop()
        if code != 0:
            raise _unserved(folder, f"MLflow could not migrate its database: {_last_line(folder)}")
    write_text(made_by, f"{current}\n")


def start(folder: Path, port: int, host: str = LOOPBACK) -> tuple[Process, str]:
    """Start the project's server; it ends with this process. It is not ready yet."""
    argv = [sys.executable, "-m", "mlflow", "server", "--host", host, "--port", str(port), "--workers", "1"]
    argv += ["--backend-store-uri", f"sqlite:///{_database(folder)}"]
    argv += ["--artifacts-destination", str(folder.resolve() / "artifacts")]
    process = LocalHost().start(
        argv, _server_env(), folder / "server.log", f"mlflow-{os.getpid()}", grace_seconds=GRACE_SECONDS
    )
    return process, f"http://{host}:{port}"


def wait_healthy(process: Process, url: str, folder: Path) -> None:
    """Wait until the server answers; raises LabError when it ends first or takes more than two minutes."""
    deadline = time.monotonic() + HEALTH_SECONDS
    while not _healthy(url):
        if not process.alive():
            raise _unserved(folder, f"the MLflow server ended: {_last_line(folder)}")
        if time.monotonic() > deadline:
            raise _unserved(folder, f"the MLflow server did not answer within {HEALTH_SECONDS:.0f} s")
        time.sleep(0.1)


def _unserved(folder: Path, what: str) -> LabError:
    advice = f"see {folder / 'server.log'}; {folder} is a copy: delete it and run `lab publish` to rebuild it"
    return LabError(f"{what}; {advice}")


def free_port() -> int:
    """A loopback port that is free now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return probe.getsockname()[1]


def require_free(host: str, port: int) -> None:
    """Raise InputError when somebody listens on the port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"port {port} on {host} cannot be used ({reason}); choose another: --port") from error


def _probe(uri: str) -> None:
    """Find out in seconds, not after MLflow's retries, that nobody listens."""
    if not uri.startswith(("http://", "https://")):
        return
    try:
        requests.get(f"{uri.rstrip('/')}/health", timeout=PROBE_SECONDS)
    except requests.RequestException as error:
        raise unanswered(uri, error) from error


def unanswered(uri: str, error: Exception) -> LabError:
    """The house's error for an MLflow that does not do its part."""
    reason = "connection refused" if "refused" in str(error) else scrubbed(str(error), uri)
    return LabError(f"MLflow at {shown(uri)} did not answer: {reason}; the results are safe; run `lab publish` later")


def _healthy(url: str) -> bool:
    try:
        return requests.get(f"{url}/health", timeout=PROBE_SECONDS).ok
    except requests.RequestException:
        return False


def _database(folder: Path) -> Path:
    return folder.resolve() / "mlflow.db"


def _server_env() -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
    return {**inherited, **SERVER_ENV}


def _last_line(folder: Path) -> str:
    lines = (folder / "server.log").read_text(errors="replace").split("\n")
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "no output")
