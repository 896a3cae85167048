"""GPUs by name, each figure with its source.

Without it a bound rests on the bandwidth of another edition: two cards sold as "RTX PRO 6000" differ by 12 %.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from lab.errors import InputError
from lab.files import suggest
from lab.roofline.hardware import Hardware

_FILE = Path(__file__).parent / "data" / "hardware.yaml"
_REQUIRED = ("product", "bandwidth_gb_s", "source")
_OPTIONAL = (
    *("edition", "memory_gb", "memory_mib", "tflops", "link", "link_gb_s", "joined", "cache_mib"),
    *("generation", "collectives", "nvml", "note"),
)


def find(name: str) -> Hardware:
    """A GPU by its key (`rtx_pro_6000_server`), its product with the edition, or a YAML file of your own with one
    entry.

    Raises InputError: unknown name (with the nearest), a product of several editions (with their keys), a file that is
    absent or wrong.
    """
    if name.endswith((".yaml", ".yml")):
        entries = read(Path(name))
        if len(entries) != 1:
            raise InputError(f"{name}: holds {len(entries)} entries; a hardware file holds exactly one")
        return next(iter(entries.values()))
    found = editions(name)
    if len(found) > 1:
        keys = ", ".join(f"{hardware.key} ({_gb_s(hardware)})" for hardware in found)
        raise InputError(f"{name!r} comes in editions that differ; name one of {keys}")
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
        raise InputError(f"unknown hardware {name!r}{suggest(wanted, catalogue)}")
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
    """Every entry of a hardware file by key; raises InputError naming file, entry and field."""
    try:
        document = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; give a hardware file or a key of the catalogue") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{path}: cannot be read ({str(error).splitlines()[0]})") from None
    if not isinstance(document, Mapping):
        raise InputError(f"{path}: expected a mapping from keys to figures")
    return {str(key): _hardware(path, str(key), entry) for key, entry in document.items()}


def _hardware(path: Path, key: str, entry: Any) -> Hardware:
    if not isinstance(entry, Mapping):
        raise InputError(f"{path}: {key}: expected a mapping of {', '.join(_REQUIRED)}, …")
    for name in _REQUIRED:
        if entry.get(name) is None:
            raise InputError(f"{path}: {key}: {name} is required and missing")
    for name in entry:
        if name not in (*_REQUIRED, *_OPTIONAL):
            raise InputError(f"{path}: {key}: unknown key {name!r}{suggest(str(name), [*_REQUIRED, *_OPTIONAL])}")
    peaks = entry.get("tflops") or {}
    if not isinstance(peaks, Mapping):
        raise InputError(f"{path}: {key}: tflops is {peaks!r}, not a mapping such as {{bf16: 480, fp8: 960}}")
    numbers = ("bandwidth_gb_s", "memory_gb", "memory_mib", "link_gb_s", "joined", "cache_mib")
    figures = {**{name: entry.get(name) for name in numbers}, **peaks}
    for name, value in figures.items():
        if value is not None and not (isinstance(value, int | float) and value > 0):
            raise InputError(f"{path}: {key}: {name} is {value!r}, not a number above 0")

    def scaled(name: str, factor: float) -> float | None:
        return None if entry.get(name) is None else entry[name] * factor

    memory = scaled("memory_mib", 2**20) or scaled("memory_gb", 1e9)
    return Hardware(
        name=" ".join(str(entry[part]) for part in ("product", "edition") if entry.get(part)),
        memory_bandwidth_bytes_s=entry["bandwidth_gb_s"] * 1e9,
        source=entry["source"],
        cache_bytes=scaled("cache_mib", 2**20),
        memory_bytes=None if memory is None else round(memory),
        peak_flops_s={name: value * 1e12 for name, value in peaks.items()},
        link=entry.get("link"),
        link_bytes_s=scaled("link_gb_s", 1e9),
        joined=entry.get("joined"),
        generation=entry.get("generation"),
        collectives=entry.get("collectives"),
        key=key,
    )


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def _gb_s(hardware: Hardware) -> str:
    return f"{hardware.memory_bandwidth_bytes_s / 1e9:g} GB/s"
