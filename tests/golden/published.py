"""Every published figure with enough inputs against its bound, and how far the bound with one fitted constant predicts
it.

Without it the roofline would be tested against arithmetic alone: a bound that real deployments exceed is wrong, however
well it follows its formulas. Run with `python -m tests.golden.published`; exit 1 when a figure exceeds 1.02 x its hard
bound.
"""

from __future__ import annotations

import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from lab.errors import InputError
from lab.roofline import Bound, Hardware, Layout, Model, bound
from lab.roofline.experts import POWER_LAWS, UNIFORM
from lab.roofline.fit import fixed_ms_per_layer
from lab.roofline.hardware_catalogue import editions, find
from lab.roofline.model_catalogue import find as find_model

FILE = Path(__file__).parents[1] / "roofline" / "published.yaml"
TOLERANCE = 1.02  # timer and counting error of a published figure
BROKEN = 0.2  # share of the bound below which a stack runs a fallback or without graphs, not its kernels


@dataclass(frozen=True)
class Point:
    """One published figure: the deployment, the load and the output tokens per second of the whole of it.

    product: what the source calls hardware whose edition it does not name; None where it does.
    """

    id: int
    group: str
    model: Model
    hardware: Hardware
    layout: Layout
    batch: float
    context: float
    tok_s: float
    product: str | None
    inputs: Mapping[str, Any] = field(default_factory=dict)

    def bound(self, routing: str | float = UNIFORM, fixed_ms: float | None = None) -> Bound:
        """The nominal bound of its deployment."""
        inputs = {**self.inputs, "routing": routing, "fixed_ms_per_layer": fixed_ms}
        return bound(self.model, self.hardware, self.layout, self.batch, self.context, **inputs)

    def hard_tok_s(self) -> float | None:
        """The hard bound: of the fastest edition where the source does not say which."""
        choices = editions(self.product) if self.product else (self.hardware,)
        limits = [replace(self, hardware=hardware).bound().bound_hard_tok_s for hardware in choices]
        return None if None in limits else max(limits)

    @property
    def family_routing(self) -> float:
        """The exponent of its family (ai-dynamo/aiconfigurator sdk/models)."""
        return POWER_LAWS[0] if self.model.name.startswith("DeepSeek") else POWER_LAWS[1]


def points() -> list[Point]:
    """All rows of the table."""
    return [_point(row) for row in yaml.safe_load(FILE.read_text())["rows"]]


def _point(row: Mapping[str, Any]) -> Point:
    inputs = {key: row[key] for key in ("shared_prefix", "state_dtype", "activations") if key in row}
    if "kv_dtype" in row:
        inputs |= {"kv_dtype_k": row["kv_dtype"], "kv_dtype_v": row["kv_dtype"]}
    return Point(
        id=row["id"],
        group=row["group"],
        model=find_model(row["model"], row["recipe"]),
        hardware=find(row["hardware"]),
        layout=Layout(tp=row["tp"], ep=row.get("ep", 1)),
        batch=row["concurrency"],
        context=row["context"],
        tok_s=row["tok_s"] if "tok_s" in row else row["concurrency"] * 1e3 / row["tpot_ms"],
        product=row.get("product"),
        inputs=inputs,
    )


@dataclass(frozen=True)
class Error:
    """Predictions of some rows: absolute errors in percent."""

    errors_pct: tuple[float, ...]

    @property
    def median_pct(self) -> float:
        return statistics.median(self.errors_pct)

    def __str__(self) -> str:
        return f"median {self.median_pct:.1f} %, largest {max(self.errors_pct):.0f} %, n = {len(self.errors_pct)}"


def exceeding(rows: Iterable[Point]) -> list[Point]:
    """Rows above 1.02 x their hard bound."""
    return [row for row in rows if (hard := row.hard_tok_s()) is not None and row.tok_s > TOLERANCE * hard]


