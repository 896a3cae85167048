"""An error in a file is one line that names file, line and field; without that its owner searches."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict

from lab import yamlfile
from lab.errors import InputError


class Inner(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    seconds: float = 1.0


class Outer(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    name: str
    inner: Inner = Inner()
    many: dict[str, Inner] = {}
    value: bool | int | str | list[int] = 0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file.yaml"


def problem(path: Path, text: str) -> str:
    """What is said about a file of that text, without its path."""
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        yamlfile.load(path).validate(Outer, yamlfile.load(path).data)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"{path}:")
    return message.removeprefix(f"{path}:")


def test_a_good_file_becomes_its_model(path: Path) -> None:
    path.write_text("name: a\ninner: {seconds: 2}\nmany:\n  x: {}\nvalue: [1, 2]\n")
    document = yamlfile.load(path)
    outer = document.validate(Outer, document.data)
    assert (outer.name, outer.inner.seconds, outer.many["x"].seconds, outer.value) == ("a", 2.0, 1.0, [1, 2])


def test_every_value_knows_its_line(path: Path) -> None:
    path.write_text("name: a\n\ninner:\n  seconds: 2\nvalue:\n  - 1\n  - 2\n")
    lines = yamlfile.load(path).lines
    assert (lines["name",], lines["inner",], lines["inner", "seconds"]) == (1, 3, 4)
    assert (lines["value", 0], lines["value", 1]) == (6, 7)


def test_a_location_that_is_not_in_the_file_is_reported_on_the_line_of_its_parent(path: Path) -> None:
    path.write_text("name: a\ninner:\n  seconds: 2\n")
    assert str(yamlfile.load(path).error(("inner", "absent"), "is missing")) == f"{path}:2: inner.absent: is missing"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.yaml: no such file"):
        yamlfile.load(tmp_path / "absent.yaml")


def test_a_file_that_is_no_text_is_refused(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x00\xff")
    with pytest.raises(InputError, match="cannot be read"):
        yamlfile.load(path)


def test_an_empty_file_says_what_belongs_into_it(path: Path) -> None:
    assert problem(path, "") == "1: expected a mapping of name, inner, many, value, got None"


def test_a_list_in_place_of_a_mapping_is_refused(path: Path) -> None:
    assert problem(path, "- a\n").startswith("1: expected a mapping")


@pytest.mark.parametrize(
    ("text", "line"),
    [("name: a\ninner: {seconds: 2\n", 3), ("name: 'a\n", 2), ("name: a\n\tinner: {}\n", 2), ("name: *nobody\n", 1)],
)
def test_broken_yaml_names_the_line(path: Path, text: str, line: int) -> None:
    assert problem(path, text).startswith(f"{line}: not valid YAML: ")


@pytest.mark.parametrize("value", ["2026-13-45", "!!int abc", "!unknown {a: 1}", "!!python/name:os.system x"])
def test_a_value_that_yaml_cannot_make_is_reported_like_any_other(path: Path, value: str) -> None:
    assert problem(path, f"name: a\nvalue: {value}\n").startswith("2: value: ")


def test_a_file_that_holds_itself_is_refused(path: Path) -> None:
    assert "value" in problem(path, "name: a\nvalue: &v [*v]\n")


def test_an_unknown_key_comes_with_the_nearest_known_one(path: Path) -> None:
    assert problem(path, "name: a\ninner:\n  secnods: 2\n") == "3: inner.secnods: unknown key; did you mean 'seconds'?"
    assert problem(path, "name: a\nmany:\n  x:\n    secs: 2\n").startswith("4: many.x.secs: unknown key; did you mean")


def test_an_unknown_key_like_no_other_lists_the_known_ones(path: Path) -> None:
    assert problem(path, "name: a\nzzz: 1\n") == "2: zzz: unknown key; known: inner, many, name, value"


def test_an_unknown_key_is_told_before_what_it_leaves_missing(path: Path) -> None:
    assert problem(path, "nmae: a\n") == "1: nmae: unknown key; did you mean 'name'?"


def test_a_key_that_is_missing_is_named(path: Path) -> None:
    assert problem(path, "inner: {}\n") == "1: name: is required and missing"


def test_a_key_that_stands_twice_is_refused_on_its_second_line(path: Path) -> None:
    assert problem(path, "name: a\ninner: {}\nname: b\n") == "3: name: this key stands here twice; remove one"


def test_a_wrong_type_shows_the_value(path: Path) -> None:
    assert problem(path, "name: a\ninner:\n  seconds: soon\n") == (
        "3: inner.seconds: input should be a valid number, got 'soon'"
    )


def test_a_value_of_none_of_several_types_is_reported_at_its_own_field(path: Path) -> None:
    assert problem(path, "name: a\nvalue: {a: 1}\n") == "2: value: none of bool, int, str, list fits, got {'a': 1}"


def test_a_variable_is_read_from_the_environment(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_TEST_PLACE", "here")
    path.write_text("name: ${LAB_TEST_PLACE}/and/${LAB_TEST_PLACE}\nprice: $5 {a}\n")
    assert yamlfile.load(path).data == {"name": "here/and/here", "price": "$5 {a}"}


def test_an_unset_variable_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAB_TEST_PLACE", raising=False)
    assert problem(path, "name: a\nvalue: ${LAB_TEST_PLACE}\n") == (
        "2: value: the environment variable LAB_TEST_PLACE is not set; export it first"
    )


@pytest.mark.parametrize("value", ["9" * 5000, "0x" + "f" * 5000, "-" + "9" * 21])
def test_a_number_of_many_digits_is_refused_in_a_short_line(path: Path, value: str) -> None:
    said = problem(path, f"name: {value}\n")
    assert said.startswith("1: name: '") and len(said) < 250


def test_a_number_of_twenty_digits_is_read(path: Path) -> None:
    path.write_text(f"name: a\nvalue: {10**20 - 1}\n")
    assert yamlfile.load(path).data["value"] == 10**20 - 1


@pytest.mark.parametrize("text", [f"name: [{'1,' * 5000}]\n", f"name: a\n? {'b' * 5000}\n: 1\n", f"[{'1,' * 5000}]\n"])
def test_long_values_and_keys_are_shortened(path: Path, text: str) -> None:
    assert len(problem(path, text)) < 300


def test_aliases_that_multiply_are_refused(tmp_path: Path) -> None:
    """Six lines that stand for a million values."""
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 6)]
    path = tmp_path / "laughs.yaml"
    path.write_text("\n".join(lines))
    with pytest.raises(InputError, match="holds more than 20,000 values"):
        yamlfile.load(path)


@pytest.mark.parametrize("text", ["? [a, b]\n: 1\n", "? {a: 1}\n: 2\n"])
def test_a_key_is_a_word(tmp_path: Path, text: str) -> None:
    path = tmp_path / "key.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=r"key\.yaml:1: line 1 has a list or mapping as its key"):
        yamlfile.load(path)


def test_a_key_with_a_line_break_leaves_the_message_one_line(tmp_path: Path) -> None:
    path = tmp_path / "break.yaml"
    path.write_text('"a\\nb": 1\n"a\\nb": 2\n')
    with pytest.raises(InputError) as caught:
        yamlfile.load(path)
    assert "\n" not in str(caught.value) and "a\\nb: this key stands here twice" in str(caught.value)
