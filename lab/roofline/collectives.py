"""What a message between devices costs, and how that figure was found.

Without it tensor parallelism is free, and a sound single stream on eight PCIe cards seems to waste two thirds.
Tables are read as they are, never smoothed: they are not monotone, since protocols switch at certain sizes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from lab.errors import InputError, LabError
from lab.files import suggest
from lab.roofline import aiconfigurator, nccl
from lab.roofline.arrays import Numbers, plain
from lab.roofline.hardware import Hardware

_FILE = Path(__file__).parent / "data" / "collectives.yaml"
MEASURED, INTERPOLATED, CLAMPED, SCALED, ALPHA_BETA = "measured", "interpolated", "clamped", "scaled", "alpha-beta"


@dataclass(frozen=True)
class Latency:
    """One call.

    us        microseconds, shape of the message sizes
    found     measured: a size of the table; interpolated: between two; clamped: below the smallest, at its latency;
              scaled: above the largest, by bytes; alpha-beta: not measured at all. Text, or an array of it
    library   whose table it is, or the model's name
    borrowed  whether the table is of another device
    """

    us: Numbers
    found: str | NDArray[np.str_]
    library: str
    borrowed: bool


@dataclass(frozen=True)
class Table:
    """Latencies of one library on one device, by ranks."""

    hardware: str
    library: str
    message_bytes: tuple[float, ...]
    latency_us: dict[int, tuple[float, ...]]


def all_reduce(hardware: Hardware, ranks: int, message_bytes: Numbers, library: str | None = None) -> Latency:
    """One all-reduce of `message_bytes` on each of `ranks` devices of one node.

    Taken from the first that has it: a table of this device, the `aiconfigurator-core` package if installed, the table
    of the device that stands in, NCCL's own model. `library`: only that library's table. Raises InputError for a
    library without a table for these ranks, LabError where the link is unknown.
    """
    return _found("all_reduce", hardware, ranks, message_bytes, library)


def all_to_all(hardware: Hardware, ranks: int, message_bytes: Numbers) -> Latency:
    """One all-to-all in which each of `ranks` devices sends `message_bytes` in all; sources as for `all_reduce`.

    Where none was measured: latency + bytes (n-1)/n / link (ai-dynamo/aiconfigurator operators/fpm_sol.rs, nccl_sol).
    """
    return _found("all_to_all", hardware, ranks, message_bytes, None)


def send(hardware: Hardware, message_bytes: Numbers) -> Latency:
    """One message to a neighbour, by latency and bandwidth of the link; raises LabError where the link is unknown."""
    link, rate = _link(hardware)
    return Latency(nccl.transfer_us(link, rate, message_bytes), ALPHA_BETA, "link", False)


def lookup(sizes: tuple[float, ...], latencies: tuple[float, ...], wanted: Numbers) -> tuple[Numbers, Any]:
    """Latency at `wanted` bytes and how it was found, both of its shape.

    A size of the table: its value; between two: linear in the logarithms of bytes and latency; below the smallest: its
    latency; above the largest: scaled by bytes.
    """
    wanted = np.asarray(wanted, dtype=float)
    between = np.exp(np.interp(np.log(np.maximum(wanted, 1e-9)), np.log(sizes), np.log(latencies)))
    above, below, exact = wanted > sizes[-1], wanted < sizes[0], np.isin(wanted, sizes)
    us = np.where(above, latencies[-1] * wanted / sizes[-1], between)
    found = np.select([exact, above, below], [MEASURED, SCALED, CLAMPED], INTERPOLATED)
    return plain(us), found if found.ndim else str(found)


def _found(operation: str, hardware: Hardware, ranks: int, wanted: Numbers, library: str | None) -> Latency:
    own = [
        table for table in _tables(operation) if table.hardware == hardware.collectives and ranks in table.latency_us
    ]
    if library is not None:
        chosen = next((table for table in own if table.library == library), None)
        if chosen is None:
            known = suggest(library, [table.library for table in own])
            raise InputError(f"no {operation} table of {library!r} for {ranks} {hardware.name}{known}")
        return _from_table(chosen, hardware, ranks, wanted)
    if own and own[0].hardware == hardware.key:
        return _from_table(own[0], hardware, ranks, wanted)
    package = aiconfigurator.installed()
    if package and hardware.key and (more := aiconfigurator.table(package, hardware.key, operation, ranks)):
        us, found = lookup(more[1], more[2], wanted)
        return Latency(us, found, more[0], False)
    if own:
        return _from_table(own[0], hardware, ranks, wanted)
    link, rate = _link(hardware)
    if operation == "all_to_all":
        us = nccl.transfer_us(link, rate, np.asarray(wanted) * (ranks - 1) / ranks)
    else:
        us = nccl.all_reduce_us(link, rate, hardware.generation, ranks, wanted)
    return Latency(us, ALPHA_BETA, "nccl", False)


def _from_table(table: Table, hardware: Hardware, ranks: int, wanted: Numbers) -> Latency:
    us, found = lookup(table.message_bytes, table.latency_us[ranks], wanted)
    return Latency(us, found, table.library, table.hardware != hardware.key)


def _link(hardware: Hardware) -> tuple[str, float]:
    if hardware.link is None or hardware.link_bytes_s is None:
        raise LabError(f"no bound across several {hardware.name}: how they are linked is not known")
    return hardware.link, hardware.link_bytes_s / 1e9


@cache
def _tables(operation: str) -> tuple[Table, ...]:
    document = yaml.safe_load(_FILE.read_text())
    return tuple(
        Table(
            entry["hardware"],
            entry["library"],
            tuple(entry.get("message_bytes", document["message_bytes"])),
            {ranks: tuple(latencies) for ranks, latencies in entry["latency_us"].items()},
        )
        for entry in document[operation]
    )