def within_deployments(rows: Iterable[Point], by_family: bool, fitted: bool = True) -> Error:
    """The fixed cost of each deployment from its row of lowest concurrency, tried on its other rows."""
    errors = []
    for group in by_group(rows).values():
        first, *others = group
        cost = _cost(first, by_family) if fitted else 0.0
        errors += [_error(row, by_family, cost) for row in others if cost is not None]
    return Error(tuple(errors))


def across_deployments(rows: Iterable[Point], by_family: bool, fitted: bool = True) -> Error:
    """Each deployment from the median fixed cost of all the others."""
    groups = by_group(rows)
    costs = {name: cost for name, group in groups.items() if (cost := _cost(group[0], by_family)) is not None}
    errors = []
    for name, group in groups.items():
        cost = statistics.median(value for other, value in costs.items() if other != name) if fitted else 0.0
        errors += [_error(row, by_family, cost) for row in group]
    return Error(tuple(errors))


def by_group(rows: Iterable[Point]) -> dict[str, list[Point]]:
    """Rows by deployment, the lowest concurrency first."""
    groups: dict[str, list[Point]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row.batch, row.id)):
        groups[row.group].append(row)
    return groups


def sound(rows: Iterable[Point]) -> list[Point]:
    """Rows of deployments none of which is below a fifth of its bound."""
    return [row for group in by_group(rows).values() if all(_share(row) >= BROKEN for row in group) for row in group]


def _share(row: Point) -> float:
    return row.tok_s / row.bound().bound_tok_s


def _cost(row: Point, by_family: bool) -> float | None:
    try:
        return fixed_ms_per_layer(row.tok_s, row.bound(row.family_routing if by_family else UNIFORM), row.model)
    except InputError:
        return None


def _error(row: Point, by_family: bool, cost: float) -> float:
    limit = row.bound(row.family_routing if by_family else UNIFORM, cost)
    return 100 * abs(limit.expected_tok_s / row.tok_s - 1)


def main() -> int:
    rows = points()
    print("  id model                   hardware            tp   C    tok/s   bound  of it    hard  of it")
    for row in rows:
        print(_line(row))
    for left in yaml.safe_load(FILE.read_text())["left_out"]:
        print(f"left out {left['ids']}: {left['what']}; not known: {left['missing']}")
    print("\nabsolute error of predicted tokens per second")
    for name, chosen in (("all deployments", rows), ("without those below a fifth of their bound", sound(rows))):
        for law, by_family in (("uniform routing", False), ("power law of the family", True)):
            print(f"{name}, {law}")
            for what, errors in (
                ("own stream, other rows", within_deployments),
                ("other deployments", across_deployments),
            ):
                plain, fitted = (errors(chosen, by_family, fitted=on) for on in (False, True))
                print(f"  fixed cost of {what}: {fitted}; bound alone: {plain}")
    costs = {name: _cost(group[0], False) for name, group in by_group(rows).items()}
    print("fixed cost, us per layer:", ", ".join(f"{n} {1e3 * c:.0f}" for n, c in costs.items() if c is not None))
    above = exceeding(rows)
    for row in above:
        print(f"id {row.id}: {row.tok_s:g} tok/s exceeds {TOLERANCE} x its hard bound {row.hard_tok_s():g}")
    return 1 if above else 0


def _line(row: Point) -> str:
    limit, hard = row.bound().bound_tok_s, row.hard_tok_s()
    name = f"{row.model.name} {row.model.format}"
    shown = f"{hard:7.0f} {row.tok_s / hard:6.3f}" if hard else f"{'–':>7} {'–':>6}"
    left = f"{row.id:4} {name:23.23} {row.hardware.key:19.19} {row.layout.tp:2} {row.batch:3.0f} {row.tok_s:8.1f}"
    return f"{left} {limit:7.0f} {row.tok_s / limit:6.3f} {shown}"


if __name__ == "__main__":
    sys.exit(main())
