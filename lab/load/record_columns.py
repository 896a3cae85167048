"""Columns of a table of requests as plain arrays.

Without one conversion a column that is null throughout arrives as objects, and each reader stumbles over it in its
own way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd


def numbers(frame: pd.DataFrame, name: str) -> np.ndarray:
    """A column as float64, missing values as NaN."""
    return frame[name].astype("float64").to_numpy()


def total(frame: pd.DataFrame, name: str) -> int | None:
    """The sum of what is known in a column; None when nothing is."""
    values = numbers(frame, name)
    return int(np.nansum(values)) if (~np.isnan(values)).any() else None


def mean(values: np.ndarray) -> float | None:
    """The mean of the known values; None when there is none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def share(mask: np.ndarray) -> float | None:
    """The share of true values; None without any value."""
    return float(mask.mean()) if len(mask) else None
