"""May a trial be believed? One registered function per code, over records only.

Without an audit a table shows what the client asked for, not what the server did.
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

from lab.audit.base import CHECKS, FINDING, INVALID, WARNING, Code, Context
from lab.records import Trial, load_trial

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["FINDING", "INVALID", "WARNING", "Code", "Context", "audit"]


def audit(trial: Trial | Path, context: Context | None = None) -> list[Code]:
    """Every code that applies to a trial, given as a record or its folder; `context` says what the control was.

    Raises InputError for a folder without a trial or launch record.
    """
    trial = trial if isinstance(trial, Trial) else load_trial(trial)
    context = context or Context()
    return [code for check in CHECKS.values() if (code := check(trial, context)) is not None]
