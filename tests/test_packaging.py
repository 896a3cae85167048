"""What is required is used, what is used is required, and each heavy dependency has one door."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lab
from lab.campaign import PROJECT

MODULES = sorted((PROJECT / "lab").rglob("*.py"))
TESTS = sorted((PROJECT / "tests").rglob("*.py"))
# Names of distributions that differ from what is imported.
IMPORTED_AS = {"pyyaml": "yaml", "nvidia-ml-py": "pynvml"}
# Used by people, or as programs of their own.
TOOLS = {"jupyterlab", "papermill", "ipykernel", "pytest-timeout", "pytest-xdist", "ruff", "nbstripout"}
# Which rooms may import what is slow to import, or touches the world.
DOORS = {
    "mlflow": ("tracking",),
    "matplotlib": ("report",),
    "papermill": ("runner.py",),
    "nbconvert": ("notebook_process.py", "tracking"),
    "httptools": ("load", "simulator"),
    "uvloop": ("load", "simulator"),
    "scipy": ("stats", "load", "accuracy"),
    "pandas": ("load", "observe", "stats", "report", "tracking", "effects.py", "roofline_views.py", "views.py"),
}
PURE = ("plan.py", "verdict.py", "audit", "stats", "roofline", "health.py", "context.py", "effects.py", "judgement.py")
WORLD = {"requests", "socket", "subprocess", "time", "datetime", "random", "asyncio", "httptools", "psutil"}


def imports(path: Path) -> set[str]:
    """Top-level names that a file imports when it runs, at its head or later."""
    return {name.partition(".")[0] for name in _imports(ast.parse(path.read_text()))}


def _imports(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module and not child.level:
            yield child.module
        yield from _imports(child)


def room(path: Path) -> str:
    """The room of a module: its folder in lab/, or its own name."""
    return path.relative_to(PROJECT / "lab").parts[0]


def requirements() -> list[str]:
    lines = (PROJECT / "requirements.txt").read_text().splitlines()
    entries = [line.partition("#")[0].strip() for line in lines]
    return [re.split(r"[\[<>=!~ ;]", entry)[0].lower() for entry in entries if entry and not entry.startswith("-")]


def module_of(requirement: str) -> str:
    return IMPORTED_AS.get(requirement, requirement.replace("-", "_"))


def test_every_requirement_is_used() -> None:
    used = set().union(*(imports(path) for path in [*MODULES, *TESTS]))
    unused = [name for name in requirements() if name not in TOOLS and module_of(name) not in used]
    assert unused == []


def test_everything_used_is_required() -> None:
    known = {module_of(name) for name in requirements()} | set(sys.stdlib_module_names) | {"lab"}
    used = set().union(*(imports(path) for path in MODULES))
    assert used - known == set()


def test_the_last_requirement_makes_the_lab_importable_from_anywhere() -> None:
    assert (PROJECT / "requirements.txt").read_text().splitlines()[-1] == "-e ."


def test_the_version_is_that_of_the_package() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", lab.__version__)


@pytest.mark.parametrize("name", sorted(DOORS))
def test_every_heavy_dependency_has_its_door(name: str) -> None:
    rooms = {room(path) for path in MODULES if name in imports(path)}
    assert rooms <= set(DOORS[name])


@pytest.mark.parametrize("path", [p for p in MODULES if room(p) in PURE], ids=lambda p: str(p.relative_to(PROJECT)))
def test_pure_rooms_know_no_network_no_clock_and_no_chance(path: Path) -> None:
    assert imports(path) & WORLD == set()


def test_engines_know_nothing_of_levers() -> None:
    for path in MODULES:
        if room(path) == "engines":
            assert "lab.levers" not in set(_imports(ast.parse(path.read_text())))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PROJECT)))
def test_every_module_opens_by_saying_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text()))
