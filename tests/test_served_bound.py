"""One translation from a server's facts to a bound: proven, asked and unknown cache types, and layouts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lab.errors import LabError
from lab.roofline import Layout, bound
from lab.roofline.hardware_catalogue import find
from lab.roofline.model_catalogue import find as find_model
from lab.served_bound import CacheTypes, cache_types, served_bound
from tests.builders import MODEL

DENSE, CARD = find_model("Llama-3.1-8B"), replace(find("rtx_pro_6000_server"), cache_bytes=0)
ONE = {"tp_size": 1, "pp_size": 1, "ranks": 1, "gpus": 1}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"kv_dtype_k": "q8_0", "kv_dtype_v": "f16", "kv_dtype_asked": "fp8"}, CacheTypes("q8_0", "f16")),
        (
            {"kv_dtype_k": None, "kv_dtype_v": None, "kv_dtype_asked": "fp8"},
            CacheTypes("fp8", "fp8", "asked, not proven"),
        ),
        ({"kv_dtype_k": "fp8", "kv_dtype_asked": "auto"}, CacheTypes(None, None, "not shown")),
        ({}, CacheTypes(None, None, "not shown")),
    ],
)
def test_a_type_is_proven_asked_or_usual(facts: dict[str, Any], expected: CacheTypes) -> None:
    assert cache_types(facts) == expected


def test_the_types_are_told_with_what_is_known_of_them() -> None:
    assert CacheTypes("fp8", "fp8", "asked, not proven").words(MODEL) == "fp8 (asked, not proven)"
    assert CacheTypes(None, None, "not shown").words(MODEL) == "bfloat16 (not shown)"
    assert CacheTypes("q8_0", "f16").words(MODEL) == "q8_0/f16"


def test_the_nominal_bound_takes_what_was_asked_and_the_hard_one_what_is_proven() -> None:
    asked = {**ONE, "kv_dtype_asked": "fp8"}
    nominal = served_bound(asked, DENSE, CARD, 16, 8000)
    by_hand = bound(DENSE, CARD, Layout(), 16, 8000, kv_dtype_k="fp8", kv_dtype_v="fp8", shared_prefix=0.0)
    assert nominal.bound_tok_s == pytest.approx(by_hand.bound_tok_s)
    hard = served_bound(asked, DENSE, CARD, 16, 8000, proven=True).bound_hard_tok_s
    unknown = bound(DENSE, CARD, Layout(), 16, 8000, shared_prefix=0.0).bound_hard_tok_s
    assert hard == pytest.approx(unknown) and unknown > by_hand.bound_hard_tok_s
    shown = {**ONE, "kv_dtype_k": "fp8", "kv_dtype_v": "fp8"}
    assert served_bound(shown, DENSE, CARD, 16, 8000, proven=True).bound_hard_tok_s == by_hand.bound_hard_tok_s


def test_a_layout_that_is_not_shown_has_no_bound() -> None:
    with pytest.raises(LabError, match="spread over its GPUs is not shown"):
        served_bound({"tp_size": None}, DENSE, CARD, 16, 1000)
