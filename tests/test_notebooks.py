"""The notebooks as committed: thin, without outputs, and with parameters that the lab accepts."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

import lab
from lab.campaign import PROJECT, RESERVED_LEVERS
from lab.levers import LEVERS
from lab.levers.custom import Custom
from lab.plan import BASELINE_NOTEBOOK
from lab.runner import OF_THE_RUN, ROOFLINE, SUMMARY

FOLDER = PROJECT / "notebooks"
PATHS = sorted(FOLDER.glob("*.ipynb"))
MOST_CODE_LINES = 80
DOORS = {"study": lab.study, "summary": lab.summary, "roofline_view": lab.roofline_view}

every = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def code(path: Path) -> list[Any]:
    return [cell for cell in read(path).cells if cell.cell_type == "code"]


def tagged(path: Path, tag: str) -> list[Any]:
    return [cell for cell in read(path).cells if tag in cell.metadata.get("tags", [])]


def parameters(path: Path) -> list[ast.AnnAssign]:
    """The lines of the parameters cell, each of which must be a typed assignment."""
    lines = ast.parse(tagged(path, "parameters")[0].source).body
    assert all(isinstance(line, ast.AnnAssign) for line in lines)
    return lines  # type: ignore[return-value]


def door_call(path: Path) -> tuple[str, ast.Call]:
    """The one call of a door (`lab.study(...)`, …) in a notebook."""
    calls = list(_door_calls(path))
    assert len(calls) == 1
    return calls[0]


def _door_calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    for cell in code(path):
        for node in ast.walk(ast.parse(cell.source)):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="lab"), attr=name)) if name in DOORS:
                    yield name, node


def test_there_are_notebooks() -> None:
    assert {path.stem for path in PATHS} >= {BASELINE_NOTEBOOK, SUMMARY, ROOFLINE, Custom.notebook}


def test_the_notebooks_of_a_whole_run_are_executed_by_the_runner_into_folders_that_no_lever_can_have() -> None:
    assert {path.stem for path in PATHS if path.stem.startswith("9")} == set(OF_THE_RUN.values())
    assert set(OF_THE_RUN) <= RESERVED_LEVERS
    for notebook in OF_THE_RUN.values():
        assert {"campaign", "run"} <= {ast.unparse(line.target) for line in parameters(FOLDER / f"{notebook}.ipynb")}


@every
def test_a_notebook_is_valid(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor >= 5) == (4, True)
    assert notebook.metadata.kernelspec.name == "python3"


@every
def test_nothing_of_an_execution_is_committed(path: Path) -> None:
    notebook = read(path)
    assert set(notebook.metadata) <= {"kernelspec", "language_info"}
    assert set(notebook.metadata.get("language_info", {})) <= {"name"}
    for cell in notebook.cells:
        assert set(cell.metadata) <= {"tags"}
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None)


@every
def test_every_cell_has_an_id_of_its_own(path: Path) -> None:
    ids = [cell.get("id") for cell in read(path).cells]
    assert all(ids)
    assert len(set(ids)) == len(ids)


@every
def test_a_notebook_is_thin(path: Path) -> None:
    lines = [line for cell in code(path) for line in cell.source.splitlines() if line.strip()]
    assert len(lines) <= MOST_CODE_LINES
    tree = ast.parse("\n".join(cell.source.removesuffix(";") for cell in code(path)))
    logic = ast.For | ast.While | ast.If | ast.Try | ast.FunctionDef | ast.ClassDef
    assert not [node for node in ast.walk(tree) if isinstance(node, logic)]
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert [ast.unparse(node) for node in imports] == ["import lab"]


@every
def test_a_notebook_begins_with_words_and_ends_with_its_sentinel(path: Path) -> None:
    assert read(path).cells[0].cell_type == "markdown"
    assert read(path).cells[0].source.startswith("# ")
    last = code(path)[-1]
    assert last.metadata.get("tags") == ["finish"]
    assert last.source.strip().endswith(".finish()")
    assert len(tagged(path, "finish")) == 1


@every
def test_exactly_one_cell_holds_the_parameters_and_it_is_the_first_of_code(path: Path) -> None:
    assert len(tagged(path, "parameters")) == 1
    assert code(path)[0].metadata.get("tags") == ["parameters"]


@every
def test_parameters_are_typed_one_liners_that_the_lab_accepts(path: Path) -> None:
    cell = tagged(path, "parameters")[0]
    lines = parameters(path)
    assert len(lines) == len(cell.source.splitlines())
    accepted: dict[str, inspect.Parameter] = {}
    for door in DOORS.values():
        accepted = {**inspect.signature(door).parameters, **accepted}
    for line in lines:
        name, value = ast.unparse(line.target), ast.literal_eval(line.value)  # type: ignore[arg-type]
        assert name in accepted
        assert ast.unparse(line.annotation) == accepted[name].annotation
        assert type(value).__name__ == accepted[name].annotation


@every
def test_defaults_are_those_of_the_lab(path: Path) -> None:
    door, _ = door_call(path)
    accepted = inspect.signature(DOORS[door]).parameters
    for line in parameters(path):
        name, value = ast.unparse(line.target), ast.literal_eval(line.value)  # type: ignore[arg-type]
        if name == "campaign":
            assert (PROJECT / value).is_file()
        elif name in accepted and name != "lever":
            assert value == accepted[name].default


@every
def test_every_parameter_reaches_the_lab(path: Path) -> None:
    door, call = door_call(path)
    signature = inspect.signature(DOORS[door])
    bound = signature.bind(*call.args, **{str(word.arg): word.value for word in call.keywords})
    passed = {name: ast.unparse(value) for name, value in bound.arguments.items()}
    names = {ast.unparse(line.target) for line in parameters(path)}
    for name in names & set(signature.parameters) - ({"measure"} if door == "summary" else set()):
        assert passed[name] == name


@pytest.mark.parametrize("name", sorted(LEVERS))
def test_every_lever_has_its_notebook(name: str) -> None:
    path = FOLDER / f"{LEVERS[name].notebook}.ipynb"
    door, call = door_call(path)
    assert (door, ast.literal_eval(call.args[0])) == ("study", name)


def test_no_two_levers_share_a_notebook() -> None:
    notebooks = [kind.notebook for kind in LEVERS.values()]
    assert len(set(notebooks)) == len(notebooks)


def test_an_ad_hoc_lever_is_named_by_a_parameter() -> None:
    path = FOLDER / f"{Custom.notebook}.ipynb"
    assert "lever" in {ast.unparse(line.target) for line in parameters(path)}
    assert ast.unparse(door_call(path)[1].args[0]) == "lever"
