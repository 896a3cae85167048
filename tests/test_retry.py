"""A disturbed launch is measured again twice at most; one that cannot come out otherwise never."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.audit import INVALID, Code
from lab.judgement import judge
from lab.records import CLOSING, SEARCH, TREATMENT
from lab.retry import RETRIES, Attempt, attempts, lost, owed
from tests.builders import RunBuilder, lever_plan

GOOD = Attempt("001-mtp", None, ())
BUSY = Attempt("001-mtp", None, (Code("foreign-traffic", INVALID, "somebody else was served"),))
CAPPED = Attempt("001-mtp", None, (Code("batch-cap", INVALID, "the server runs at most 2"),))
UNPROVEN = Attempt("001-mtp", None, (Code("lever-not-applied", INVALID, "nothing drafted"),))
CRASHED = Attempt("001-mtp", ("crashed", "killed by signal 9"), ())
BAD_FLAG = Attempt("001-mtp", ("bad-flag", "no such flag"), ())


@pytest.mark.parametrize(
    ("made", "again", "gone"),
    [
        ([], True, False),
        ([GOOD], False, False),
        ([BUSY], True, False),
        ([CRASHED], True, False),
        ([BUSY, GOOD], False, False),
        ([BUSY, CRASHED], True, False),
        ([BUSY] * (1 + RETRIES), False, True),
        ([CRASHED, BUSY, CRASHED], False, True),
        ([BUSY, BUSY, GOOD], False, False),
        ([CAPPED], False, True),
        ([UNPROVEN], False, True),
        ([BAD_FLAG], False, True),
        ([Attempt("x", ("out-of-memory", "at load"), ())], False, True),
        ([Attempt("x", ("unsupported", "no such kernel"), ())], False, True),
        ([BUSY, BAD_FLAG], False, True),
        ([GOOD, BUSY], False, False),
    ],
)
def test_what_is_owed_and_what_is_lost(made: list[Attempt], again: bool, gone: bool) -> None:
    assert (owed(made), lost(made)) == (again, gone)


def test_attempts_are_found_in_the_records_of_a_run(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path, [lever_plan("mtp")])
    build.launch("control", 0, "opening")
    build.launch("mtp", 1, SEARCH)
    build.launch("mtp", 1, TREATMENT, changes={"server.idle_running_max": 1.0})
    build.launch("mtp", 1, TREATMENT)
    crashed = {"kind": "crashed", "reason": "killed by signal 9", "detail": ""}
    build.launch("control", 1, CLOSING, state="failed", failure=crashed)
    found = attempts(build.run.launches(), judge(build.run).audited)
    assert list(found) == [("control", 0, "opening"), ("mtp", 1, TREATMENT), ("control", 1, CLOSING)]
    disturbed, good = found["mtp", 1, TREATMENT]
    assert [code.code for code in disturbed.codes] == ["foreign-traffic"]
    assert good.good
    assert found["control", 1, CLOSING][0].failure == ("crashed", "killed by signal 9")


def test_a_treatment_that_is_disturbed_three_times_is_invalid_and_one_that_recovers_is_not(tmp_path: Path) -> None:
    for name, tries in (("lost", 3), ("recovered", 1)):
        build = RunBuilder(tmp_path / name, [lever_plan("mtp")], passes=2)
        build.launch("control", 0, "opening")
        for number in (1, 2):
            for _ in range(tries if number == 2 else 0):
                build.launch("mtp", number, TREATMENT, 300, changes={"server.idle_running_max": 1.0})
            if tries < 3 or number == 1:
                build.launch("mtp", number, TREATMENT, 120)
            build.launch("control", number, CLOSING)
        row = judge(build.run).rows[0]
        assert row["verdict"] == ("invalid" if name == "lost" else "adopt")
        assert row["reason"].startswith("foreign-traffic") == (name == "lost")


def test_a_treatment_that_crashes_three_times_in_one_pass_is_failed(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path, [lever_plan("mtp")], passes=2)
    crashed = {"kind": "crashed", "reason": "killed by signal 9", "detail": ""}
    build.launch("control", 0, "opening")
    build.launch("mtp", 1, TREATMENT, 120)
    build.launch("control", 1, CLOSING)
    for _ in range(3):
        build.launch("mtp", 2, TREATMENT, state="failed", failure=crashed)
    row = judge(build.run).rows[0]
    said = "pass 2 could not be completed, tried 3 times: crashed: killed by signal 9"
    assert (row["verdict"], row["reason"]) == ("failed", said)
