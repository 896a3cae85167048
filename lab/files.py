"""Whole-file reads and writes.

Without write-then-rename a crash leaves half a record, and half a record is worse than none: it is believed.
"""

from __future__ import annotations

import difflib
import errno
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lab.errors import DiskFullError, InputError

SHOWN_LETTERS = 80  # of a name in a message


def write_text(path: Path, text: str) -> None:
    """Replace `path` with `text` in one step; raises DiskFullError or InputError (folder not writable)."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Replace `path` with `data` in one step, so that readers see the old file or the new one."""
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        temporary = Path(name)
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise explain_os_error(error, path) from error


def explain_os_error(error: OSError, path: Path) -> Exception:
    """The house's error for a failed write, with the path and what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError(f"{path}: disk full; free some space, then continue with --resume")
    return InputError(f"{path}: cannot be written ({error.strerror}); make it writable or set LAB_RESULTS, LAB_CACHE")


def dumps(value: Any) -> str:
    """JSON as the records hold it: sorted keys, two spaces, no NaN."""
    return json.dumps(value, indent=2, sort_keys=True, allow_nan=False, default=str) + "\n"


def make_folder(folder: Path) -> None:
    """Make a folder and its parents; raises DiskFullError or InputError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise explain_os_error(error, folder) from error


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON in one step; raises ValueError on NaN or infinity (missing is None)."""
    write_text(path, dumps(value))


def read_json(path: Path) -> Any:
    """Read JSON; raises InputError naming the file when it is absent or damaged."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from error


def sha256_text(text: str) -> str:
    """Hex SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def digest(value: Any) -> str:
    """Twelve hex digits that name a JSON value, whatever the order of its keys."""
    return sha256_text(json.dumps(value, sort_keys=True, default=str))[:12]


def sha256_file(path: Path) -> str:
    """Hex SHA-256 of a file, read in blocks."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def cache_dir() -> Path:
    """Where fetched and made checkpoints, probes and locks are kept: $LAB_CACHE or the user's cache folder."""
    override = os.environ.get("LAB_CACHE")
    if override:
        return Path(override)
    import platformdirs

    return Path(platformdirs.user_cache_dir("lever-lab"))


def typed_path(text: Path | str) -> Path:
    """A path as a person wrote it, `~` expanded, whether or not something is there.

    Raises InputError for what nothing can be called (empty, too long, with a NUL character, below the home of an
    unknown user) and for what may not be looked at.
    """
    name = str(text)
    if not name or "\0" in name:
        raise InputError(
            f"{quoted(name)}: {'is empty' if not name else 'holds a NUL character'}; give a name or a path"
        )
    try:
        path = Path(text).expanduser()
    except RuntimeError:
        raise InputError(f"{quoted(name)}: there is no such user, or no home folder of theirs") from None
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return path
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{quoted(name)}: cannot be looked at ({reason[:1].lower()}{reason[1:]})") from None
    return path


def printable(text: str) -> str:
    """The text with what cannot be printed escaped, so that a message stays one line."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def quoted(text: str) -> str:
    """A word for a message, in quotes: what cannot be printed is escaped, and of a long one the beginning is shown."""
    plain = printable(text[:SHOWN_LETTERS])
    return f"'{plain}'" if len(text) <= SHOWN_LETTERS else f"'{plain}…' ({len(text)} characters)"


def suggest(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the nearest known word in whatever case, or the list of what is known."""
    by_lower = {name.lower(): name for name in sorted(known)}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.5)
    return f"; did you mean '{by_lower[close[0]]}'?" if close else f"; known: {', '.join(by_lower.values())}"
