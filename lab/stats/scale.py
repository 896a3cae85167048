"""The value that stands for a launch where launches are compared as ratios.

Without it a launch that answered nobody in time has no logarithm and drops out, which flatters its arm.
"""

from __future__ import annotations

from lab.metrics import GOODPUT

COUNTED = ("request_rps", GOODPUT)
"""Metrics that are a count of requests over a time, and may be 0."""


def ratio_value(metric: str, value: float | None, seconds: float) -> float | None:
    """The metric's value of one launch as a positive number; None where there is none.

    A counted rate gets half a request more, so that 0 has a logarithm and the logarithm of a ratio of counts is least
    biased (Haldane, *Ann. Hum. Genet.* 20, 1956, 309-311); `seconds`: the window that was counted. Throughputs and
    latency quantiles are compared as they are, and 0 is none of them.
    """
    if value is None:
        return None
    if metric in COUNTED:
        return value + 0.5 / seconds
    return value if value > 0 else None
