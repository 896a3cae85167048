"""Numbers of a campaign file that cannot be meant, and guards that no measurement could break, are one line each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab import checkpoints
from lab.campaign import MOST_PASSES, Campaign, Guard, Rule
from lab.errors import InputError
from tests.builders import StubEngine, write_campaign
from tests.test_campaign import line_of, problem

HUGE = "9" * 5000


@pytest.mark.parametrize("value", [f"0x{'f' * 5000}", HUGE, "-0xffffffffffffffffffffff", "1" + ":59" * 3000])
def test_a_number_of_thousands_of_digits_is_one_short_line(tmp_path: Path, value: str) -> None:
    path = write_campaign(tmp_path)
    said = problem(path, path.read_text().replace("name: small", f"name: {value}"))
    assert said.startswith("1: name: '") and len(said) < 300
    assert "sys.set_int" not in said


def test_a_number_that_a_variable_holds_is_as_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_TEST_HUGE", f"0x{'f' * 5000}")
    path = write_campaign(tmp_path)
    said = problem(path, path.read_text().replace("name: small", "name: ${LAB_TEST_HUGE}"))
    assert said == "1: name: '${LAB_TEST_HUGE}' is a number of more than 20 digits"


def test_a_seed_of_sixty_four_bits_is_read(tmp_path: Path) -> None:
    path = write_campaign(tmp_path, {"server.flags.slots": 2**64 - 1})
    assert Campaign.load(path).server.flags["slots"] == 2**64 - 1


def test_a_long_name_is_shown_by_its_beginning(tmp_path: Path) -> None:
    said = problem(write_campaign(tmp_path, {"name": "a" * 5000}))
    assert said == f"1: name: '{'a' * 80}…' (5000 characters) may hold only small letters, digits and '-'"


@pytest.mark.parametrize(
    ("place", "value", "most"),
    [
        ("budget.hours", 1e308, 8784),
        ("limits.start_seconds", 1e308, 604800),
        ("limits.stall_seconds", 1e308, 604800),
        ("limits.drain_seconds", 604801, 604800),
        ("window.seconds", 1e308, 86400),
        ("rule.min_effect_pct", 1e308, 1000),
        ("rule.passes.max", MOST_PASSES + 1, MOST_PASSES),
        ("accuracy.max_nll_rise_pct", 1e308, 1000),
        ("accuracy.max_task_drop_pct", 101, 100),
    ],
)
def test_what_nobody_can_wait_for_is_refused_and_the_most_is_told(
    tmp_path: Path, place: str, value: float, most: float
) -> None:
    section, _, field = place.partition(".")

    def written(number: float) -> Path:
        absent = section in ("budget", "limits", "accuracy")
        return write_campaign(tmp_path, {section: {field: number}} if absent else {place: number})

    said = problem(written(value))
    assert f": {place}: input should be less than or equal to {most}, got {value!r}" in said
    Campaign.load(written(most))


GUARDS: dict[str, tuple[dict[str, Any], str]] = {
    "nothing falls by more than all of it": (
        {"output_tok_s": {"max_decrease_pct": 100}},
        "max_decrease_pct is 100, but nothing falls by more than 100 %, so this guard could never break; give less "
        "than 100",
    ),
    "a lower latency is no harm": (
        {"ttft_p50_ms": {"max_decrease_pct": 10}},
        "ttft_p50_ms is better when lower; give max_increase_pct, how much it may rise",
    ),
    "a higher rate is no harm": (
        {"output_tok_s": {"max_increase_pct": 10}},
        "output_tok_s is better when higher; give max_decrease_pct, how much it may fall",
    ),
    "a larger cache is no harm": (
        {"kv_tokens": {"max_increase_pct": 10}},
        "kv_tokens is better when higher; give max_decrease_pct, how much it may fall",
    ),
    "a rise without measure": ({"ttft_p50_ms": {"max_increase_pct": 1e308}}, "less than or equal to 1000, got 1e+308"),
}


@pytest.mark.parametrize("case", GUARDS)
def test_a_guard_that_cannot_be_meant_says_which_direction_is(tmp_path: Path, case: str) -> None:
    guards, expected = GUARDS[case]
    path = write_campaign(tmp_path, {"rule.guards": guards})
    said = problem(path)
    assert ": rule.guards" in said and said.endswith(expected)
    assert line_of(path, "guards") <= int(said.partition(":")[0]) <= line_of(path, "max_")


@pytest.mark.parametrize(
    "guards",
    [
        {"ttft_p50_ms": {"max_increase_pct": 10.0}},
        {"output_tok_s": {"max_decrease_pct": 99.9}},
        {"kv_tokens": {"max_decrease_pct": 10.0}},
    ],
)
def test_a_guard_against_harm_is_taken(tmp_path: Path, guards: dict[str, Any]) -> None:
    rule = Campaign.load(write_campaign(tmp_path, {"rule.guards": guards})).rule
    assert rule.guards == {name: Guard(**limit) for name, limit in guards.items()}


def test_a_rule_made_in_python_is_as_strict() -> None:
    with pytest.raises(ValueError, match="request_rps is better when higher"):
        Rule(workload="chat", concurrency=4, guards={"request_rps": Guard(max_increase_pct=10.0)})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a" * 5000, "(5000 characters): cannot be looked at (file name too long)"),
        ("a\0b", "holds a NUL character"),
        ("", "is empty"),
        ("~no-such-user-here/x", "there is no such user"),
    ],
)
def test_a_campaign_that_no_file_can_be_called_is_one_line(name: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        Campaign.load(name)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


def test_a_long_path_that_could_be_is_not_found_in_a_short_line() -> None:
    with pytest.raises(InputError) as caught:
        Campaign.load("ab/" * 1300)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", ["a" * 5000, "~no-such-user-here/x"])
def test_a_checkpoint_or_workload_that_no_file_can_be_called_is_told_at_its_field(
    tmp_path: Path, stub: StubEngine, name: str
) -> None:
    with pytest.raises(InputError) as caught:
        checkpoints.resolve(name, tmp_path)
    assert len(str(caught.value)) < 300
    lines = {"kind": "jsonl", "path": name, "concurrency": [1, 4]}
    said = problem(write_campaign(tmp_path, {"workloads.chat": lines}))
    assert ": workloads.chat.path: '" in said and len(said) < 300
