"""The base of everything that is read from a campaign file or set on a simulated server.

Without it each section would decide for itself whether a misspelt key or a number in quotes passes.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


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
