"""Say which build of a package a Python would import: its version, and a digest of its files as they lie there.

Without it a build with patches has the version of the stock one, and the record of what was installed
(`dist-info/RECORD`) does not change when somebody edits a file in place.

Run by file path with the Python of the arm's runtime (standard library only; the package is found, not imported):

    python _fingerprint.py PACKAGE DISTRIBUTION,… [RELATED …]

Answers with one JSON line: {"version", "files", "digest", "related": {NAME: VERSION}}; version: that of the first
distribution that is installed, null without one; files: 0 and an empty digest when the package is not there. Files of
more than 8 MiB count by their size, first and last MiB, which hold a library's build id.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import sys
from pathlib import Path

MIB = 1024 * 1024
WHOLE_BYTES = 8 * MIB
_DIGITS = 12


def folders_of(package: str) -> list[Path]:
    """Where the package would be imported from; empty when it is not there."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return []
    return [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []


def digest_of(folders: list[Path]) -> tuple[int, str]:
    """How many files there are, and a digest of their names and content; compiled Python is left out."""
    total, count = hashlib.sha256(), 0
    for folder in folders:
        for where, names, files in os.walk(folder):
            names[:] = sorted(name for name in names if name != "__pycache__")
            for name in sorted(files):
                path = Path(where) / name
                if path.is_file() and path.suffix != ".pyc":
                    total.update(f"{path.relative_to(folder)}\0{content_of(path)}\n".encode())
                    count += 1
    return count, total.hexdigest()[:_DIGITS] if count else ""


def content_of(path: Path) -> str:
    """A digest of a file's content, of a large one's size and ends."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        if size <= WHOLE_BYTES:
            return hashlib.file_digest(stream, "sha256").hexdigest()
        ends = hashlib.sha256(stream.read(MIB))
        stream.seek(size - MIB)
        ends.update(stream.read(MIB))
    return f"{size}:{ends.hexdigest()}"


def version_of(distributions: list[str]) -> str | None:
    """The version of the first of these that is installed."""
    for name in distributions:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def main(package: str, distributions: str, related: list[str]) -> None:
    """Print the answer."""
    count, digest = digest_of(folders_of(package))
    versions = {name: version for name in related if (version := version_of([name]))}
    told = {"version": version_of(distributions.split(",")), "files": count, "digest": digest, "related": versions}
    print(json.dumps(told))


if __name__ == "__main__":
    sys.path.pop(0)  # this script's folder holds modules called like the engines
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
