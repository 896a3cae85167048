"""Measured collective latencies from the `aiconfigurator-core` package, where somebody has installed it.

Without it a device that our own small table lacks would fall back to a model that is off by up to 40 %. The package is
not required; its layout was read at ai-dynamo/aiconfigurator@095f58a5: systems/data/SYSTEM/comm/nccl/VERSION/
nccl_perf.parquet with op_name, nccl_dtype, num_gpus, message_size (elements) and latency (milliseconds).
"""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path

from lab.errors import LabError

_SYSTEMS = {"a100_sxm_80": "a100_sxm", "a100_pcie_80": "a100_pcie"}  # the others are called as here
_COLUMNS = ("op_name", "nccl_dtype", "num_gpus", "message_size", "latency")
_OPERATIONS = {"all_reduce": "all_reduce", "all_to_all": "alltoall"}
_HALF_BYTES = 2

Table = tuple[str, tuple[float, ...], tuple[float, ...]]  # library, bytes, microseconds


def installed() -> Path | None:
    """The folder of the package; None where it is not installed."""
    spec = importlib.util.find_spec("aiconfigurator_core")
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0]) if places else None


@cache
def table(package: Path, key: str, operation: str, ranks: int) -> Table | None:
    """The newest NCCL table of a device (`key` of the hardware catalogue) for `all_reduce` or `all_to_all` between so
    many ranks of one node; None where it holds none. Raises LabError when the files are not laid out as described.
    """
    data = package / "systems" / "data"
    if not data.is_dir():
        raise LabError(
            f"{data}: no such folder; this aiconfigurator-core keeps its tables elsewhere, so they are not read"
        )
    files = sorted((data / _SYSTEMS.get(key, key) / "comm" / "nccl").glob("*/nccl_perf.parquet"), key=_version)
    return _read(files[-1], operation, ranks) if files else None


def _read(path: Path, operation: str, ranks: int) -> Table | None:
    import pyarrow.parquet

    columns = pyarrow.parquet.read_table(path).to_pydict()
    missing = [name for name in _COLUMNS if name not in columns]
    if missing:
        raise LabError(f"{path}: lacks the columns {', '.join(missing)}, so it is not read")
    rows = zip(*(columns[name] for name in _COLUMNS), strict=True)
    found = sorted(
        (size * _HALF_BYTES, latency * 1e3)
        for name, dtype, gpus, size, latency in rows
        if (name, dtype, gpus) == (_OPERATIONS[operation], "half", ranks)
    )
    if not found:
        return None
    sizes, latencies = zip(*found, strict=True)
    return f"nccl-{path.parent.name}", sizes, latencies


def _version(path: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", path.parent.name))
