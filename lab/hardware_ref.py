"""The hardware that a campaign file names.

Without a check while the file is read, a misspelt GPU, or one of two editions that differ by 12 %, would be noticed
when the verdicts are there.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from lab.errors import InputError
from lab.strict import Strict
from lab.yamlfile import Document

if TYPE_CHECKING:
    from lab.roofline.hardware import Hardware

AUTO = "auto"
KEY = "hardware"


class HardwareRef(Strict):
    """What serves: a key of the hardware catalogue, or a YAML file with one entry, and how many of it there are.

    An arm whose flags need more than `count` is refused; a server that says it uses more is a finding of its row; where
    the server does not say, `count` are its GPUs in tok_s_per_gpu.
    """

    gpu: str
    count: int = Field(ge=1, le=100_000)


def named(document: Document, value: str | dict[str, Any], folder: Path) -> Hardware | None:
    """The hardware that a campaign's `hardware` names; None for `auto`. Paths start at `folder`.

    Raises InputError with line and field: neither `auto` nor a mapping of `gpu` and `count`, an unknown GPU (with the
    nearest), a product of several editions (with their keys).
    """
    if value == AUTO:
        return None
    if isinstance(value, str):
        raise document.error((KEY,), f"'{value}' is neither auto nor a mapping such as {{gpu: h200_sxm, count: 8}}")
    from lab.roofline.hardware_catalogue import find

    reference = document.validate(HardwareRef, value, (KEY,))
    own_file = reference.gpu.endswith((".yaml", ".yml"))
    try:
        return find(str(folder / reference.gpu) if own_file else reference.gpu)
    except InputError as error:
        raise document.error((KEY, "gpu"), str(error)) from None
