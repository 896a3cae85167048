"""What a bound must know of the hardware.

Without its source beside each figure, a bandwidth from a data sheet and one that was measured look the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lab.errors import InputError
from lab.files import suggest
from lab.roofline.rebuilt import listed, mapping, rebuilt

# Tensor precisions from narrow to wide: hardware without the narrow one computes in the next.
PRECISIONS = ("fp4", "fp8", "bf16")


@dataclass(frozen=True)
class KernelFigure:
    """Best rate of one probe kernel: read, copy or triad."""

    kernel: str
    threads: int
    bytes_s: float


@dataclass(frozen=True)
class Hardware:
    """What the bound needs to know of a machine; every figure is of one device.

    name                     processor or GPU, for people
    memory_bandwidth_bytes_s bytes per second (decimal) between memory and the whole device
    source                   where the figures come from
    threads                  threads of the best kernel; None for a catalogue entry
    measured_at              ISO-8601 UTC; None for a catalogue entry
    cache_bytes              last-level cache, which can spare a step some reads; None if unknown
    array_bytes              size of each probe array; None for a catalogue entry
    kernels                  every figure of the probe; empty for a catalogue entry
    memory_bytes             memory that the driver shows, else the label; None if unknown
    peak_flops_s             dense tensor peaks by precision (bf16, fp8, fp4), FLOP/s; of a probe fp32, which is drawn
                             and bounds nothing; empty if unknown
    link                     how devices of one node are joined: nvlink, pcie or xgmi; None if unknown
    link_bytes_s             bytes per second of that link, one direction, per device; None if unknown
    joined                   most devices that the link joins; None if unknown
    generation               ampere, ada, hopper or blackwell, for NCCL's constants; None if unknown
    collectives              key under which collective latencies were measured: its own or that of the device whose
                             figures are borrowed; None if there are none
    key                      key in the catalogue; None outside it
    """

    name: str
    memory_bandwidth_bytes_s: float
    source: str
    threads: int | None = None
    measured_at: str | None = None
    cache_bytes: int | None = None
    array_bytes: int | None = None
    kernels: tuple[KernelFigure, ...] = ()
    memory_bytes: int | None = None
    peak_flops_s: Mapping[str, float] = field(default_factory=dict)
    link: str | None = None
    link_bytes_s: float | None = None
    joined: int | None = None
    generation: str | None = None
    collectives: str | None = None
    key: str | None = None

    def peak(self, weights: str | None, activations: str | None = None) -> float | None:
        """Dense FLOP/s of a product: of the wider of both precisions, or the next wider that the device has.

        Weight-only quantisation (W4A16: activations bf16) so runs at the BF16 peak. `activations` None: as the weights.
        None where the precision or the peak is unknown; raises InputError for activations of no known precision.
        """
        if activations is not None and activations not in PRECISIONS:
            raise InputError(f"unknown precision of activations {activations!r}{suggest(activations, PRECISIONS)}")
        if weights is None:
            return None
        wanted = max(PRECISIONS.index(weights), PRECISIONS.index(activations or weights))
        return next((self.peak_flops_s[name] for name in PRECISIONS[wanted:] if name in self.peak_flops_s), None)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Hardware:
        """The hardware that `dataclasses.asdict` wrote; raises LabError, naming the field, for a damaged record."""
        values = mapping(record, "hardware")
        figures = listed(values, "kernels", "hardware")
        values["kernels"] = tuple(rebuilt(KernelFigure, figure, "a probe's kernel") for figure in figures)
        return rebuilt(cls, values, "hardware")
