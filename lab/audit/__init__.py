"""May a trial be believed? One registered function per code, over records only.

Without an audit a table shows what the client asked for, not what the server did.
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

from lab.audit.base import CHECKS, FINDING, INVALID, LAUNCH_CHECKS, WARNING, Code, Context
from lab.audit.completed import complete
from lab.records import Launch, Trial, load_trial

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["FINDING", "INVALID", "WARNING", "Code", "Context", "audit", "audit_launch"]


def audit(trial: Trial | Path, context: Context | None = None) -> list[Code]:
    """Every code that applies to a trial, given as a record or its folder; `context` says what the control was.

    Raises InputError for a folder without a trial or launch record.
    """
    trial = trial if isinstance(trial, Trial) else load_trial(trial)
    trial, context = complete(trial, context or Context())
    return [code for check in CHECKS.values() if (code := check(trial, context)) is not None]


def audit_launch(launch: Launch, context: Context | None = None) -> list[Code]:
    """Every code that applies to a launch as a whole; `context` as for `audit`."""
    context = context or Context()
    return [code for check in LAUNCH_CHECKS.values() if (code := check(launch, context)) is not None]
