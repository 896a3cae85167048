"""`lab check` against simulated servers of each dialect: what it says is what the server really did."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab import check as checking
from lab.audit import FINDING, INVALID
from lab.campaign import Arm, Limits
from lab.check import check
from lab.cli import main
from lab.engines import get
from lab.engines.server import Server
from lab.errors import InputError
from lab.report.check_page import render
from lab.roofline import Layout, bound
from lab.roofline.hardware_catalogue import find
from lab.roofline.model_catalogue import find as find_model
from lab.workloads import MOST_CLIENTS

LLAMA = "Llama-3.1-8B"
LIMITS = Limits(start_seconds=60)
FLAGS = {"vllm": "--max-num-seqs", "sglang": "--max-running-requests", "llamacpp": "--parallel"}
CONTRACT = {
    *("url", "engine", "offered", "running", "waiting", "littles_law", "cap", "diagnosis", "codes", "output_tok_s"),
    *("ttft_p50_ms", "tpot_p50_ms", "bound_tok_s", "bound_fraction", "seconds"),
}


@contextmanager
def serving(folder: Path, model: str = "m", **flags: Any) -> Iterator[Server]:
    """A simulated server in real time, 8 ms a step."""
    arm = Arm(name="control", engine="simulated", checkpoint=model, flags={"step_ms": 8.0, **flags})
    with get("simulated").launch(arm, folder, LIMITS, f"test-{uuid.uuid4().hex}") as server:
        yield server


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else knows the servers of these tests, and they need no warm-up."""
    monkeypatch.setattr(checking, "IDLE_LOOK_SECONDS", 0.2)
    monkeypatch.setattr(checking, "WARMUP_SECONDS_MIN", 0.3)


@pytest.mark.parametrize("dialect", ["vllm", "sglang", "llamacpp"])
def test_each_engine_is_recognised_and_its_cap_is_told(tmp_path: Path, dialect: str) -> None:
    with serving(tmp_path, dialect=dialect, max_running=4) as server:
        checked = check(server.url, 8, 2.0)
        truth = server.truth(checked.trial.window["opened_s"], checked.trial.window["closed_s"])
    figures = checked.figures()
    assert set(figures) >= CONTRACT
    assert (figures["engine"], figures["offered"], figures["cap"]) == (dialect, 8, 4)
    assert figures["running"] == pytest.approx(truth["running_mean"], abs=0.15)
    assert figures["littles_law"] == pytest.approx(8, abs=0.2)
    assert figures["output_tok_s"] == pytest.approx(truth["tokens_sent"] / 2.0, rel=0.02)
    assert (figures["diagnosis"], figures["codes"][0]) == ("cap-bound", "batch-cap")
    page = render(checked)
    assert "asked 8   ran 4.0   waited 4.0   cap 4   in flight at the client 8.0\n" in page
    assert "\nto do      start the server with --" in page
    assert page.count("batch-cap") == 0 and page.count("waited") == 2
    for width in (80, 100):
        assert max(map(len, render(checked, width).splitlines())) <= width
    assert (figures["cap_flag"], figures["waited"]) == (FLAGS[dialect], pytest.approx(4, abs=0.2))
    assert figures["fix"].startswith(f"start the server with {FLAGS[dialect]} 8")
    assert (figures["failed"], figures["window_seconds"]) == (0, pytest.approx(2, abs=0.05))
    assert figures["sent"] > figures["requests_in_window"] > 0
    assert any("the server's log" in text for text in figures["missing"])


def test_who_set_the_cap_is_told(tmp_path: Path) -> None:
    speculation = {"speculation.tokens": 2, "speculation.acceptance": [0.8, 0.5], "speculation.running_limit": 48}
    with serving(tmp_path, dialect="sglang", max_running=4096, **speculation) as server:
        figures = check(server.url, 2, 1.0).figures()
    assert figures["cap"] == 48
    assert "speculative decoding" in figures["cap_source"]


def test_a_server_without_metrics_is_loaded_all_the_same_and_called_blind(tmp_path: Path) -> None:
    with serving(tmp_path, dialect="llamacpp", **{"metrics.off": True}) as server:
        checked = check(server.url, 2, 1.0)
    assert (checked.diagnosis.name, checked.diagnosis.fix) == ("blind", "start llama.cpp with --metrics")
    assert checked.diagnosis.text.endswith("requests ran; the server does not show how many waited")
    assert checked.figures()["waiting"] is None
    assert checked.figures()["output_tok_s"] > 0
    assert any("--metrics" in text for text in checked.missing)
    assert "--metrics" in render(checked)


