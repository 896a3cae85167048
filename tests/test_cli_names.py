"""Names and paths as nobody would type them: one short line and exit 2, never a traceback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab import dry_run
from lab.campaign import MOST_PASSES
from tests.builders import RunBuilder, StubEngine, lever_plan, write_campaign
from tests.test_cli import Captured, lab, refused

LONG, NUL, NOBODY = "a" * 5000, "a\0b", "~no-such-user-here/x"
DENSE = ("roofline", "--model", "Llama-3.1-8B", "--hardware", "h200_sxm")
PATHS = [
    ("roofline", "--hardware", "h200_sxm", "--model"),
    ("roofline", "--model", "Llama-3.1-8B", "--hardware"),
    ("check", "http://127.0.0.1:9", "-c", "1", "--hardware"),
    ("run",),
    ("run", "--dry-run"),
    ("aa",),
    ("audit",),
    ("verdicts", "--rule"),
]
NAMES = [
    ("verdicts",),
    ("verdicts", "--run"),
    ("verdicts", "--fail-on"),
    ("publish",),
    ("publish", "--run"),
    ("run", "x.yaml", "--resume"),
    ("run", "x.yaml", "--levers"),
    ("check", "http://127.0.0.1:9", "-c", "1", "--model"),
    ("check", "http://127.0.0.1:9", "-c", "1", "--key-env"),
    ("ui", "--host"),
    (*DENSE, "--recipe"),
    (*DENSE, "--kv-dtype"),
]


@pytest.mark.parametrize("value", [LONG, f"{LONG}.yaml", f"{LONG}.gguf", NUL, NOBODY, ""])
@pytest.mark.parametrize("command", PATHS, ids=" ".join)
def test_a_path_that_cannot_be_is_one_short_line(
    capsys: Captured, results: Path, command: tuple[str, ...], value: str
) -> None:
    assert len(refused(capsys, *command, value)) < 300
    assert not results.exists()


@pytest.mark.parametrize("value", [LONG, NUL])
@pytest.mark.parametrize("command", NAMES, ids=" ".join)
def test_a_name_that_cannot_be_is_one_short_line(
    capsys: Captured, results: Path, command: tuple[str, ...], value: str
) -> None:
    said = refused(capsys, *command, value)
    assert len(said) < 300
    assert said.startswith(f"{command[-1] if command[-1].startswith('--') else 'CAMPAIGN'}: 'a")


@pytest.mark.parametrize("command", [command for command in NAMES if command[-1] != "--resume"], ids=" ".join)
def test_an_empty_name_is_refused(capsys: Captured, results: Path, command: tuple[str, ...]) -> None:
    assert "empty" in refused(capsys, *command, "")


def test_an_empty_run_to_resume_is_the_newest(
    capsys: Captured, tmp_path: Path, stub: StubEngine, results: Path
) -> None:
    code, _, err = lab(capsys, "run", write_campaign(tmp_path), "--resume", "")
    assert code == 0
    assert "nothing to resume" in err


@pytest.mark.parametrize("campaign", ["*", "../small", "ä" * 200, "Small"])
def test_a_campaign_that_no_folder_is_called_has_no_run(
    capsys: Captured, tmp_path: Path, results: Path, campaign: str
) -> None:
    RunBuilder(tmp_path, [lever_plan("mtp")])
    assert "there is no run of campaign '" in refused(capsys, "verdicts", campaign)
    assert refused(capsys, "publish", campaign).endswith("holds no run to publish; measure one with `lab run FILE`")


@pytest.mark.parametrize("levers", ["a,", ",a", "a,,b", " "])
def test_a_comma_too_many_between_levers_is_told_as_such(capsys: Captured, levers: str) -> None:
    said = refused(capsys, "run", "x.yaml", "--levers", levers)
    assert said == f"--levers: '{levers}' holds an empty name; write names with a comma between them"


def test_blanks_between_levers_do_not_count(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(dry_run, "describe", lambda *arguments: seen.append(arguments) or "plan")
    assert lab(capsys, "run", "x.yaml", "--dry-run", "--levers", "a, b")[0] == 0
    assert seen == [("x.yaml", ["a", "b"], None)]


@pytest.mark.parametrize("command", ["run", "aa"])
def test_passes_have_the_limit_of_the_file(capsys: Captured, command: str) -> None:
    code, out, err = lab(capsys, command, "absent.yaml", "--passes", str(MOST_PASSES + 1))
    assert (code, out) == (2, "")
    assert f"'{MOST_PASSES + 1}' is not a whole number from 1 to {MOST_PASSES}" in err
    assert "absent.yaml: no such file" in refused(capsys, command, "absent.yaml", "--passes", str(MOST_PASSES))


@pytest.mark.parametrize("option", ["--batch", "--context", "--shared-prefix", "--draft-tokens", "--tp"])
@pytest.mark.parametrize("value", ["1e308", "0", "-1", "nan", "inf", "", "1.5", "9" * 5000, "٣" * 12])
def test_a_count_that_cannot_be_is_bad_input(capsys: Captured, option: str, value: str) -> None:
    code, out, err = lab(capsys, *DENSE, option, value)
    assert (code, out) == (2, "")
    assert "Traceback" not in err and len(err.splitlines()[-1]) < 200


def figures(capsys: Captured, *arguments: str) -> dict[str, Any]:
    code, out, err = lab(capsys, *DENSE, *arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_a_cache_type_is_known_in_whatever_case(capsys: Captured) -> None:
    assert figures(capsys, "--kv-dtype", "FP8") == figures(capsys, "--kv-dtype", "fp8")


def test_the_cache_type_auto_is_what_servers_use(capsys: Captured) -> None:
    assert figures(capsys, "--kv-dtype", "auto") == figures(capsys)
    assert figures(capsys, "--kv-dtype", "fp8") != figures(capsys)


def test_a_recipe_is_known_in_whatever_case_and_listed_once(capsys: Captured) -> None:
    assert figures(capsys, "--recipe", "nvfp4") == figures(capsys, "--recipe", "NVFP4")
    said = refused(capsys, *DENSE, "--recipe", "zzz")
    assert said == "unknown recipe 'zzz'; known: BF16, FP8, INT4-g128, INT4-g32, INT8, MXFP4, NVFP4"


def test_a_prefix_longer_than_the_context_is_refused(capsys: Captured) -> None:
    said = refused(capsys, *DENSE, "--context", "1024", "--shared-prefix", "1025")
    assert said == "shared_prefix is 1025 tokens, more than the 1024 of the context that it is a part of"


def test_a_context_that_is_shared_as_a_whole_does_not_limit_the_batch(capsys: Captured) -> None:
    found = figures(capsys, "--context", "1024", "--shared-prefix", "1024")
    assert found["max_batch"] is None
    assert found["batch_not_limited"].startswith("all of the context is shared")
    assert {row["fits"] for row in found["sweep"]} == {True}
    assert figures(capsys, "--context", "1024", "--shared-prefix", "1023")["batch_not_limited"] is None


def test_an_acceptance_that_rises_is_refused(capsys: Captured) -> None:
    said = refused(capsys, *DENSE, "--draft-tokens", "2", "--acceptance", "0.5,0.9")
    assert said.startswith("acceptance rises from 0.5 to 0.9 at position 2; give the share of all steps in which each")
