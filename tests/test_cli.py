"""Exit codes and messages: one line for people on standard error, results on standard output, never a traceback."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lab import cli, dry_run, judgement, runner
from lab.errors import DiskFullError, InputError, LabError
from tests.builders import RunBuilder, StubEngine, lever_plan, write_campaign

Captured = pytest.CaptureFixture[str]


def lab(capsys: Captured, *arguments: str | Path) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of one command."""
    try:
        code = cli.main([str(argument) for argument in arguments])
    except SystemExit as stop:
        code = int(stop.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


def refused(capsys: Captured, *arguments: str | Path) -> str:
    """The one line of a command that was bad input."""
    code, out, err = lab(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("lab: ") and err.count("\n") == 1, err
    return err.removeprefix("lab: ").strip()


@pytest.fixture
def build(tmp_path: Path, results: Path) -> RunBuilder:
    """A finished run: one lever helps, one hurts."""
    build = RunBuilder(tmp_path, [lever_plan("mtp"), lever_plan("slots")])
    build.passes(2, {"mtp": 120, "slots": 60})
    judgement.write(build.run, judgement.judge(build.run))
    build.run.set_status("done")
    return build


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("rnu", "x.yaml"),
        ("run",),
        ("run", "x.yaml", "--fresch"),
        ("run", "x.yaml", "--over"),
        ("run", "x.yaml", "--passes", "0"),
        ("run", "x.yaml", "--passes", "two"),
        ("verdicts", "--format", "pdf"),
        ("audit",),
        ("ui", "--port", "-1"),
    ],
)
def test_a_command_line_that_is_wrong_is_bad_input(capsys: Captured, arguments: tuple[str, ...]) -> None:
    code, out, err = lab(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("usage: lab")


def test_a_missing_campaign_file_is_bad_input(capsys: Captured, results: Path) -> None:
    assert refused(capsys, "run", "absent.yaml").startswith("absent.yaml: no such file")
    assert not results.exists()


def test_fresh_and_resume_exclude_each_other(capsys: Captured, tmp_path: Path, results: Path) -> None:
    path = write_campaign(tmp_path)
    for resume in (("--resume",), ("--resume", "20261130T204500Z")):
        assert refused(capsys, "run", path, "--fresh", *resume) == (
            "--fresh and --resume exclude each other; give one of them"
        )
    assert not results.exists()


def test_a_lever_that_the_file_does_not_hold_is_bad_input(
    capsys: Captured, tmp_path: Path, stub: StubEngine, results: Path
) -> None:
    said = refused(capsys, "run", write_campaign(tmp_path), "--levers", "fewer_slot")
    assert said.endswith("levers: there is no lever 'fewer_slot' in it; did you mean 'fewer_slots'?")
    assert not results.exists()


def test_a_plan_beyond_its_budget_is_refused_before_anything_is_written(
    capsys: Captured, tmp_path: Path, stub: StubEngine, results: Path
) -> None:
    path = write_campaign(tmp_path, {"budget": {"hours": 0.001}})
    said = refused(capsys, "run", path)
    assert "budget.hours: the plan of 3 passes needs " in said
    assert said.endswith("not even one pass would fit; or fewer --levers, or --over-budget")
    assert not results.exists()


def test_results_that_cannot_be_written_are_bad_input(
    capsys: Captured, tmp_path: Path, stub: StubEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LAB_RESULTS", str(tmp_path / "file" / "results"))
    said = refused(capsys, "run", write_campaign(tmp_path))
    assert "cannot be written (Not a directory); make it writable or set LAB_RESULTS" in said


def test_nothing_to_resume_says_so_and_is_no_failure(
    capsys: Captured, tmp_path: Path, stub: StubEngine, results: Path
) -> None:
    code, out, err = lab(capsys, "run", write_campaign(tmp_path), "--resume")
    assert (code, out) == (0, "")
    assert "no unfinished run; nothing to resume" in err
    assert not results.exists()


def test_a_dry_run_says_what_would_be_launched_and_writes_nothing(
    capsys: Captured, tmp_path: Path, stub: StubEngine, results: Path
) -> None:
    path = write_campaign(tmp_path, {"levers.nccl_ll_ring": {}, "budget": {"hours": 1}})
    code, out, _ = lab(capsys, "run", path, "--dry-run", "--passes", "2")
    assert code == 0
    assert "fewer_slots        2 launches: slots=2" in out
    assert "nccl_ll_ring       not applicable: stub runs on 1 device here" in out
    assert "control            3 launches" in out
    assert "pass 2: control → fewer_slots → control" in out
    assert "5 launches, about " in out and " of 60 allowed" in out
    assert not results.exists()


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (LabError("the control failed"), 1, "lab: the control failed\n"),
        (InputError("a.yaml:3: name: wrong"), 2, "lab: a.yaml:3: name: wrong\n"),
        (DiskFullError("results: disk full"), 3, "lab: results: disk full\n"),
        (KeyboardInterrupt(), 130, "lab: interrupted; nothing measured is lost, continue with --resume\n"),
    ],
)
def test_every_way_to_fail_has_its_exit_code_and_one_line(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, said: str
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(runner, "run_campaign", fail)
    assert lab(capsys, "run", "x.yaml") == (code, "", said)


def test_the_levers_and_passes_asked_for_arrive(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(dry_run, "describe", lambda *arguments: seen.append(arguments) or "plan")
    assert lab(capsys, "run", "x.yaml", "--dry-run", "--levers", "a,b", "--passes", "3") == (0, "plan\n", "")
    assert seen == [("x.yaml", ["a", "b"], 3)]


def test_verdicts_without_runs_are_bad_input(capsys: Captured, results: Path) -> None:
    assert refused(capsys, "verdicts") == f"{results}: there is no run; known: none yet"


def test_verdicts_of_an_unknown_campaign_or_run_name_those_there_are(capsys: Captured, build: RunBuilder) -> None:
    known = f"known: small/{build.run.run_id}"
    assert refused(capsys, "verdicts", "big").endswith(f"there is no run of campaign 'big'; {known}")
    assert refused(capsys, "verdicts", "--run", "1999").endswith(f"there is no run 1999; {known}")


def test_verdicts_as_json_are_the_rows_on_disk(capsys: Captured, build: RunBuilder) -> None:
    code, out, err = lab(capsys, "verdicts", "small", "--run", build.run.run_id, "--format", "json")
    assert (code, err) == (0, "")
    assert json.loads(out) == judgement.judge(build.run).rows
    assert [row["verdict"] for row in json.loads(out)] == ["adopt", "reject"]


@pytest.mark.parametrize("fmt", ["table", "md", "html", "csv"])
def test_every_format_holds_every_lever(capsys: Captured, build: RunBuilder, fmt: str) -> None:
    code, out, _ = lab(capsys, "verdicts", "--format", fmt)
    assert code == 0
    assert all(word in out for word in ("mtp", "slots", "adopt", "reject"))
    if fmt == "csv":
        assert len(list(csv.DictReader(io.StringIO(out)))) == 2


def test_fail_on_turns_a_verdict_into_an_exit_code(capsys: Captured, build: RunBuilder) -> None:
    assert lab(capsys, "verdicts", "--fail-on", "invalid,failed")[0] == 0
    code, out, _ = lab(capsys, "verdicts", "--fail-on", "invalid,reject")
    assert code == 1
    assert "slots" in out


def test_fail_on_an_unknown_verdict_is_bad_input_before_anything_is_printed(
    capsys: Captured, build: RunBuilder
) -> None:
    said = refused(capsys, "verdicts", "--fail-on", "reject,rejct")
    assert said == "--fail-on: 'rejct' is no verdict; did you mean 'reject'?"


def test_verdicts_are_read_from_disk_and_rejudged_when_asked(capsys: Captured, build: RunBuilder) -> None:
    path = build.run.path / "judgements" / build.rule.digest() / "verdicts.json"
    rows = json.loads(path.read_text())
    path.write_text(json.dumps([{**rows[0], "reason": "as it was said then"}]))
    assert "as it was said then" in lab(capsys, "verdicts")[1]
    assert "as it was said then" not in lab(capsys, "verdicts", "--rejudge")[1]
    assert json.loads(path.read_text()) == rows


def test_verdicts_of_an_unfinished_run_are_those_of_its_records_now(capsys: Captured, build: RunBuilder) -> None:
    path = build.run.path / "judgements" / build.rule.digest() / "verdicts.json"
    path.write_text("[]")
    build.run.set_status("interrupted")
    code, out, _ = lab(capsys, "verdicts", "--format", "json")
    assert (code, len(json.loads(out))) == (0, 2)
    assert path.read_text() == "[]"


def test_auditing_what_is_no_run_folder_is_bad_input(capsys: Captured, tmp_path: Path) -> None:
    said = "is neither the folder of a run (campaign.json) nor of a trial (trial.json)"
    assert refused(capsys, "audit", tmp_path) == f"{tmp_path}: {said}"
    assert refused(capsys, "audit", tmp_path / "absent").endswith(said)


def test_one_trial_can_be_audited_by_its_folder(capsys: Captured, build: RunBuilder) -> None:
    code, out, _ = lab(capsys, "audit", build.run.path / "launches" / "001-mtp" / "trials" / "chat-c4")
    assert code == 0
    assert out.startswith("chat-c4") and " valid" in out


def test_an_audit_lists_every_trial_and_every_damage(capsys: Captured, build: RunBuilder) -> None:
    damaged = build.run.path / "launches" / "001-mtp" / "server.log.gz"
    damaged.write_bytes(b"")
    code, out, err = lab(capsys, "audit", build.run.path)
    assert (code, err) == (1, f"lab: {damaged}: was changed after the launch closed\n")
    lines = out.splitlines()
    assert len(lines) == 6
    assert all(line.endswith(" valid") for line in lines)


def test_an_audit_tells_what_is_wrong_with_a_trial(capsys: Captured, tmp_path: Path, results: Path) -> None:
    build = RunBuilder(tmp_path, [lever_plan("mtp")])
    build.launch("control", 0, "opening", changes={"server.samples": 2})
    code, out, _ = lab(capsys, "audit", build.run.path)
    assert code == 0
    assert " invalid  gate-misaligned: only 2 samples" in out


def test_publishing_without_runs_is_bad_input(capsys: Captured, results: Path) -> None:
    assert refused(capsys, "publish") == f"{results}: holds no run to publish; measure one with `lab run FILE`"


HEAVY = ("mlflow", "pandas", "matplotlib", "papermill", "scipy")


def imported(code: str, **environment: str) -> set[str]:
    """Heavy modules that a fresh Python holds after `code`."""
    import os

    tell = f"import sys; sys.stderr.write('|'.join(m for m in {HEAVY!r} if m in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{tell}"], capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    return set(filter(None, done.stderr.split("|")))


def test_help_and_refusals_import_nothing_heavy(tmp_path: Path) -> None:
    ask = (
        "import io, contextlib, lab.cli\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):\n"
        "    for words in (['--help'], ['run', 'absent.yaml', '--dry-run'], ['verdicts']):\n"
        "        with contextlib.suppress(SystemExit):\n"
        "            lab.cli.main(words)\n"
    )
    assert imported(ask, LAB_RESULTS=str(tmp_path)) == set()


def test_stored_verdicts_are_shown_without_anything_heavy(build: RunBuilder, results: Path) -> None:
    ask = (
        "import io, contextlib, lab.cli\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        "    assert lab.cli.main(['verdicts']) == 0\n"
    )
    assert imported(ask, LAB_RESULTS=str(results)) == set()


def test_the_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "lab", "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.startswith("usage: lab")
    assert all(command in done.stdout for command in ("run", "verdicts", "audit", "publish", "ui"))


def test_an_interrupted_command_that_resumes_nothing_promises_nothing(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch, build: RunBuilder
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(judgement, "judge", interrupt)
    assert lab(capsys, "verdicts", "--rejudge") == (130, "", "lab: interrupted\n")