@pytest.mark.parametrize("dialect", ["vllm", "sglang", "llamacpp"])
def test_a_server_is_held_against_the_bound_of_the_hardware_that_is_named(tmp_path: Path, dialect: str) -> None:
    card = find("h200_sxm")
    with serving(tmp_path, model=LLAMA, dialect=dialect) as server:
        checked = check(server.url, 2, 1.5, hardware=card)
    figures, trial = checked.figures(), checked.trial
    assert figures["bound_unknown"] is None
    running, context = trial.server["running"], trial.metrics["mean_context_tokens"]
    expected = bound(find_model(LLAMA), card, Layout(), running, context, shared_prefix=0.0)
    assert figures["bound_tok_s"] == pytest.approx(expected.bound_tok_s)
    assert figures["bound_fraction"] == pytest.approx(figures["output_tok_s"] / figures["bound_tok_s"])
    assert "structural-gap" not in figures["codes"] and "over-roofline" not in figures["codes"]
    assert "\nbound      " in render(checked)


def test_a_server_far_below_its_bound_and_one_above_it_are_told(tmp_path: Path) -> None:
    slow, fast = find("b200_sxm"), replace(find("l40s"), memory_bandwidth_bytes_s=100e9)
    with serving(tmp_path, model=LLAMA, step_ms=20.0) as server:
        below, above = (check(server.url, 2, 1.5, hardware=card) for card in (slow, fast))
    assert below.figures()["bound_fraction"] < 0.2
    gap = next(code for code in below.codes if code.code == "structural-gap")
    assert gap.severity == FINDING
    assert above.figures()["bound_fraction"] > 1.02
    assert next(code for code in above.codes if code.code == "over-roofline").severity == INVALID


def test_a_model_that_is_in_no_catalogue_leaves_the_bound_unknown(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        checked = check(server.url, 2, 1.0, hardware=find("h200_sxm"))
    assert (checked.figures()["bound_tok_s"], checked.figures()["bound_fraction"]) == (None, None)
    assert "unknown: m: neither a model of the catalogue" in render(checked)


def test_unknown_hardware_is_refused_before_anything_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "http://127.0.0.1:9", "-c", "2", "--hardware", "h200_sx"]) == 2
    assert capsys.readouterr().err == "lab: unknown hardware 'h200_sx'; did you mean 'h200_sxm'?\n"


def test_nothing_listens() -> None:
    with pytest.raises(InputError, match=r"127\.0\.0\.1:9"):
        check("http://127.0.0.1:9", 2, 1.0)


def test_the_command_prints_json_for_scripts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("lab.arguments.SHORTEST_CHECK_SECONDS", 1)
    with serving(tmp_path, max_running=4) as server:
        assert main(["check", server.url, "-c", "2", "--seconds", "1", "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["cap"] == 4
    assert "lab: looking at" in said.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-c", "0"], "'0' is not a whole number from 1"),
        (["-c", "2", "--seconds", "1"], "'1' is not a number of seconds from 4"),
        (["-c", "2", "--seconds", "nan"], "'nan' is not a number of seconds"),
    ],
)
def test_numbers_that_cannot_be_are_refused(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["check", "http://127.0.0.1:9", *arguments])
    assert left.value.code == 2
    assert words in capsys.readouterr().err


def test_a_key_is_named_by_its_variable(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    assert main(["check", "http://127.0.0.1:9", "-c", "2", "--key-env", "NO_SUCH_KEY"]) == 2
    assert "the environment variable NO_SUCH_KEY is not set" in capsys.readouterr().err


@pytest.mark.parametrize("key", ["schl\u00fcssel", "a\tb"])
def test_a_key_of_other_characters_is_refused_and_not_shown(
    key: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_KEY", key)
    assert main(["check", "http://127.0.0.1:9", "-c", "2", "--key-env", "SOME_KEY"]) == 2
    said = capsys.readouterr().err
    assert "the value of SOME_KEY is no key" in said
    assert key not in said


def test_the_limits_are_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["check", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert f"1 to {MOST_CLIENTS}" in said
    assert "4 to 86400" in said


@pytest.mark.parametrize("url", ["http://☃", "http://a b", "a" * 300, "", "ftp://host"])
def test_what_is_no_address_is_refused_before_anything_is_said(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", url, "-c", "2"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("lab: url: '") and said.count("\n") == 1


def test_an_interrupted_check_promises_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(checking, "check", interrupt)
    assert main(["check", "http://127.0.0.1:9", "-c", "2"]) == 130
    assert "a check keeps nothing" in capsys.readouterr().err
