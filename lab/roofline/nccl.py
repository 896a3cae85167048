"""The latency and bandwidth model by which NCCL chooses its algorithm: a fallback where nothing was measured.

Without it a deployment on an unmeasured link would count its collectives as free. It tells topologies apart; absolute
values are off by up to 40 % at small messages, so whatever rests on it is marked.

Constants and formulas: NVIDIA/nccl@5067397c (2.30.7) src/graph/tuning.cc. Left out, which makes it faster than the
original: the correction of trees by message size (0.4 to 1.0), and the caps per channel where channels are not given.
"""

from __future__ import annotations

import math

import numpy as np

from lab.errors import LabError
from lab.roofline.arrays import Numbers

PROTOCOLS = ("LL", "LL128", "Simple")
# Microseconds, by algorithm and in the order of PROTOCOLS.
BASE_US = {"tree": (6.8, 14.0, 8.4), "ring": (6.6, 14.0, 8.4)}
HOP_US = {
    "nvlink": {"tree": (0.6, 1.25, 4.0), "ring": (0.6, 1.9, 3.4)},
    "pcie": {"tree": (1.0, 1.9, 4.0), "ring": (1.0, 2.5, 5.7)},
    "network": {"tree": (5.0, 8.5, 14.0), "ring": (2.7, 4.0, 14.0)},
}
# GB/s: most that LL moves in one node, and per channel for trees, rings with LL128, trees with LL128. The source keeps
# no row for Ada, which it treats as Ampere.
_AMPERE = (87.7, 24.0, 20.0, 20.0)
LIMITS_GB_S = {
    "ampere": _AMPERE,
    "ada": _AMPERE,
    "hopper": (141.0, 38.7, 36.7, 36.7),
    "blackwell": (282.0, 70.0, 40.0, 55.6),
}


def latency_us(algorithm: str, protocol: str, link: str, ranks: int, nodes: int = 1) -> float:
    """Time of an all-reduce of no bytes, microseconds: `ranks` in all, spread over `nodes` nodes.

    One node: base + 2(N-1) hops. Several: a tree crosses 2 log2(nodes) network hops, a ring 2(nodes-1).
    """
    index = PROTOCOLS.index(protocol)
    base, hop, network = (
        table[index] for table in (BASE_US[algorithm], HOP_US[link][algorithm], HOP_US["network"][algorithm])
    )
    if nodes == 1:
        return base + 2 * (ranks - 1) * hop
    if algorithm == "tree":
        return base + 2 * ((ranks / nodes - 1) * hop + math.log2(nodes) * network)
    return base + (2 * (ranks - 1) - 2 * (nodes - 1)) * hop + 2 * (nodes - 1) * network


def bandwidth_gb_s(
    algorithm: str, protocol: str, link_gb_s: float, ranks: int, generation: str, channels: int | None = None
) -> float:
    """Algorithm bandwidth of an all-reduce in one node, 1e9 bytes of the message per second; `link_gb_s`: one direction
    of one device, `channels`: None leaves the caps per channel out."""
    most_ll, tree, ring_ll128, tree_ll128 = LIMITS_GB_S[generation]

    def capped(value: float, per_channel: float) -> float:
        return value if channels is None else min(value, channels * per_channel)

    if algorithm == "tree":
        bus = capped(0.92 * link_gb_s, tree)
        if protocol == "LL":
            bus = min(bus / 3.8, most_ll)
        elif protocol == "LL128":
            bus = capped(bus * 7 / 9, tree_ll128)
        return bus * 0.5
    bus = {
        "LL": min(most_ll, 0.5 * link_gb_s),
        "LL128": capped(0.92 * link_gb_s, ring_ll128),
        "Simple": link_gb_s,
    }[protocol]
    return bus * ranks / (2 * (ranks - 1))


def all_reduce_us(link: str, link_gb_s: float, generation: str | None, ranks: int, message_bytes: Numbers) -> Numbers:
    """Time of an all-reduce in one node by the fastest algorithm and protocol, microseconds, shape of `message_bytes`.

    LL128 needs NVLink. Raises LabError for a device for which NCCL has no constants.
    """
    if link not in ("nvlink", "pcie") or generation not in LIMITS_GB_S:
        raise LabError(
            f"no all-reduce latency is known for the link {link!r} of this device; it was not measured either"
        )
    protocols = PROTOCOLS if link == "nvlink" else ("LL", "Simple")
    times = [
        latency_us(algorithm, protocol, link, ranks)
        + np.asarray(message_bytes) / (1e3 * bandwidth_gb_s(algorithm, protocol, link_gb_s, ranks, generation))
        for algorithm in BASE_US
        for protocol in protocols
    ]
    return np.minimum.reduce(times)


def transfer_us(link: str, link_gb_s: float, message_bytes: Numbers) -> Numbers:
    """One message over one link, microseconds: base and hop of the quickest protocol, then bytes at the link's rate."""
    if link not in ("nvlink", "pcie"):
        raise LabError(f"no latency is known for the link {link!r} of this device")
    return BASE_US["ring"][0] + HOP_US[link]["ring"][0] + np.asarray(message_bytes) / (1e3 * link_gb_s)
