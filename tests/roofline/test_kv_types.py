"""A cache type means the same bytes under every name and in every case that engines write it."""

from __future__ import annotations

import pytest

from lab.errors import InputError
from lab.roofline.kv_types import element_bytes


@pytest.mark.parametrize(
    ("name", "size"), [("fp8", 1), ("FP8", 1), ("BFloat16", 2), ("NVFP4", 0.5625), ("Q8_0", 34 / 32), ("f16", 2)]
)
def test_a_type_is_known_in_whatever_case(name: str, size: float) -> None:
    assert element_bytes(name) == size


@pytest.mark.parametrize("name", ["", "fp9", "8"])
def test_an_unknown_type_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=rf"^unknown KV cache type '{name}'"):
        element_bytes(name)
