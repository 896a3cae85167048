"""One entry of a hardware file: the figures of a device, with the values that they can have.

Without it bytes written where GB are asked, a precision in capitals or `.inf` would make a bound that no measurement
contradicts.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from lab.files import quoted, suggest
from lab.roofline.fields import expected, number, shown, whole
from lab.roofline.hardware import PRECISIONS
from lab.roofline.nccl import LIMITS_GB_S
from lab.strict import Strict

LINKS = ("nvlink", "pcie", "xgmi")

Rate = Annotated[int | float, number(0.001, 1_000_000)]
Line = Annotated[
    str, Field(pattern=r"^[^\x00-\x1f]+$"), expected("a line of text, in quotes if it looks like a number or a date")
]
Texts = Annotated[list[str], expected("a list of texts")]


class Tflops(Strict):
    """Dense tensor peaks, 1e12 FLOP/s."""

    bf16: Rate | None = None
    fp8: Rate | None = None
    fp4: Rate | None = None

    @model_validator(mode="before")
    @classmethod
    def _precisions(cls, peaks: Any) -> Any:
        if not isinstance(peaks, dict):
            raise ValueError(f"expected a mapping such as {{bf16: 480, fp8: 960}}, got {shown(peaks)}")
        for name in peaks:
            if name not in PRECISIONS:
                raise ValueError(f"unknown precision {quoted(name)}{suggest(name, PRECISIONS)}")
        return peaks


def _one_of(known: tuple[str, ...]) -> Any:
    """For a text that is one of `known`."""
    return expected(f"{', '.join(known[:-1])} or {known[-1]}", known)


class HardwareEntry(Strict):
    """A figure that is not known is absent, or null."""

    product: Line
    bandwidth_gb_s: Rate
    """Memory, 1e9 bytes per second."""
    source: Line
    edition: Line | None = None
    memory_gb: Annotated[int | float, number(0.001, 50_000)] | None = None
    """As labelled, 1e9 bytes."""
    memory_mib: Annotated[int | float, number(0.001, 50_000_000)] | None = None
    """As the driver shows it, which counts before the label."""
    tflops: Tflops | None = None
    link: Annotated[str, _one_of(LINKS)] | None = None
    link_gb_s: Rate | None = None
    """One direction, 1e9 bytes per second."""
    joined: Annotated[int, whole(1, 100_000)] | None = None
    """Most devices that the link joins in one node."""
    cache_mib: Rate | None = None
    """Last-level cache."""
    generation: Annotated[str, _one_of(tuple(LIMITS_GB_S))] | None = None
    collectives: Line | None = None
    """The device whose measured collectives apply."""
    nvml: Texts | None = None
    """What the driver calls it."""
    note: Annotated[str, expected("text")] | None = None
