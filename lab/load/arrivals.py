"""When the requests of an open loop fall due: fixed beforehand, whatever the server does.

Without times that are fixed beforehand a slow server slows its own load down, and the requests that users would
have sent meanwhile never appear in its latencies.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import count, pairwise

KINDS = ("poisson", "constant", "trace")


def offsets(kind: str, rate_rps: float | None, salt: str, at_s: Sequence[float] = ()) -> Iterator[float]:
    """Seconds from the start of the load to each request, in order.

    `poisson`: independent exponential gaps of mean 1/`rate_rps`, always the same for the same salt, without end;
    `constant`: one request every 1/`rate_rps` seconds, the first at once, without end; `trace`: the given times,
    counted from the first of them. Raises ValueError when the rate is not above zero, when a trace is empty or
    goes back in time, and for another kind.
    """
    if kind == "trace":
        return iter(_from_the_first(at_s))
    if rate_rps is None or not rate_rps > 0:
        raise ValueError(f"{kind} arrivals need a rate above zero, not {rate_rps}")
    if kind == "constant":
        return (number / rate_rps for number in count())
    if kind == "poisson":
        return _poisson(rate_rps, random.Random(f"arrivals {salt}"))
    raise ValueError(f"arrivals are one of {', '.join(KINDS)}, not '{kind}'")


def _poisson(rate_rps: float, generator: random.Random) -> Iterator[float]:
    at = 0.0
    while True:
        at += generator.expovariate(rate_rps)
        yield at


def _from_the_first(at_s: Sequence[float]) -> list[float]:
    if not at_s:
        raise ValueError("a trace needs at least one time")
    for number, (earlier, later) in enumerate(pairwise(at_s), 2):
        if later < earlier:
            raise ValueError(
                f"a trace goes forward in time: request {number} is due at {later:g} s, after {earlier:g} s"
            )
    return [at - at_s[0] for at in at_s]
