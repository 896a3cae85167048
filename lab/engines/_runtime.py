"""Which Python serves an arm, with which build of its engine, under which environment.

Without it a patched engine is measured as the stock one, and a variable that somebody exported in the shell steers both
arms without a trace in the record.

`runtime.python`: the interpreter; by default that of the folder that `Packaged.folder_variable` names, else this
one. `runtime.path`: folders, separated by `:`, that come first when it imports: a source tree with patches.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.errors import InputError

if TYPE_CHECKING:
    from lab.campaign import Arm

_SCRIPT = Path(__file__).with_name("_fingerprint.py")
_ASK_SECONDS = 120
_KNOWN = ("python", "path")
# Variables of the lab's own shell that would steer a server, or show it another Python's modules.
_STEERING = (
    "VLLM_",
    "SGLANG_",
    "SGL_",
    "NCCL_",
    "FLASHINFER_",
    "TRITON_",
    "TORCH",
    "PYTORCH_",
    "OMP_",
    "GOMP_",
    "KMP_",
)
_COLOURS = ("FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "PY_COLORS", "COLORTERM")  # a notebook's kernel sets them
_OF_PYTHON = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV", "LD_PRELOAD")


@dataclass(frozen=True)
class Packaged:
    """An engine that is a Python package.

    package: what is imported; distributions: names under which it is installed, the usual one first; related: further
    distributions whose versions make a build another one; folder_variable: names a folder with `venv/bin/python`.
    """

    engine: str
    package: str
    distributions: tuple[str, ...]
    related: tuple[str, ...]
    folder_variable: str


def expanded(text: str, field: str) -> str:
    """A path with `~` and `$VARIABLES` replaced; raises InputError for a variable that is not set."""
    done = os.path.expandvars(os.path.expanduser(text))  # noqa: PTH111 - `$X/…` is no path yet
    if "$" in done:
        name = done[done.index("$") + 1 :].strip("{").split("/")[0].rstrip("}")
        raise InputError(f"{field}: ${name} is not set; export it, or write the path out")
    return done


def python_of(arm: Arm, packaged: Packaged) -> str:
    """The Python that serves the arm; raises InputError where there is none that could."""
    for key in arm.runtime:
        if key == "image":
            raise InputError(f"arm '{arm.name}': runtime.image: the lab starts no containers; give python or path")
        if key not in _KNOWN:
            raise InputError(
                f"arm '{arm.name}': runtime '{key}' is not for {packaged.engine}; known: {', '.join(_KNOWN)}"
            )
    given = arm.runtime.get("python")
    place = os.environ.get(packaged.folder_variable)
    if given is not None:
        python, field = expanded(given, f"arm '{arm.name}': runtime.python"), "runtime.python"
    elif place:
        python, field = str(Path(place).resolve() / "venv/bin/python"), f"${packaged.folder_variable}"
    else:
        return sys.executable
    if not os.access(python, os.X_OK) or Path(python).is_dir():
        raise InputError(f"arm '{arm.name}': {field}: {python} is not an executable file; name a Python there")
    return str(Path(python).absolute())  # a virtual environment is known by its link, so links stay


def path_of(arm: Arm) -> str:
    """What comes first on the import path: `runtime.path`, then the arm's own PYTHONPATH; raises InputError."""
    given = arm.runtime.get("path")
    if given is None:
        return arm.env.get("PYTHONPATH", "")
    field = f"arm '{arm.name}': runtime.path"
    places = [str(Path(place).resolve()) for place in expanded(given, field).split(os.pathsep)]
    for place in places:
        if not Path(place).is_dir():
            raise InputError(f"{field}: {place} is not a folder; name the one that holds the package")
    own = arm.env.get("PYTHONPATH")
    return os.pathsep.join([*places, own] if own else places)


def environment(arm: Arm, python: str, needed: Mapping[str, str]) -> dict[str, str]:
    """This process's variables without those that steer a server, what the engine needs, then the arm's own."""
    inherited = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(_STEERING) and key not in _OF_PYTHON and key not in _COLOURS
    }
    search = os.pathsep.join([str(Path(python).parent), inherited.get("PATH", os.defpath)])
    found = {**inherited, "PATH": search, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1", **needed, **arm.env}
    path = path_of(arm)
    return {**found, "PYTHONPATH": path} if path else found


def build_of(arm: Arm, packaged: Packaged) -> str:
    """Engine, version, digest of its files and versions of what it computes with; equal for equal software.

    Raises InputError where the engine is not installed.
    """
    told = _asked(python_of(arm, packaged), path_of(arm), packaged)
    if not told["files"]:
        python = python_of(arm, packaged)
        raise InputError(
            f"arm '{arm.name}': {python} has no {packaged.package}; set runtime: {{python: …}} to one that has, or "
            f"${packaged.folder_variable} to a folder that tests/live/setup/{packaged.engine}_cpu.sh made"
        )
    related = "".join(f", {name} {version}" for name, version in sorted(told["related"].items()))
    return f"{packaged.engine} {told['version'] or 'of unknown version'}, files {told['digest']}{related}"


def version_of(arm: Arm, packaged: Packaged) -> str:
    """The version of the engine that is installed for the arm, as its metadata say; empty where they do not."""
    return _asked(python_of(arm, packaged), path_of(arm), packaged)["version"] or ""


@cache
def _asked(python: str, path: str, packaged: Packaged) -> dict[str, Any]:
    """The fingerprint script's answer; once a process, since thousands of files are read."""
    command = [python, str(_SCRIPT), packaged.package, ",".join(packaged.distributions), *packaged.related]
    env = {key: value for key, value in os.environ.items() if key not in _OF_PYTHON}
    if path:
        env["PYTHONPATH"] = path
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=_ASK_SECONDS, check=False)
        return json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"runtime.python {python} cannot be asked for its packages: {error}") from error
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise InputError(f"runtime.python {python} cannot be asked for its packages: {last}") from None
