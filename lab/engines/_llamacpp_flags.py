"""From an arm to what llama.cpp's launcher is given, and what is refused before anything starts.

Without it a misspelt flag would surface as "please check the input params" after the model was loaded, and
flags that the engine accepts and then serves wrongly (no slots, a draft model that is never used) would be
measured.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab import checkpoints
from lab.errors import InputError
from lab.files import suggest

if TYPE_CHECKING:
    from lab.campaign import Arm

SCRIPT = Path(__file__).with_name("_llamacpp_server.py")
_CHECK_SECONDS = 60

PINNED: dict[str, Any] = {
    "hostnames": ["127.0.0.1"],
    "port": 0,
    "fit_params": False,  # True may lower what was not set to fit the memory
    "cache_ram_mib": 0,  # no second prompt cache behind the slots
    "endpoint_metrics": True,
    "endpoint_slots": True,
    "verbosity": 4,  # cache, thread and batch lines need it
    "cors_origins": "",
    "ui": False,
    "offline": True,
    "n_threads": 1,
}
FRIENDLY: dict[str, tuple[str, ...]] = {
    "n_threads": (
        "cpuparams.n_threads",
        "cpuparams_batch.n_threads",
        "speculative.draft.cpuparams.n_threads",
        "speculative.draft.cpuparams_batch.n_threads",
    ),
    "flash_attn": ("flash_attn_type",),
    "speculative": ("speculative.types",),
    "draft_model": ("speculative.draft.mparams.path",),
}
REFUSED: dict[str, str] = {
    "model.path": "name the file in 'checkpoint'",
    "model_alias": "the lab names the model",
    "hostnames": "the lab's servers listen on 127.0.0.1 only",
    "api_keys": "the lab's servers listen on 127.0.0.1 only and need no key",
    "verbosity": "the lab reads the log at verbosity 4",
    "endpoint_metrics": "the lab reads /metrics",
    "endpoint_slots": "the lab reads /slots",
    "speculative.synth_len": "synthetic acceptance makes the output invalid",
    "speculative.synth_rates": "synthetic acceptance makes the output invalid",
}
_OWN_VARIABLES = ("LLAMA_", "GGML_", "OMP_", "GOMP_", "KMP_")
DRAFT = "speculative.draft.mparams.path"


def attributes(arm: Arm) -> dict[str, Any]:
    """Attribute path → value for the launcher: what the lab pins, then the arm's flags, exact paths last."""
    wanted: dict[str, Any] = {}
    for name, value in {**PINNED, **arm.flags}.items():
        for path in FRIENDLY.get(name, ()):
            wanted[path] = value
    exact = {name: value for name, value in {**PINNED, **arm.flags}.items() if name not in FRIENDLY}
    return {**wanted, **exact}


def environment(arm: Arm) -> dict[str, str]:
    """This process's environment without variables that steer the engine, plus the arm's own."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(_OWN_VARIABLES)}
    return {**inherited, **arm.env}


def python_of(arm: Arm) -> str:
    """The Python that serves the arm: `runtime.python`, else this one; raises InputError if it cannot run."""
    unknown = [key for key in arm.runtime if key != "python"]
    if unknown:
        raise InputError(f"arm '{arm.name}': runtime '{unknown[0]}' is not for llamacpp; known: python")
    python = arm.runtime.get("python", sys.executable)
    if not os.access(python, os.X_OK):
        raise InputError(f"arm '{arm.name}': runtime.python {python} is not an executable file")
    return python


# The engine accepts other values of these, and then replaces them or dies at the first request.
COUNTS = {"n_ctx", "n_batch", "n_ubatch", "n_threads", "cpuparams.n_threads", "cpuparams_batch.n_threads"}


def check_values(arm: Arm) -> None:
    """Raise InputError for what the engine would accept and then serve wrongly, and for a port in use."""
    for flag, why in REFUSED.items():
        if flag in arm.flags:
            raise InputError(f"arm '{arm.name}': flag '{flag}' is refused: {why}")
    for name in COUNTS & arm.flags.keys():
        count = arm.flags[name]
        if isinstance(count, int) and count < 1:
            raise InputError(f"arm '{arm.name}': flag {name}: {count} is not a count; use 1 or more")
    slots = arm.flags.get("n_parallel", 1)
    if isinstance(slots, int) and slots < 1:
        raise InputError(f"arm '{arm.name}': flag n_parallel: {slots} leaves no slot to serve a request; use 1 or more")
    wanted = attributes(arm)
    words = wanted.get("speculative.types", "none")
    drafts = any("draft" in str(word) for word in (words if isinstance(words, list) else [words]))
    draft = wanted.get(DRAFT)
    if drafts and not draft:
        raise InputError(f"arm '{arm.name}': flag speculative: {words} needs draft_model, or it serves without")
    if draft and not drafts:
        raise InputError(f"arm '{arm.name}': flag draft_model needs 'speculative: draft_simple', or it is never used")
    if draft:
        try:
            checkpoints.check(str(draft), Path.cwd())
        except InputError as error:
            raise InputError(f"arm '{arm.name}': flag draft_model: {error}") from error
    port = wanted["port"]
    if isinstance(port, int) and port and not _port_is_free(port):
        raise InputError(
            f"arm '{arm.name}': flag port: {port} is in use or out of range; leave it out to have one picked"
        )


def _port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            return False
    return True


def ask(python: str, candidates: list[dict[str, Any]]) -> list[dict[str, Any] | None]:
    """The launcher's verdict on flags, from the Python that would serve them."""
    command = [python, str(SCRIPT), "--check"]
    try:
        done = subprocess.run(
            command, input=json.dumps(candidates), capture_output=True, text=True, timeout=_CHECK_SECONDS
        )
        return json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"runtime.python {python} cannot check flags: {error}") from error
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        hint = f"; install it with: {python} -m pip install xllamacpp" if "xllamacpp" in last else ""
        raise InputError(f"runtime.python {python} cannot serve llama.cpp: {last}{hint}") from None


def explain(arm: Arm, problem: dict[str, Any]) -> str:
    """The launcher's problem as one line that names arm, flag as the file spells it, and what fits."""
    path = problem["flag"]
    flag = next((name for name, paths in FRIENDLY.items() if name in arm.flags and path in paths), path)
    if problem["problem"] == "unknown":
        known = [*FRIENDLY, *problem["known"]]
        return f"arm '{arm.name}': flag '{flag}' is unknown to llama.cpp{suggest(flag, known)}"
    if problem["problem"] == "word":
        return f"arm '{arm.name}': flag {flag}: {problem['value']!r} is none of {', '.join(problem['known'])}"
    return f"arm '{arm.name}': flag {flag}: {problem['value']!r} does not fit; expected {problem['expected']}"
