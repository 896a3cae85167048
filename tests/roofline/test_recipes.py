"""A recipe is found by its name in whatever case, and what is unknown comes with what is known."""

from __future__ import annotations

import pytest

from lab.errors import InputError
from lab.roofline.recipes import FORMATS, known_recipe, plain


@pytest.mark.parametrize("name", ["INT4-g32", "int4-G32", "INT4-G32"])
def test_a_recipe_is_known_in_whatever_case(name: str) -> None:
    assert known_recipe(name, FORMATS) == "INT4-g32"
    assert plain(name, mixture=True) == plain("INT4-g32", mixture=True)


@pytest.mark.parametrize(("name", "hint"), [("nvfp5", "; did you mean 'NVFP4'?"), ("zzz", "; known: BF16, FP8")])
def test_an_unknown_recipe_comes_with_the_nearest_or_with_all(name: str, hint: str) -> None:
    with pytest.raises(InputError, match=rf"^unknown recipe '{name}'") as caught:
        known_recipe(name, ["FP8", "NVFP4", *FORMATS])
    assert hint in str(caught.value)
    assert str(caught.value).count("FP8") <= 1


def test_an_unknown_format_is_called_so() -> None:
    with pytest.raises(InputError, match=r"^unknown weight format 'FP9'; did you mean 'FP8'"):
        plain("FP9", mixture=False)
