"""Flags become the command line that the engine's parser reads, and what it would not read is refused."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.engines import _option_list
from lab.engines._options import Command, Option, Options, Renamed, ask
from lab.errors import InputError

OPTIONS = Options(
    "engine 1.2",
    [
        Option(("--max-num-seqs",), "value", number="int"),
        Option(("--share",), "value", number="float"),
        Option(("--kv-cache-dtype",), "value", ("auto", "fp8")),
        Option(("--eager", "--no-eager"), "pair"),
        Option(("--metrics",), "switch"),
        Option(("-sc", "--speculative-config"), "json"),
        Option(("--overrides",), "value"),
        Option(("--sizes",), "many", number="int"),
        Option(("--middleware",), "repeated"),
        Option(("--tp-size", "--tp"), "value", number="int"),
    ],
)


def refused(flags: dict[str, Any], *renamed: Renamed, forbidden: dict[str, str] | None = None) -> str:
    with pytest.raises(InputError) as caught:
        OPTIONS.check(flags, forbidden or {}, renamed)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"max_num_seqs": 4}, "--max-num-seqs 4"),
        ({"share": 1}, "--share 1"),
        ({"eager": True}, "--eager"),
        ({"eager": False}, "--no-eager"),
        ({"metrics": True}, "--metrics"),
        ({"metrics": False}, ""),
        ({"sizes": [1, 2]}, "--sizes 1 2"),
        ({"middleware": ["a", "b"]}, "--middleware a --middleware b"),
        ({"tp": 2}, "--tp-size 2"),
        ({"speculative_config": '{"a":1}'}, '--speculative-config {"a":1}'),
    ],
)
def test_a_flag_is_written_as_its_option_takes_it(flags: dict[str, Any], words: str) -> None:
    OPTIONS.check(flags, {}, ())
    assert " ".join(OPTIONS.arguments(flags)) == words


def test_dotted_names_become_one_object() -> None:
    flags = {
        "speculative_config.method": "ngram",
        "max_num_seqs": 4,
        "speculative_config.a.b": [1],
        "overrides.x": True,
    }
    OPTIONS.check(flags, {}, ())
    *first, name, text, other, more = OPTIONS.arguments(flags)
    assert (first, name, other) == (["--max-num-seqs", "4"], "--speculative-config", "--overrides")
    assert (json.loads(text), json.loads(more)) == ({"method": "ngram", "a": {"b": [1]}}, {"x": True})


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"max_num_seq": 1}, "flag 'max_num_seq' is unknown to engine 1.2; did you mean 'max_num_seqs'?"),
        ({"max_num": 1}, "is unknown to engine 1.2"),  # the parser would take the abbreviation
        ({"no_eager": True}, "is unknown to engine 1.2"),
        ({"max_num_seqs": "4"}, "flag max_num_seqs: '4' does not fit; it takes a whole number"),
        ({"max_num_seqs": True}, "flag max_num_seqs: True does not fit; it takes a whole number"),
        ({"share": "much"}, "flag share: 'much' does not fit; it takes a number"),
        ({"kv_cache_dtype": "int3"}, "flag kv_cache_dtype: 'int3' is none of auto, fp8"),
        ({"eager": 1}, "flag eager: 1 does not fit; it is true or false"),
        ({"max_num_seqs": [4]}, "flag max_num_seqs: [4] does not fit; it takes one value"),
        ({"sizes": [1, "x"]}, "flag sizes: 'x' does not fit; it takes a whole number"),
        ({"speculative_config": "ngram"}, "is no JSON; write speculative_config.KEY: VALUE instead"),
        ({"max_num_seqs.x": 1}, "flag 'max_num_seqs.x': max_num_seqs takes no keys"),
        ({"kv_cache_dtype.x": 1}, "takes no keys"),
        ({"speculative_config.a": 1, "speculative_config.a.b": 1}, "'a' has a value already"),
        ({"speculative_config.a.b": 1, "speculative_config.a": 1}, "it holds keys already"),
        ({"speculative_config.a": 1, "speculative_config": "{}"}, "is given as a whole too"),
    ],
)
def test_what_an_option_cannot_take_is_refused(flags: dict[str, Any], message: str) -> None:
    assert message in refused(flags)


def test_a_flag_that_moved_is_named_as_it_is_called_now() -> None:
    moved = Renamed("max_seqs", "max_num_seqs", "it counts requests")
    assert (
        refused({"max_seqs": 4}, moved) == "flag 'max_seqs' is called 'max_num_seqs' in engine 1.2: it counts requests"
    )
    newer = Renamed("sizes", "graph_sizes")
    assert refused({"graph_sizes": 4}, newer) == "flag 'graph_sizes' is called 'sizes' in engine 1.2"
    assert "is unknown to" in refused({"max_seqs": 4}, Renamed("max_seqs", "absent"))


def test_an_option_is_refused_under_each_of_its_names() -> None:
    assert refused({"tp": 2}, forbidden={"tp_size": "not here"}) == "flag 'tp' is refused: not here"
    OPTIONS.check({"max_num_seqs": 2}, {"tp_size": "not here"}, ())


@given(st.dictionaries(st.sampled_from(["max_num_seqs", "tp"]), st.integers()), st.lists(st.integers(), min_size=1))
def test_a_parser_reads_back_what_was_asked(numbers: dict[str, int], sizes: list[int]) -> None:
    parser = argparse.ArgumentParser()
    for name in ("--max-num-seqs", "--tp-size"):
        parser.add_argument(name, type=int)
    parser.add_argument("--sizes", type=int, nargs="+")
    told = vars(parser.parse_args(OPTIONS.arguments({**numbers, "sizes": sizes})))
    expected = {"max_num_seqs": numbers.get("max_num_seqs"), "tp_size": numbers.get("tp"), "sizes": sizes}
    assert told == expected


@pytest.mark.parametrize(
    ("option", "kind", "number"),
    [
        ({"type": int}, "value", "int"),
        ({"type": str}, "value", None),
        ({"type": float}, "value", "float"),
        ({"type": json.loads}, "json", None),
        ({"type": lambda text: text.upper()}, "value", None),
        ({"action": "store_true"}, "switch", None),
        ({"action": argparse.BooleanOptionalAction}, "pair", None),
        ({"action": "append"}, "repeated", None),
        ({"nargs": "*"}, "many", None),
        ({"nargs": 2, "type": int}, "many", "int"),
    ],
)
def test_an_option_is_told_by_how_it_takes_its_value(option: dict[str, Any], kind: str, number: str | None) -> None:
    action = argparse.ArgumentParser().add_argument("--it", **option)
    assert (_option_list.kind_of(action), _option_list.described(action)["number"]) == (kind, number)


def test_options_of_a_command_below_the_first_parser_are_found() -> None:
    top = argparse.ArgumentParser()
    below = top.add_subparsers().add_parser("serve")
    below.add_argument("--anchor")
    assert [action.option_strings for action in _option_list.options_of(top, "--anchor")][1:] == [["--anchor"]]
    assert _option_list.options_of(top, "--other") == []


def test_an_engine_that_cannot_be_imported_says_its_last_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_CACHE", str(tmp_path / "cache"))
    (tmp_path / "broken.py").write_text("raise ImportError('no libcuda.so.1')")
    command = Command("broken", "--anchor", "", ())
    with pytest.raises(InputError, match=r"cannot say which options broken takes: ImportError: no libcuda\.so\.1"):
        ask("engine", command, sys.executable, {"PYTHONPATH": str(tmp_path)}, ["build"])
    assert not (tmp_path / "cache").exists()
