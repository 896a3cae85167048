"""Numbers and arrays of them.

Without one word for both, every formula of the roofline would say twice that it takes either.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = float | NDArray[np.float64]


def plain(value: Numbers) -> Numbers:
    """An array as it is, a single figure as a float: JSON knows no other."""
    return value if np.ndim(value) else float(value)
