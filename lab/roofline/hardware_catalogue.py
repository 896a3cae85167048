"""GPUs by name, each figure with its source.

Without it a bound rests on the bandwidth of another edition: two cards sold as "RTX PRO 6000" differ by 12 %.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import yaml

from lab.errors import InputError
from lab.files import quoted, suggest, typed_path
from lab.roofline.fields import shown
from lab.roofline.hardware import Hardware
from lab.roofline.hardware_entry import HardwareEntry
from lab.yamlfile import Document, load

_FILE = Path(__file__).parent / "data" / "hardware.yaml"
_MOST_BYTES = 1 << 20  # the catalogue itself has 18,000


def find(name: str) -> Hardware:
    """A GPU by its key (`rtx_pro_6000_server`), its product with the edition, or a YAML file of your own with one
    entry.

    Raises InputError: unknown name (with the nearest), a product of several editions (with their keys), a file that is
    absent or wrong.
    """
    if name.endswith((".yaml", ".yml")):
        return _own(typed_path(name))
    found = editions(name)
    if len(found) > 1:
        keys = ", ".join(f"{hardware.key} ({_gb_s(hardware)})" for hardware in found)
        raise InputError(f"{quoted(name)} comes in editions that differ; name one of {keys}")
    return found[0]


def editions(name: str) -> tuple[Hardware, ...]:
    """All entries that a name may mean: one for a key or a full name, several for a product of several editions.

    Raises InputError, with the nearest name, where there is none.
    """
    catalogue, wanted = _catalogue(), _plain(name)
    if wanted in catalogue:
        return (catalogue[wanted],)
    matches = [hardware for hardware in catalogue.values() if _plain(hardware.name) == wanted]
    matches = matches or [
        hardware for hardware in catalogue.values() if f"{_plain(hardware.name)}_".startswith(f"{wanted}_")
    ]
    if not matches:
        raise InputError(f"unknown hardware {quoted(name)}{suggest(wanted, catalogue)}")
    return tuple(matches)


def by_nvml_name(name: str) -> Hardware | None:
    """The GPU that the driver calls exactly so (`NVIDIA H100 80GB HBM3`); None where the catalogue has no such name:
    a similar one is another edition, with another bandwidth."""
    key = _nvml_names().get(name)
    return None if key is None else _catalogue()[key]


@cache
def _nvml_names() -> Mapping[str, str]:
    entries = yaml.safe_load(_FILE.read_text())
    return {name: key for key, entry in entries.items() for name in entry.get("nvml", ())}


@cache
def _catalogue() -> Mapping[str, Hardware]:
    return read(_FILE)


def read(path: Path) -> Mapping[str, Hardware]:
    """Every entry of a hardware file by key; raises InputError naming file, line and field."""
    document = _document(path)
    return {key: _hardware(document, key) for key in document.data}


def _own(path: Path) -> Hardware:
    """The one entry of a user's file, whose `collectives` must be of a device on which they were measured."""
    document = _document(path)
    if len(document.data) != 1:
        raise InputError(f"{path}: holds {len(document.data)} entries; a hardware file holds exactly one")
    hardware = _hardware(document, next(iter(document.data)))
    measured = {entry.collectives for entry in _catalogue().values()} - {None}
    if hardware.collectives is not None and hardware.collectives not in measured:
        hint = suggest(hardware.collectives, measured)
        raise document.error(
            (str(hardware.key), "collectives"), f"nothing was measured on {quoted(hardware.collectives)}{hint}"
        )
    return hardware


def _document(path: Path) -> Document:
    if not path.is_file():
        what = "a folder" if path.is_dir() else "no such file"
        raise InputError(f"{path}: {what}; give a hardware file or a key of the catalogue")
    if path.stat().st_size > _MOST_BYTES:
        raise InputError(f"{path}: has {path.stat().st_size:,} bytes; a hardware file has one entry")
    document = load(path)
    if not isinstance(document.data, dict):
        raise document.error((), f"expected a mapping from a key to figures, got {shown(document.data)}")
    return document


def _hardware(document: Document, key: str) -> Hardware:
    entry = document.validate(HardwareEntry, document.data[key], (key,))

    def scaled(value: float | None, factor: float) -> float | None:
        return None if value is None else value * factor

    def counted(value: float | None, factor: float) -> int | None:
        return None if value is None else round(value * factor)

    peaks = {} if entry.tflops is None else entry.tflops.model_dump(exclude_unset=True, exclude_none=True)
    memory_bytes = counted(entry.memory_mib, 2**20)
    return Hardware(
        name=" ".join(part for part in (entry.product, entry.edition) if part),
        memory_bandwidth_bytes_s=entry.bandwidth_gb_s * 1e9,
        source=entry.source,
        cache_bytes=counted(entry.cache_mib, 2**20),
        memory_bytes=counted(entry.memory_gb, 1e9) if memory_bytes is None else memory_bytes,
        peak_flops_s={name: value * 1e12 for name, value in peaks.items()},
        link=entry.link,
        link_bytes_s=scaled(entry.link_gb_s, 1e9),
        joined=entry.joined,
        generation=entry.generation,
        collectives=entry.collectives,
        key=key,
    )


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def _gb_s(hardware: Hardware) -> str:
    return f"{hardware.memory_bandwidth_bytes_s / 1e9:g} GB/s"
