"""A workload of the campaign file: every kind's fields are asked for, filled in or refused, with line and field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.campaign import Campaign
from lab.errors import InputError
from lab.workloads import Workload
from tests.builders import write_campaign

LEVELS = {"output_tokens": 16, "concurrency": [4]}
CHAT = {"kind": "chat", **LEVELS}
RANDOM = {"kind": "random", "input_tokens": 512, **LEVELS}
SHARED = {"kind": "shared_prefix", "input_tokens": 64, "prefix_tokens": 512, "prefixes": 8, **LEVELS}
JSONL = {"kind": "jsonl", "path": "own.jsonl", **LEVELS}
TRACE = {"kind": "trace", "path": "own.jsonl", **LEVELS}


def load(folder: Path, workload: dict[str, Any]) -> Workload:
    """The workload as a campaign file gives it; the file beside it holds prompts of ten seconds."""
    line = '{{"at_s": {}, "prompt": "Once upon a time", "output_tokens": 8}}\n'
    (folder / "own.jsonl").write_text("".join(line.format(at_s) for at_s in (0, 4, 10)))
    return Campaign.load(write_campaign(folder, {"workloads": {"chat": workload}})).workloads["chat"]


@pytest.mark.parametrize(
    ("given", "api", "arrivals"),
    [
        (CHAT, "chat", "closed"),
        (RANDOM, "completions", "closed"),
        (SHARED, "completions", "closed"),
        (JSONL, None, "closed"),
        (TRACE, None, "trace"),
        (RANDOM | {"api": "generate", "arrivals": "poisson", "rate_rps": 4}, "generate", "poisson"),
        (CHAT | {"arrivals": "constant", "rate_rps": 0.5}, "chat", "constant"),
        (TRACE | {"arrivals": "trace", "speed": 2, "api": "llamacpp"}, "llamacpp", "trace"),
    ],
)
def test_every_kind_loads_with_its_defaults(tmp_path: Path, given: dict[str, Any], api: str | None, arrivals: str):
    workload = load(tmp_path, given)
    assert (workload.api, workload.arrivals, workload.temperature) == (api, arrivals, 0)


def test_a_workload_made_in_code_has_the_same_defaults():
    assert Workload(**CHAT).arrivals == "closed"


@pytest.mark.parametrize("given", [JSONL, TRACE])
def test_output_tokens_may_come_from_the_file(tmp_path: Path, given: dict[str, Any]):
    assert load(tmp_path, {key: value for key, value in given.items() if key != "output_tokens"}).output_tokens is None


@pytest.mark.parametrize(("word", "means"), [(True, "on"), (False, "off"), ("on", "on"), ("default", "default")])
def test_thinking_is_a_word_although_yaml_reads_a_bare_one_as_a_truth_value(tmp_path: Path, word: Any, means: str):
    assert load(tmp_path, CHAT | {"thinking": word}).thinking == means


def test_a_resolved_workload_loads_again():
    for given in (CHAT, RANDOM, SHARED, JSONL, TRACE):
        workload = Workload(**given)
        assert Workload(**workload.model_dump()) == workload


def without(workload: dict[str, Any], field: str) -> dict[str, Any]:
    return {key: value for key, value in workload.items() if key != field}


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown kind": (CHAT | {"kind": "chatt"}, "kind: unknown kind 'chatt'; did you mean 'chat'?"),
    "an unknown key": (CHAT | {"outputs_tokens": 3}, "outputs_tokens: unknown key; did you mean 'output_tokens'?"),
    "no output": (without(CHAT, "output_tokens"), ": kind 'chat' needs output_tokens; add it"),
    "one output token": (CHAT | {"output_tokens": 1}, "output_tokens: input should be greater than 1, got 1"),
    "no input": (without(RANDOM, "input_tokens"), ": kind 'random' needs input_tokens; add it"),
    "no prefixes": (without(SHARED, "prefixes"), ": kind 'shared_prefix' needs prefixes; add it"),
    "no path": (without(JSONL, "path"), ": kind 'jsonl' needs path; add it"),
    "input for chat": (CHAT | {"input_tokens": 9}, "input_tokens: is not used by kind 'chat'; remove it"),
    "a path for random": (RANDOM | {"path": "x"}, "path: is not used by kind 'random'; remove it"),
    "a speed without a trace": (JSONL | {"speed": 2}, "speed: is not used by kind 'jsonl'; remove it"),
    "thinking about random words": (
        RANDOM | {"thinking": "on"},
        "thinking: is not used by kind 'random'; remove it",
    ),
    "thinking without a template": (
        CHAT | {"api": "completions", "thinking": "off"},
        "thinking: needs the chat template, which api 'completions' does not apply",
    ),
    "an unknown api": (
        CHAT | {"api": "rest"},
        "api: input should be 'chat', 'completions', 'generate' or 'llamacpp', got 'rest'",
    ),
    "unknown arrivals": (
        CHAT | {"arrivals": "open"},
        "arrivals: input should be 'closed', 'poisson', 'constant' or 'trace', got 'open'",
    ),
    "no rate": (CHAT | {"arrivals": "poisson"}, ": arrivals 'poisson' need rate_rps, requests per second; add it"),
    "a rate in a closed loop": (
        CHAT | {"rate_rps": 3},
        "rate_rps: has no use with arrivals 'closed'; remove it, or choose poisson or constant",
    ),
    "a rate for a trace": (
        TRACE | {"rate_rps": 3},
        "rate_rps: has no use with arrivals 'trace'; remove it, or choose poisson or constant",
    ),
    "a rate of nothing": (
        CHAT | {"arrivals": "constant", "rate_rps": 0},
        "rate_rps: input should be greater than 0, got 0",
    ),
    "times without a trace": (
        CHAT | {"arrivals": "trace"},
        "arrivals: kind 'chat' brings no times; use closed, poisson or constant, or the kind trace",
    ),
    "other times for a trace": (
        TRACE | {"arrivals": "poisson", "rate_rps": 3},
        "arrivals: kind 'trace' brings its own times; remove 'poisson'",
    ),
    "a negative temperature": (
        CHAT | {"temperature": -1},
        "temperature: input should be greater than or equal to 0, got -1",
    ),
    "prefixes by the million": (
        SHARED | {"prefixes": 10**6},
        "prefixes: input should be less than or equal to 100000, got 1000000",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_one_line_with_file_line_and_field(tmp_path: Path, case: str):
    given, expected = BAD[case]
    with pytest.raises(InputError) as caught:
        load(tmp_path, given)
    lines = (tmp_path / "small.yaml").read_text().splitlines()
    field = expected.partition(":")[0]
    first = next(n for n, line in enumerate(lines, 1) if line.strip() == "chat:")
    inside = [n for n, line in enumerate(lines, 1) if n > first and line.strip().startswith(f"{field}:")]
    where = f"{tmp_path / 'small.yaml'}:{inside[0] if field else first}: workloads.chat"
    assert str(caught.value) == (f"{where}.{expected}" if field else where + expected)


def test_a_broken_file_of_prompts_is_refused_with_both_places(tmp_path: Path):
    own = tmp_path / "prompts" / "own.jsonl"
    own.parent.mkdir()
    own.write_text('{"prompt": "x"}\n{"prompt": 5}\n')
    path = write_campaign(tmp_path, {"workloads": {"chat": JSONL | {"path": "prompts/own.jsonl"}}})
    with pytest.raises(InputError) as caught:
        Campaign.load(path)
    line = next(n for n, text in enumerate(path.read_text().splitlines(), 1) if "own.jsonl" in text)
    assert str(caught.value) == f"{path}:{line}: workloads.chat.path: {own}:2: prompt: must be a text, got 5"


def test_a_missing_file_of_prompts_is_refused_relative_to_the_campaign(tmp_path: Path):
    path = write_campaign(tmp_path, {"workloads": {"chat": JSONL | {"path": "absent.jsonl"}}})
    with pytest.raises(InputError, match=f"workloads.chat.path: {tmp_path}/absent.jsonl: prompts cannot be read"):
        Campaign.load(path)


def test_a_trace_shorter_than_warm_up_and_window_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match=r"own.jsonl: ends after 2.5 s, warm-up and window take 3 s; shorten"):
        load(tmp_path, TRACE | {"speed": 4})
