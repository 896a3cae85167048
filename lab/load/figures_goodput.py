"""Requests per second that were answered as fast as promised.

Without it a server that finishes many requests late looks better than one that finishes fewer in time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from lab.load.figures_requests import Requests


def goodput_rps(requests: Requests, slo: Mapping[str, float] | None, closed: bool) -> float | None:
    """Complete requests that ended in the window within every limit of `slo` (ttft_ms, tpot_ms, e2e_ms), per second.

    0 where none did; None without limits. Times run from the sending in a closed loop, and else from when the request
    was due: its user waited for a slot too (G. Tene's "coordinated omission"). An answer that came in one chunk has no
    time per token to break.
    """
    if not slo:
        return None
    start_s = requests.sent_s if closed else requests.due_s
    times_ms = {
        "ttft_ms": 1000 * (requests.first_token_s - start_s),
        "tpot_ms": 1000 * np.nan_to_num(requests.decode_s()),
        "e2e_ms": 1000 * (requests.end_s - start_s),
    }
    good = requests.complete & requests.ended
    for name, limit_ms in slo.items():
        good &= times_ms[name] <= limit_ms
    return float(good.sum() / requests.seconds)
