"""The base of everything that is read from a campaign file or set on a simulated server.

Without it each section would decide for itself whether a misspelt key or a number in quotes passes.
"""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

from lab.files import quoted


class Strict(BaseModel):
    """A frozen model that refuses unknown keys and silent conversions; a field's docstring is its description."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        validate_default=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )


def _numbers_as_text(env: Any) -> Any:
    """An environment: `OMP_NUM_THREADS: 2` needs no quotes; a truth value does, since programs spell it differently."""
    if not isinstance(env, dict):
        return env
    for name, value in env.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", str(name)) or "\0" in str(value):
            raise ValueError(f"{quoted(name)} cannot be an environment variable")
    return {key: str(value) if type(value) in (int, float) else value for key, value in env.items()}


numbers_as_text = BeforeValidator(_numbers_as_text)
