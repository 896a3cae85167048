"""Loops at the end of a text, and what only looks like one."""

from __future__ import annotations

import string

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lab.load.repeats import repeats

LETTERS = st.text(string.ascii_letters + string.digits + " .,\n", min_size=1, max_size=128)
PROSE = (
    "The committee met on Tuesday to discuss the budget for the coming year. Several members asked for more time to "
    "read the report, which had arrived only the evening before, and the chair agreed to postpone the vote."
)
CODE = """
def closing(self):
        self.first = first
        self.second = second
        if first:
            return {
                "a": {
                    "b": {
                        "c": 1,
                    },
                },
            }
        for index in range(10):
            if index > 3:
                if index > 4:
                    if index > 5:
                        print(index)
"""
NUMBERED = "\n".join(f"{n}. Check the value of item {n}" for n in range(1, 40))
TABLE = "| name | value |\n|" + "-" * 70 + "|" + "-" * 70 + "|"


@given(st.text(max_size=600), LETTERS, st.integers(4, 12), st.integers(0, 127))
@settings(deadline=None)
def test_four_repetitions_of_enough_characters_are_a_loop(before: str, cycle: str, times: int, cut: int):
    assume(any(character.isalnum() for character in cycle))
    times = max(times, -(-64 // len(cycle)))
    loop = cycle * times + cycle[: cut % len(cycle)]
    assert repeats(before + loop) is True


@given(st.text(max_size=63))
@settings(deadline=None)
def test_short_text_is_no_loop(text: str):
    assert not repeats(text)


@given(st.text(string.ascii_lowercase, min_size=129, max_size=200))
@settings(deadline=None)
def test_three_repetitions_of_a_long_stretch_are_no_loop(stretch: str):
    assume(len(set(stretch)) > 3 and repeats(stretch) is False)
    assert repeats(stretch * 3) is False


@pytest.mark.parametrize("text", [PROSE, CODE, NUMBERED, TABLE, PROSE + "\n" + "=" * 100, CODE + " " * 60])
def test_ordinary_text_is_no_loop(text: str):
    assert repeats(text) is False


@given(st.integers(64, 2000))
@settings(deadline=None)
def test_ordinary_text_is_no_loop_wherever_it_is_cut(length: int):
    for text in (CODE, NUMBERED, PROSE * 3):
        assert repeats(text[:length]) is False


@pytest.mark.parametrize("text", [" blue" * 20, "\n" * 200, "ha" * 40, "I am sure that I am right. " * 5, "-" * 200])
def test_model_that_is_stuck_is_a_loop(text: str):
    assert repeats(PROSE + text) is True


def test_loop_that_was_left_again_is_none():
    assert repeats(" blue" * 50 + " and then something else happened to all of them, quite unlike it.") is False


def test_no_text_is_unknown():
    assert repeats("") is None
    assert repeats(None) is None
