"""The levers are found by registration, and a wrong name or option is bad input with a place in the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab import levers
from lab.campaign import Campaign
from lab.errors import InputError
from lab.levers import LEVERS, base
from lab.levers.custom import Custom
from tests.builders import write_campaign

KNOWN = {
    "autotune",
    "cuda_graphs",
    "engine_build",
    "expert_parallel",
    "kv_cache_dtype",
    "mtp",
    "nccl_ll_ring",
    "nvfp4_checkpoint",
}


def campaign(folder: Path, levers: dict[str, Any]) -> Campaign:
    return Campaign.load(write_campaign(folder, {"levers": levers}))


def refused(file: Campaign, name: str) -> str:
    with pytest.raises(InputError) as caught:
        levers.get(file, name)
    assert "\n" not in str(caught.value)
    return str(caught.value).partition(": ")[2]


def test_every_lever_is_known_under_the_name_of_its_module() -> None:
    assert set(LEVERS) >= KNOWN
    assert all(kind.__module__ == f"lab.levers.{name}" for name, kind in LEVERS.items())
    assert "custom" not in LEVERS


@pytest.mark.parametrize("name", sorted(LEVERS))
def test_every_lever_states_its_hypothesis_before_the_run(name: str) -> None:
    kind = LEVERS[name]
    assert all(len(text) > 10 for text in (kind.title, kind.mechanism, kind.predicted, kind.backfires))


def test_a_lever_registered_twice_is_an_error_of_the_program() -> None:
    with pytest.raises(ValueError, match="two levers are called mtp"):
        base.register(LEVERS["mtp"])


def test_a_lever_has_the_options_of_the_file(tmp_path: Path) -> None:
    lever = levers.get(campaign(tmp_path, {"mtp": {"draft_tokens": 3}}), "mtp")
    assert (lever.name, lever.options.draft_tokens, lever.options.method) == ("mtp", 3, "ngram")


def test_an_unknown_option_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    file = campaign(tmp_path, {"mtp": {"draft_token": 3}})
    assert refused(file, "mtp") == "levers.mtp.draft_token: unknown key; did you mean 'draft_tokens'?"


def test_a_lever_without_options_refuses_any(tmp_path: Path) -> None:
    assert refused(campaign(tmp_path, {"cuda_graphs": {"on": True}}), "cuda_graphs").startswith(
        "levers.cuda_graphs.on: "
    )


def test_a_required_option_is_named(tmp_path: Path) -> None:
    file = campaign(tmp_path, {"kv_cache_dtype": {}})
    assert refused(file, "kv_cache_dtype") == "levers.kv_cache_dtype.dtype: is required and missing"


def test_a_method_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    assert "levers.mtp.method: input should be 'ngram', got 'eagle'" in refused(
        campaign(tmp_path, {"mtp": {"method": "eagle"}}), "mtp"
    )


def test_an_unknown_lever_is_refused_with_the_nearest_one_and_the_way_out(tmp_path: Path) -> None:
    said = refused(campaign(tmp_path, {"cuda_graph": {}}), "cuda_graph")
    assert said.startswith("levers.cuda_graph: unknown lever 'cuda_graph'; did you mean 'cuda_graphs'?")
    assert said.endswith("or give it a key 'custom' with the treatment")


def test_a_lever_that_the_file_does_not_hold_is_refused(tmp_path: Path) -> None:
    said = refused(campaign(tmp_path, {"mtp": {}}), "mtpp")
    assert said == "levers: there is no lever 'mtpp' in it; did you mean 'mtp'?"


def test_any_name_may_be_an_ad_hoc_lever(tmp_path: Path) -> None:
    custom = {"custom": {"title": "Half", "treatment": {"flags": {"slots": 2}}}}
    lever = levers.get(campaign(tmp_path, {"half": custom}), "half")
    assert isinstance(lever, Custom)
    assert (lever.name, lever.title, lever.notebook) == ("half", "Half", "09_custom")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"custom": {"title": "t", "treatment": {}}, "flags": {}},
            "levers.x.flags: an ad-hoc lever holds only the key 'custom'",
        ),
        (
            {"custom": {"title": "t", "treatment": {"flag": {}}}},
            "levers.x.custom.treatment.flag: unknown key; did you mean 'flags'?",
        ),
        ({"custom": {"treatment": {}}}, "levers.x.custom.title: is required and missing"),
        ({"custom": {"title": "t"}}, "levers.x.custom.treatment: is required and missing"),
        ({"custom": None}, "levers.x.custom: expected a mapping of"),
        (
            {"custom": {"title": "t", "treatment": {"flags": {"a": {"b": 1}}}}},
            "levers.x.custom.treatment.flags.a: none of",
        ),
    ],
)
def test_a_bad_ad_hoc_lever_is_refused_at_its_field(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    assert refused(campaign(tmp_path, {"x": options}), "x").startswith(said)


def test_levers_are_resolved_in_the_order_of_the_file(tmp_path: Path) -> None:
    file = campaign(tmp_path, {"mtp": {}, "autotune": {}, "cuda_graphs": {}})
    assert [lever.name for lever in levers.resolve(file)] == ["mtp", "autotune", "cuda_graphs"]
    assert [lever.name for lever in levers.resolve(file, ["cuda_graphs", "mtp"])] == ["mtp", "cuda_graphs"]
    assert levers.resolve(file, []) == []
    with pytest.raises(InputError, match="there is no lever 'autotun'"):
        levers.resolve(file, ["autotun"])
