"""What a message shows of a wrong value is one short line."""

from __future__ import annotations

from typing import Annotated, Any

import pytest

from lab.errors import InputError
from lab.roofline.fields import LONGEST_SHOWN, Foreign, expected, number, shown, validated, whole


class Inner(Foreign):
    count: Annotated[int, whole(1, 3)]


class Outer(Foreign):
    inner: Inner | None = None
    share: Annotated[int | float, number(0.5, 2)] = 1
    word: Annotated[str, expected("yes or no", ("yes", "no"))] = "yes"
    parts: dict[str, Inner] | None = None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"inner": {"count": 4}}, "f: p.inner.count: expected a whole number from 1 to 3, got 4"),
        ({"inner": {}}, "f: lacks p.inner.count, so no bound can be computed for it"),
        ({"inner": 3}, "f: p.inner: expected a mapping, got 3"),
        (3, "f: p: expected a mapping, got 3"),
        ({"share": 0.4}, "f: p.share: expected a number from 0.5 to 2, got 0.4"),
        ({"share": float("nan")}, "f: p.share: expected a number from 0.5 to 2, got nan"),
        ({"share": True}, "f: p.share: expected a number from 0.5 to 2, got True"),
        ({"word": "maybe"}, "f: p.word: expected yes or no, got 'maybe'"),
        ({"parts": {"a\nb": {"count": 0}}}, r"f: p.parts.'a\nb'.count: expected a whole number from 1 to 3, got 0"),
    ],
)
def test_the_first_wrong_field_is_named_with_what_is_expected(data: Any, message: str) -> None:
    with pytest.raises(InputError) as error:
        validated(Outer, data, "f", "p.")
    assert str(error.value) == message


def test_what_fits_is_returned_and_the_rest_left_alone() -> None:
    found = validated(Outer, {"inner": {"count": 3}, "share": 2, "of the future": [1]}, "f")
    assert found == Outer(inner=Inner(count=3), share=2)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\nb", r"'a\nb'"),
        (10**5000, "int too long to print"),
        (["x"] * 1000, "['x', 'x', 'x', 'x', 'x', 'x', 'x', 'x', 'x', 'x', 'x', 'x'…"),
    ],
    ids=["a newline", "a long number", "a long list"],
)
def test_values_are_shown_short_and_on_one_line(value: Any, text: str) -> None:
    assert shown(value)[:40] == text[:40] and len(shown(value)) <= LONGEST_SHOWN


def test_a_value_nested_too_deeply_to_print_is_shown_by_its_type() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    assert shown(value) == "list too long to print"
