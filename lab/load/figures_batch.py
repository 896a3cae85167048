"""The batch that ran, from the server's samples and the client's own tokens together.

Without the second, sixteen samples of a batch that fills and empties are off by a quarter of it, and a server that
holds requests back is told from one that does not by luck alone.

A request that gets its tokens runs, and the client knows at every instant how many do. What a sample adds is how many
more the server counts at that moment (prompts being read, requests held): that varies less than the batch itself.
"""

from __future__ import annotations

import numpy as np

from lab.load.figures_chunks import Chunks
from lab.load.figures_flight import Flight
from lab.load.figures_server import Samples


def fitted(samples: Samples, chunks: Chunks) -> dict[str, float | None]:
    """running_fitted, held_fitted: means over the window of the requests that ran, and of those that ran or waited: the
    mean number that got tokens (answering), and the mean distance of the samples from it. …_error: their standard
    errors, from the spread of that distance; running_error: that of the plain mean. None where the samples do not tell.
    """
    begun = chunks.lengths > 0
    first_s, last_s = np.sort(chunks.first_s()[begun]), np.sort(chunks.last_s()[begun])
    answering = np.searchsorted(first_s, samples.t_s, "right") - np.searchsorted(last_s, samples.t_s, "right")
    mean = Flight(first_s, last_s).mean(0.0, samples.seconds) or 0.0
    running = samples.column("running")
    found: dict[str, float | None] = {"answering": mean, "running_error": _error(running[samples.inside])}
    for name, values in (("running", running), ("held", running + samples.column("waiting"))):
        beyond = values - answering
        weights = samples.weights_s(beyond)
        known = len(beyond) > 0 and weights.sum() > 0
        found[f"{name}_fitted"] = mean + float(weights @ np.nan_to_num(beyond) / weights.sum()) if known else None
        found[f"{name}_fitted_error"] = _error(beyond[samples.inside])
    return found


def _error(values: np.ndarray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.std(ddof=1) / np.sqrt(len(known))) if len(known) > 1 else None
