"""What a bound must know of the hardware.

Without its source beside each figure, a bandwidth from a data sheet and one that was measured look the same.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KernelFigure:
    """Best rate of one probe kernel: read, copy or triad."""

    kernel: str
    threads: int
    bytes_s: float


@dataclass(frozen=True)
class Hardware:
    """What the bound needs to know of a machine.

    name                     processor or GPU, for people
    memory_bandwidth_bytes_s bytes per second (decimal) between memory and the whole device
    source                   where the bandwidth comes from
    threads                  threads of the best kernel; None for a catalogue entry
    measured_at              ISO-8601 UTC; None for a catalogue entry
    cache_bytes              last-level cache, which can spare a step some reads; None if unknown
    array_bytes              size of each probe array; None for a catalogue entry
    kernels                  every figure of the probe; empty for a catalogue entry
    """

    name: str
    memory_bandwidth_bytes_s: float
    source: str
    threads: int | None = None
    measured_at: str | None = None
    cache_bytes: int | None = None
    array_bytes: int | None = None
    kernels: tuple[KernelFigure, ...] = ()
