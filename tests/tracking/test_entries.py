"""The projection from files: legal names, no figure made up, every run tagged."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from run_folder import make_run, rows_of

from lab.runs import Run
from lab.tracking.entries import as_table, campaign_entry, verdicts
from lab.tracking.entry import NOTE_LIMIT, Entry, legal, note, short

LEVERS = ("autotune", "fewer_slots")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(tmp_path, levers=LEVERS)


def every(entry: Entry) -> list[Entry]:
    return [entry, *(below for child in entry.children for below in every(child))]


def test_a_campaign_holds_its_levers_and_they_hold_their_launches(run: Run) -> None:
    entry = campaign_entry(run, verdicts(run))
    assert [child.name for child in entry.children] == ["baseline", *LEVERS, "nccl_ll_ring"]
    assert [len(child.children) for child in entry.children] == [3, 2, 2, 0]
    assert entry.metrics["levers_adopted"] == 1 and entry.metrics["levers_total"] == 3


def test_every_entry_repeats_the_tags_that_people_filter_by(run: Run) -> None:
    for entry in every(campaign_entry(run, verdicts(run))):
        assert {"campaign", "run_id", "simulated", "lab.kind"} <= entry.labels.keys()


def test_keys_are_unique_and_names_legal(run: Run) -> None:
    entries = every(campaign_entry(run, verdicts(run)))
    assert len({entry.key for entry in entries}) == len(entries)
    names = {name for entry in entries for name in [*entry.finite, *entry.labels, *entry.params]}
    assert all(re.fullmatch(r"[\w\-. :/]{1,250}", name) for name in names)
    assert legal("ttft(ms), p99%") == "ttft_ms__ p99_"


def test_what_was_not_measured_is_a_tag_and_no_metric(run: Run) -> None:
    rows = rows_of(run, LEVERS)
    rows[0] = {**rows[0], "effect_pct": float("nan"), "bound_fraction": float("inf")}
    lever = campaign_entry(run, rows).children[1]
    assert not {"effect_pct", "bound_fraction", "p_adjusted"} & lever.finite.keys()
    assert lever.labels["missing.effect_pct"] == "not a finite number"
    assert lever.labels["missing.p_adjusted"] == "not measured"
    assert "NaN" not in "".join(text for entry in every(campaign_entry(run, rows)) for text in entry.texts.values())


def test_a_digest_changes_with_the_verdict_and_only_then(run: Run) -> None:
    rows = rows_of(run, LEVERS)
    before = {entry.key: entry.digest for entry in every(campaign_entry(run, rows))}
    assert before == {entry.key: entry.digest for entry in every(campaign_entry(run, rows_of(run, LEVERS)))}
    rows[0] = {**rows[0], "verdict": "inconclusive"}
    after = {entry.key: entry.digest for entry in every(campaign_entry(run, rows))}
    changed = {key for key in before if before[key] != after[key]}
    assert changed == {f"local/{run.run_id}", f"local/{run.run_id}/autotune/autotune"}


def test_the_times_are_those_of_the_launches(run: Run) -> None:
    for entry in every(campaign_entry(run, verdicts(run))):
        assert entry.span_ms[0] <= entry.span_ms[1]
    launch = campaign_entry(run, verdicts(run)).children[0].children[0]
    assert launch.span_ms[1] - launch.span_ms[0] == 12_000


def test_states_are_terminal(run: Run) -> None:
    assert campaign_entry(run, []).status == "FINISHED"
    run.set_status("running")
    assert campaign_entry(run, []).status == "KILLED"
    run.set_status("failed", "disk full")
    assert campaign_entry(run, []).status == "FAILED"


def test_a_run_without_judgement_or_launches_can_be_shown(tmp_path: Path) -> None:
    run = make_run(tmp_path, passes=0, levers=())
    for path in (run.path / "judgements").rglob("*.json"):
        path.unlink()
    assert verdicts(run) == []
    assert len(every(campaign_entry(run, verdicts(run)))) == 3  # campaign, baseline and its opening control


def test_a_simulated_run_is_kept_apart(run: Run) -> None:
    rows = [{**row, "simulated": True} for row in rows_of(run, LEVERS)]
    entry = campaign_entry(run, rows)
    assert entry.key.startswith("rehearsal/") and entry.tags["simulated"] == "true"
    assert "SIMULATED" in entry.tags["mlflow.note.content"]


def test_long_texts_are_cut_aloud() -> None:
    cut = note("x" * (NOTE_LIMIT + 1))
    assert len(cut) <= NOTE_LIMIT and "cut here" in cut
    assert short("y" * 501).startswith("sha256:")
    assert (short(7), short(7.5), short(True), short({"b": 1, "a": None})) == (
        "7",
        "7.5",
        "true",
        '{"a": null, "b": 1}',
    )


def test_tables_have_the_shape_that_the_page_shows() -> None:
    table = json.loads(as_table([{"a": 1, "codes": ["x", "y"]}, {"a": None}], ["a", "codes"]))
    assert table == {"columns": ["a", "codes"], "data": [[1, "x y"], [None, None]]}
