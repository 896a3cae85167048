"""`lab verdicts --rule FILE`: the same records under another rule, beside what was first said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab import judgement
from lab.files import read_json
from tests.builders import RunBuilder, lever_plan, write_campaign
from tests.test_cli import Captured, lab, refused


@pytest.fixture
def build(tmp_path: Path, results: Path) -> RunBuilder:
    """A finished run in which the lever gains a fifth."""
    build = RunBuilder(tmp_path, [lever_plan("mtp")])
    build.passes(3, {"mtp": 120})
    judgement.write(build.run, judgement.judge(build.run))
    build.run.set_status("done")
    return build


def test_a_changed_rule_gives_a_judgement_beside_the_old_one(
    capsys: Captured, tmp_path: Path, build: RunBuilder
) -> None:
    stricter = write_campaign(tmp_path / "stricter", {"rule.min_effect_pct": 40})
    code, out, _ = lab(capsys, "verdicts", "--rule", stricter, "--format", "json")
    assert (code, [row["verdict"] for row in json.loads(out)]) == (0, ["no-effect"])
    rows = {path.parent.name: read_json(path) for path in build.run.path.glob("judgements/*/verdicts.json")}
    assert len(rows) == 2
    assert rows[build.rule.digest()][0]["verdict"] == "adopt"
    assert json.loads(lab(capsys, "verdicts", "--format", "json")[1])[0]["verdict"] == "adopt"


def test_the_table_says_that_the_rule_came_afterwards(capsys: Captured, tmp_path: Path, build: RunBuilder) -> None:
    other = write_campaign(tmp_path / "other", {"rule.alpha": 0.01})
    assert (
        "another rule, set afterwards: output_tok_s of chat at C=4, effects from 3 %, alpha 0.01"
        in (lab(capsys, "verdicts", "--rule", other)[1])
    )
    assert "\nrule: output_tok_s of chat at C=4" in lab(capsys, "verdicts")[1]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rule.concurrency": 1}, "its rule is about chat at C=1, its judged windows are of chat at C=4"),
        ({"rule.metric": "tok_s_per_gpu"}, "its records cannot tell the rule's metric tok_s_per_gpu"),
        ({"rule.metric": "nonsense"}, "rule.metric: unknown metric 'nonsense'"),
        ({"rule.alpha": 0.5}, "rule.alpha: input should be less than 0.5"),
    ],
)
def test_a_rule_that_the_records_cannot_answer_is_bad_input(
    capsys: Captured, tmp_path: Path, build: RunBuilder, changes: dict[str, object], said: str
) -> None:
    assert said in refused(capsys, "verdicts", "--rule", write_campaign(tmp_path / "other", changes))
    assert len(list(build.run.path.glob("judgements/*"))) == 1


def test_a_rule_file_that_is_absent_is_bad_input(capsys: Captured, build: RunBuilder) -> None:
    assert "absent.yaml" in refused(capsys, "verdicts", "--rule", "absent.yaml")
