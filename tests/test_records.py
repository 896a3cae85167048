"""Records are believed only while they are what was written; everything else is left out and named."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest

import lab.runs
from lab import records
from lab.campaign import PROJECT
from lab.errors import InputError
from lab.files import sha256_file, write_text
from lab.runs import Run, pick_run, results_folder, runs
from tests.builders import TRIAL, changed, lever_plan, write_launch
from tests.builders import RunBuilder as Builder


def make(results: Path, name: str = "small") -> Run:
    return Run.create(results, {"file": {"name": name}}, {"mode": "campaign"})


@pytest.fixture
def run(results: Path) -> Run:
    run = make(results)
    for name in ("control", "mtp", "control"):
        number, folder = run.new_launch(name)
        write_launch(folder, launch=number, log="started\nstopped\n")
    return run


def test_closing_a_launch_notes_a_digest_of_every_file(tmp_path: Path) -> None:
    launch = write_launch(tmp_path / "000-control")
    files = json.loads((launch.folder / "launch.json").read_text())["files"]
    assert set(files) == {"server.log.gz", "trials/chat-c4/trial.json"}
    assert all(sha256_file(launch.folder / name) == digest for name, digest in files.items())
    assert (launch.folder / "launch.json.sha256").read_text().strip() == sha256_file(launch.folder / "launch.json")
    assert launch.problem() is None


def test_a_launch_reads_back_with_its_trials_facts_and_log(run: Run) -> None:
    launch = run.launches()[1]
    assert (launch.id, launch.arm, launch.pass_number, launch.ok) == ("001-mtp", "control", 0, True)
    assert launch.effective["cap"] == 4
    assert [(trial.id, trial.workload, trial.concurrency) for trial in launch.trials] == [
        ("001-mtp/chat-c4", "chat", 4)
    ]
    assert launch.trials[0].record == TRIAL
    assert launch.log_text() == "started\nstopped\n"


def test_a_launch_without_a_log_gets_an_empty_one(tmp_path: Path) -> None:
    records.compress_log(tmp_path)
    assert records.Launch(tmp_path, {}).log_text() == ""


def test_launches_are_numbered_in_the_order_they_were_made(run: Run) -> None:
    assert [launch.id for launch in run.launches()] == ["000-control", "001-mtp", "002-control"]
    assert run.new_launch("mtp")[0] == 3


@pytest.mark.parametrize("name", ["trials/chat-c4/trial.json", "server.log.gz"])
def test_an_edited_file_is_named_and_its_launch_is_left_out(run: Run, name: str) -> None:
    path = run.path / "launches" / "001-mtp" / name
    path.write_bytes(path.read_bytes() + b" ")
    assert [launch.id for launch in run.launches()] == ["000-control", "002-control"]
    assert run.damaged() == [f"{path}: was changed after the launch closed"]


def test_a_missing_file_is_named_and_its_launch_is_left_out(run: Run) -> None:
    path = run.path / "launches" / "001-mtp" / "trials" / "chat-c4" / "trial.json"
    path.unlink()
    assert [launch.id for launch in run.launches()] == ["000-control", "002-control"]
    assert run.damaged() == [f"{path}: is missing"]


@pytest.mark.parametrize("content", [b'{"arm": {}}', b"\xff\xfe not text", b""])
def test_an_edited_launch_record_is_named_and_left_out(run: Run, content: bytes) -> None:
    path = run.path / "launches" / "001-mtp" / "launch.json"
    path.write_bytes(content)
    assert [launch.id for launch in run.launches()] == ["000-control", "002-control"]
    assert run.damaged() == [f"{path}: does not match its digest"]


def test_a_launch_record_without_its_digest_is_not_believed(run: Run) -> None:
    folder = run.path / "launches" / "001-mtp"
    (folder / "launch.json.sha256").unlink()
    assert len(run.launches()) == 2
    assert run.damaged() == [f"{folder / 'launch.json'}: does not match its digest"]


def test_an_intact_run_has_no_damage(run: Run) -> None:
    assert run.damaged() == []


def test_an_interrupted_launch_is_ignored_and_its_number_is_not_used_again(run: Run) -> None:
    number, folder = run.new_launch("mtp")
    write_text(folder / "server.log", "half a")
    assert len(run.launches()) == 3
    assert run.damaged() == []
    assert run.new_launch("mtp")[0] == number + 1


def test_runs_made_in_the_same_second_have_names_of_their_own(results: Path) -> None:
    made = [make(results) for _ in range(5)]
    assert len({run.run_id for run in made}) == 5
    assert all(dt.datetime.strptime(run.run_id, "%Y%m%dT%H%M%SZ") for run in made)
    assert [run.run_id for run in made] == sorted(run.run_id for run in made)


def test_latest_names_the_newest_run(results: Path) -> None:
    make(results)
    newest = make(results)
    assert (results / "small" / "latest").resolve() == newest.path.resolve()
    assert len(runs(results, "small")) == 2


def test_a_new_run_holds_its_campaign_and_plan_before_any_launch(results: Path) -> None:
    run = make(results)
    assert (run.campaign["run_id"], run.campaign["file"], run.plan["mode"]) == (
        run.run_id,
        {"name": "small"},
        "campaign",
    )
    assert run.name == "small"
    assert run.status["state"] == "running"
    assert run.launches() == []


def test_the_status_keeps_when_the_run_started(results: Path) -> None:
    run = make(results)
    started = run.status["started_at"]
    run.set_status("failed", "the control failed")
    assert run.status["started_at"] == started
    assert (run.status["state"], run.status["reason"]) == ("failed", "the control failed")


def test_the_run_touched_last_is_picked(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, other = make(results), make(results), make(results, "other")
    monkeypatch.setattr(lab.runs, "utc_now", lambda: "2100-01-01T00:00:00.000Z")
    first.set_status("done")
    assert pick_run(results).path == first.path
    assert pick_run(results, "small").path == first.path
    assert pick_run(results, "other").path == other.path
    assert pick_run(results, "small", second.run_id).path == second.path


def test_an_unknown_run_is_answered_with_those_there_are(results: Path) -> None:
    run = make(results)
    with pytest.raises(InputError, match=f"there is no run 1999; known: small/{run.run_id}"):
        pick_run(results, "small", "1999")
    with pytest.raises(InputError, match=f"there is no run of campaign 'big'; known: small/{run.run_id}"):
        pick_run(results, "big")


def test_results_that_hold_nothing_say_so(results: Path) -> None:
    with pytest.raises(InputError, match="there is no run; known: none yet"):
        pick_run(results)


def test_rehearsals_and_reference_tables_are_no_runs(results: Path) -> None:
    make(results / "rehearsal")
    write_text(results / "reference" / "x" / "status.json", "{}")
    assert runs(results) == []


def test_results_that_cannot_be_written_are_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot be written \(Not a directory\); make it writable"):
        make(tmp_path / "file" / "results")


def test_a_launch_folder_that_cannot_be_made_is_bad_input(results: Path) -> None:
    run = make(results)
    (run.path / "launches").write_text("in the way")
    with pytest.raises(InputError, match="cannot be written"):
        run.new_launch("control")


def test_notebook_failures_are_remembered_until_the_run_is_resumed(results: Path) -> None:
    run = make(results)
    assert run.notebook_failures() == {}
    run.note_notebook_failure("mtp", "cell 3 failed")
    assert run.notebook_failures() == {"mtp": "cell 3 failed"}
    run.forget_notebook_failures()
    assert run.notebook_failures() == {}


def test_the_results_folder_is_that_of_the_environment_or_of_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_RESULTS", "/somewhere/else")
    assert results_folder() == Path("/somewhere/else")
    monkeypatch.delenv("LAB_RESULTS")
    assert results_folder() == (PROJECT / "results").resolve()


def test_a_results_path_that_papermill_would_fill_in_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_RESULTS", "/some{where}")
    with pytest.raises(InputError, match="holds a brace"):
        results_folder()


@pytest.mark.parametrize("text", ["{}", "[]", "", '{"state": "done"}'])
def test_a_run_with_a_damaged_status_is_left_out_and_named(
    results: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    good, bad = make(results), make(results)
    write_text(bad.path / "status.json", text)
    assert [run.run_id for run in runs(results)] == [good.run_id]
    assert str(bad.path / "status.json") in capsys.readouterr().err


@pytest.mark.parametrize("name", ["campaign", "plan"])
@pytest.mark.parametrize("text", ["{}", "[]"])
def test_a_head_of_the_wrong_shape_is_one_line(results: Path, name: str, text: str) -> None:
    run = Run(make(results).path)
    write_text(run.path / f"{name}.json", text)
    with pytest.raises(InputError, match=f"{name}.json: is damaged"):
        getattr(run, name)


def test_a_launch_whose_record_is_gone_is_damaged_and_one_that_never_closed_is_not(run: Run) -> None:
    (run.path / "launches" / "001-mtp" / "launch.json").unlink()
    run.new_launch("mtp")
    assert len(run.damaged()) == 1 and "001-mtp" in run.damaged()[0]
    (run.path / "launches" / "odd-name").mkdir()
    assert [launch.arm for launch in run.launches()] == [launch.arm for launch in Run(run.path).launches()]


def test_an_equal_slot_has_an_equal_digest_and_any_change_another() -> None:
    slots = [({"a": 1}, "w", 6, "b1"), ({"a": 2}, "w", 6, "b1"), ({"a": 1}, "w", 7, "b1"), ({"a": 1}, "w", 6, "b2")]
    assert records.slot_digest(*slots[0]) == records.slot_digest({"a": 1}, "w", 6, "b1")
    assert len({records.slot_digest(*slot) for slot in slots}) == len(slots)


def test_missing_is_none_and_never_a_number_that_json_does_not_have(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        write_launch(tmp_path / "000-control", trials=(changed(TRIAL, {"metrics.output_tok_s": float("nan")}),))
    assert not (tmp_path / "000-control" / "launch.json").exists()


def test_a_built_run_is_read_like_a_measured_one(tmp_path: Path) -> None:
    run = Builder(tmp_path, [lever_plan("mtp")]).passes(2, {"mtp": 120})
    assert [(launch.arm, launch.pass_number, launch.role) for launch in run.launches()] == [
        ("control", 0, "opening"),
        ("mtp", 1, "treatment"),
        ("control", 1, "closing"),
        ("mtp", 2, "treatment"),
        ("control", 2, "closing"),
    ]
