"""A record comes back as it was, or is said to be damaged and where."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.errors import LabError
from lab.roofline import hardware_catalogue
from lab.roofline.hardware import Hardware, KernelFigure
from lab.roofline.model import Model
from lab.roofline.model_catalogue import find
from tests.builders import HARDWARE, MODEL, changed

MIXTURE = find("Qwen3.5-397B-A17B")
PROBED = Hardware("processor", 2e10, "probe", kernels=(KernelFigure("read", 4, 2e10),), cache_bytes=1 << 20)


def record_of(value: Any) -> dict[str, Any]:
    return json.loads(json.dumps(asdict(value)))


@pytest.mark.parametrize("value", [MODEL, MIXTURE, HARDWARE, PROBED, hardware_catalogue.find("h200_sxm")])
def test_a_whole_record_comes_back(value: Any) -> None:
    assert type(value).from_record(record_of(value)) == value


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": "two"}, "a model is damaged: layers: input should be a valid integer, got 'two'"),
        ({"layers": True}, "a model is damaged: layers: input should be a valid integer, got True"),
        ({"heads": None}, "a model is damaged: heads"),
        ({"name": 3}, "a model is damaged: name"),
        ({"attention": {}}, "a model is damaged: attention: expected a list, got {}"),
        ({"attention": None}, "a model is damaged: attention: expected a list, got None"),
        ({"attention": [3]}, "attention layers is damaged: expected a mapping, got 3"),
        ({"attention": [{"kind": "flash"}]}, "attention layers is damaged: kind: expected heads or latent or"),
        ({"attention": [{"kind": []}]}, "attention layers is damaged: kind: expected heads or latent or"),
        ({"attention": [{"kind": "heads", "layers": 3}]}, "attention layers is damaged: heads is missing"),
        ({"experts": 3}, "a model's experts is damaged: expected a mapping, got 3"),
        (
            {"experts.params": math.nan},
            "a model's experts is damaged: params: input should be a finite number, got nan",
        ),
        ({"draft": []}, "a model's draft layer is damaged: expected a mapping"),
        ({"draft": {"weight_bytes": 1}}, "a model's draft layer is damaged: weight_bytes_per_step is missing"),
        ({"draft.attention": None}, "attention layers is damaged: expected a mapping, got None"),
        ({"widths": [3]}, "a model is damaged: 'widths' is not known to this version"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_damaged_model_is_said_to_be(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(LabError) as error:
        Model.from_record(changed(record_of(MIXTURE), changes))
    assert str(error.value).startswith(f"the record of {message}") and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"memory_bandwidth_bytes_s": "fast"},
            "hardware is damaged: memory_bandwidth_bytes_s: input should be a valid",
        ),
        (
            {"memory_bandwidth_bytes_s": math.inf},
            "hardware is damaged: memory_bandwidth_bytes_s: input should be a fin",
        ),
        ({"peak_flops_s": {"bf16": "1"}}, "hardware is damaged: peak_flops_s: input should be a valid number, got '1'"),
        ({"joined": 2.5}, "hardware is damaged: joined"),
        ({"kernels": 3}, "hardware is damaged: kernels: expected a list, got 3"),
        ({"kernels": [{"kernel": "read"}]}, "a probe's kernel is damaged: threads is missing"),
        ({"clock": 3}, "hardware is damaged: 'clock' is not known"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_damaged_hardware_is_said_to_be(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(LabError) as error:
        Hardware.from_record(changed(record_of(PROBED), changes))
    assert str(error.value).startswith(f"the record of {message}")


@pytest.mark.parametrize("kind", [Model, Hardware])
@pytest.mark.parametrize("record", [None, 3, [], "model"])
def test_what_is_no_record_at_all(kind: Any, record: Any) -> None:
    with pytest.raises(LabError, match="is damaged: expected a mapping, got"):
        kind.from_record(record)


@pytest.mark.parametrize(("kind", "value"), [(Model, MIXTURE), (Hardware, PROBED)])
def test_what_must_be_there_is_missed_by_name(kind: Any, value: Any) -> None:
    for name in ("name", "layers" if kind is Model else "source"):
        record = record_of(value)
        del record[name]
        with pytest.raises(LabError, match=f"damaged: {name} is missing"):
            kind.from_record(record)


ANYTHING: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(value=ANYTHING, data=st.data())
def test_whatever_a_record_holds_it_comes_back_or_is_damaged(value: Any, data: st.DataObject) -> None:
    kind, whole = data.draw(st.sampled_from([(Model, record_of(MIXTURE)), (Hardware, record_of(PROBED))]))
    place = data.draw(st.sampled_from([whole, *(part for part in whole.values() if isinstance(part, dict))]))
    place[data.draw(st.sampled_from([*place, "new"]))] = value
    try:
        assert isinstance(kind.from_record(whole), kind)
    except LabError as error:
        assert "is damaged: " in str(error) and "\n" not in str(error)
