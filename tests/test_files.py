"""A file is the old one or the new one, never half of one, and JSON never holds what JSON does not have."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from lab import files
from lab.errors import DiskFullError, InputError


def test_a_written_file_reads_back_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "new" / "record.json"
    files.write_json(path, {"b": [1, None], "a": "ä"})
    assert files.read_json(path) == {"a": "ä", "b": [1, None]}
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_json_does_not_have_changes_nothing(tmp_path: Path, value: float) -> None:
    path = tmp_path / "record.json"
    files.write_json(path, {"value": 1})
    with pytest.raises(ValueError):
        files.write_json(path, {"value": value})
    assert files.read_json(path) == {"value": 1}


def test_a_write_that_fails_leaves_the_old_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "record.txt"
    files.write_text(path, "old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskFullError, match=r"record\.txt: disk full; free some space, then continue with --resume"):
        files.write_text(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_cannot_be_written_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        files.write_text(tmp_path / "file" / "below.txt", "x")


def test_a_damaged_or_missing_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "half.json").write_text('{"a": ')
    with pytest.raises(InputError, match=r"half\.json: cannot be read"):
        files.read_json(tmp_path / "half.json")
    with pytest.raises(InputError, match=r"absent\.json: no such file"):
        files.read_json(tmp_path / "absent.json")


def test_a_digest_names_the_value_whatever_the_order_of_its_keys() -> None:
    assert files.digest({"a": 1, "b": 2}) == files.digest({"b": 2, "a": 1})
    assert files.digest({"a": 1}) != files.digest({"a": 2})


def test_the_digest_of_a_file_is_that_of_its_text(tmp_path: Path) -> None:
    files.write_text(tmp_path / "a", "text")
    assert files.sha256_file(tmp_path / "a") == files.sha256_text("text")


def test_the_nearest_word_is_suggested_or_all_are_listed() -> None:
    assert files.suggest("ttft", ["ttft_p50_ms", "output_tok_s"]) == "; did you mean 'ttft_p50_ms'?"
    assert files.suggest("zzz", ["b", "a"]) == "; known: a, b"


def test_words_are_near_in_whatever_case_and_listed_once() -> None:
    assert files.suggest("FP8_E4M", ["fp8_e4m3", "q8_0"]) == "; did you mean 'fp8_e4m3'?"
    assert files.suggest("zzz", ["b", "a", "b"]) == "; known: a, b"


def test_a_path_as_typed_need_not_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert files.typed_path("~/absent/x.yaml") == tmp_path / "absent" / "x.yaml"
    (tmp_path / "file").write_text("")
    assert files.typed_path(tmp_path / "file" / "below") == tmp_path / "file" / "below"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "'': is empty; give a name or a path"),
        ("a\0b", r"'a\x00b': holds a NUL character; give a name or a path"),
        ("~no-such-user-here/x", "'~no-such-user-here/x': there is no such user, or no home folder of theirs"),
        ("b" * 300, f"'{'b' * 80}…' (300 characters): cannot be looked at (file name too long)"),
    ],
)
def test_a_path_that_nothing_can_be_called_is_refused(text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        files.typed_path(text)
    assert str(caught.value) == said


def test_a_link_that_leads_to_itself_is_refused(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(link)
    with pytest.raises(InputError, match="cannot be looked at"):
        files.typed_path(link)


def test_a_quoted_word_is_short_and_of_one_line() -> None:
    assert files.quoted("plain ☃") == "'plain ☃'"
    assert files.quoted("a\nb\x1b") == r"'a\nb\x1b'"
    assert files.quoted("c" * 81) == f"'{'c' * 80}…' (81 characters)"
