"""A run against its roofline: shares that anybody can work out from the records, tables, pictures, and the door."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import lab
from lab import roofline_views
from lab.errors import InputError
from lab.judgement import judge
from lab.records import SWEEP
from lab.runs import Run
from tests.builders import CAPPED, HARDWARE, MODEL, RunBuilder, changed, lever_plan
from tests.trial_values import TRIAL

COUNTED = {**asdict(MODEL), "params_per_step": 2_000_000}
F16_BYTES = 2


def alone(opened_s: float) -> dict[str, Any]:
    """A window of one client in the same launch."""
    one = {f"client.{name}": 1.0 for name in ("littles_law", "littles_law_run")}
    one |= {
        f"server.{name}": 1.0 for name in ("running", "running_max", "running_p25", "running_p95", "running_at_open")
    }
    flat = {"client.in_flight_bins": [1.0] * 12, "client.offered": 1, "client.peak_in_flight": 1}
    times = {"window.opened_s": opened_s, "window.closed_s": opened_s + 6, "window.opened_at": f"at {opened_s}"}
    rates = {"metrics.output_tok_s": 80.0, "metrics.tok_s_per_user": 80.0}
    return changed(TRIAL, {"concurrency": 1, "purpose": SWEEP, **one, **flat, **times, **rates})


@pytest.fixture
def built(tmp_path: Path) -> RunBuilder:
    """A control with a sweep, a lever that helps and one that halves the batch."""
    build = RunBuilder(tmp_path, [lever_plan("mtp"), lever_plan("fewer_slots")], hardware=HARDWARE)
    build.launch("control", 0, "opening", model=COUNTED, more=[alone(1008.0)], facts={"n_threads": 1})
    for number in (1, 2):
        build.launch("mtp", number, "treatment", 220, model=COUNTED)
        build.launch("fewer_slots", number, "treatment", 80, model=COUNTED, **CAPPED)
        build.launch("control", number, "closing", model=COUNTED, facts={"n_threads": 1})
    return build


@pytest.fixture
def run(built: RunBuilder) -> Run:
    return built.run


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def read_launches(run: Run) -> list[str]:
    """The folders of all launches."""
    return sorted(path.name for path in (run.path / "launches").iterdir())


def share_by_hand(run: Run, folder: str, trial: str) -> float:
    """Measured over bound from the files alone: weights and the cache of all running requests, read at full speed."""
    hardware, launch = (
        read(run.path / "campaign.json")["hardware"],
        read(run.path / "launches" / folder / "launch.json"),
    )
    record, model = read(run.path / "launches" / folder / "trials" / trial / "trial.json"), launch["model"]
    each = model["layers"] * model["kv_heads"] * (model["head_dim_k"] + model["head_dim_v"]) * F16_BYTES
    running, context = record["server"]["running"], record["metrics"]["mean_context_tokens"]
    step_s = (model["weight_bytes_per_step"] + running * context * each) / hardware["memory_bandwidth_bytes_s"]
    return record["metrics"]["output_tok_s"] / (running / step_s)


def test_each_share_is_measured_over_the_bound_worked_out_from_the_record_alone(run: Run) -> None:
    table = roofline_views.shares(run)
    assert len(table) == 8
    for row in table.to_dict("records"):
        folder, _, trial = row["trial"].partition("/")
        assert row["bound_fraction"] == pytest.approx(share_by_hand(run, folder, trial), rel=1e-12)
        assert row["bound_fraction"] == pytest.approx(row["output_tok_s"] / row["bound_tok_s"], rel=1e-12)


def test_each_share_of_a_verdict_row_is_the_mean_of_those_of_its_launches_worked_out_from_records(run: Run) -> None:
    launches = read_launches(run)
    for row in judge(run).rows:
        for key, arm in (("bound_fraction", row["lever"]), ("bound_fraction_control", "control")):
            by_hand = [share_by_hand(run, folder, "chat-c4") for folder in launches if folder.endswith(f"-{arm}")]
            assert len(by_hand) >= 2 and row[key] == pytest.approx(statistics.fmean(by_hand), rel=1e-12)


def test_at_equal_batch_the_shares_behind_a_row_spread_as_its_throughput_does(run: Run) -> None:
    for row in judge(run).rows:
        folders = [folder for folder in read_launches(run) if folder.endswith(f"-{row['lever']}")]
        trials = [read(run.path / "launches" / folder / "trials" / "chat-c4" / "trial.json") for folder in folders]
        assert len({trial["server"]["running"] for trial in trials}) == 1
        tok_s = [trial["metrics"]["output_tok_s"] for trial in trials]
        shares = [share_by_hand(run, folder, "chat-c4") for folder in folders]
        spreads = [statistics.stdev(values) / statistics.fmean(values) for values in (tok_s, shares)]
        assert spreads[0] > 0 and spreads[0] == pytest.approx(spreads[1], rel=1e-9)
        assert row["bound_fraction"] == pytest.approx(statistics.fmean(tok_s) / row["bound_tok_s"], rel=1e-9)


def test_at_equal_batch_shares_spread_over_launches_as_throughput_does(run: Run) -> None:
    table = roofline_views.shares(run)
    for arm, asked in (("control", 4), ("mtp", 4), ("fewer_slots", 4)):
        rows = table[(table["arm"] == arm) & (table["asked"] == asked)]
        assert len(rows) >= 2 and rows["running"].nunique() == 1
        spreads = [
            statistics.stdev(rows[name]) / statistics.fmean(rows[name]) for name in ("bound_fraction", "output_tok_s")
        ]
        assert spreads[0] > 0 and spreads[0] == pytest.approx(spreads[1], rel=1e-9)


def test_a_trial_far_below_its_bound_carries_the_finding(run: Run) -> None:
    assert roofline_views.shares(run)["structural_gap"].all()
    assert "2.7 % of the 3,680 tok/s" in roofline_views.suspects(run).heading


def test_the_parts_of_every_step_sum_to_it(run: Run) -> None:
    table = roofline_views.gaps(run)
    parts = ["weights_ms", "kv_ms", "unexplained_ms"]
    assert (table[parts].sum(axis=1) - table["step_ms"]).abs().max() < 1e-9
    assert list(table["unexplained_ms_per_layer"] * 2) == pytest.approx(list(table["unexplained_ms"]))


def test_suspects_are_ranked_for_the_last_judged_trial_and_quote_the_cap(run: Run) -> None:
    ranking = roofline_views.suspects(run, "fewer_slots")
    assert ranking.heading.startswith("005-fewer_slots/chat-c4: ")
    first = ranking.suspects[0]
    assert first.name == "batch-not-reached"
    assert "not explained by KV capacity" in first.sentence and "'/slots' (from log)" in first.sentence
    shown, text = ranking._repr_markdown_(), repr(ranking)
    assert "1. **batch-not-reached**: the server runs a smaller batch" in shown and shown.startswith("005-fewer_slots")
    assert max(map(len, text.splitlines())) <= 120 and "7. " in text


def test_suspects_are_weighed_with_the_other_windows_of_the_arm(run: Run) -> None:
    compute = next(one for one in roofline_views.suspects(run).suspects if one.name == "compute-bound")
    assert "12.5 ms at batch 1.0" in compute.sentence and "almost in proportion" in compute.sentence


def test_an_arm_without_a_judged_trial_is_an_error_that_names_the_others(run: Run) -> None:
    with pytest.raises(InputError, match="'nothing' has no valid judged trial; these have: control, mtp, fewer_slots"):
        roofline_views.suspects(run, "nothing")


def test_a_run_whose_control_is_never_valid_has_a_page_all_the_same(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path, [lever_plan("mtp")])
    build.launch("control", 0, "opening", changes={"server.restarted": True, "server.fell": ["output_tokens"]})
    assert roofline_views.last_judged(build.run, "control") is None
    view = lab.roofline_view(run=str(build.run.path))
    assert "no valid judged trial" in repr(view.suspects())
    view.finish()
    assert (build.run.lever_folder("roofline") / "DONE").is_file()


OWN_MODEL = {"estimated_flops": 8e9, "estimated_read_bytes": 3.9e9, "estimated_write_bytes": 0.1e9}


def test_a_servers_own_cost_model_is_a_second_point(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path, [lever_plan("mtp")])
    build.launch("control", 0, "opening", model=COUNTED)
    without = roofline_views.roof_picture(build.run).axes[0].get_legend_handles_labels()[1]
    assert not any("server's own model" in label for label in without)
    build.launch("mtp", 1, "treatment", changes={"server.delta": {"output_tokens": 4000.0, **OWN_MODEL}}, model=COUNTED)
    axes = roofline_views.roof_picture(build.run).axes[0]
    (line,) = [line for line in axes.lines if line.get_label() == "analytic (server's own model)"]
    tok_s = build.run.launches()[-1].trials[0].metrics["output_tok_s"]
    assert (line.get_xdata()[0], line.get_ydata()[0]) == pytest.approx((2.0, 8e9 / 4000 * tok_s))


def labels(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def test_the_pictures_show_what_ran(run: Run) -> None:
    said = labels(roofline_views.roof_picture(run))
    assert {
        "control: 4 asked, 4.0 ran",
        "control: 1 asked, 1.0 ran",
        "mtp: 4 asked, 4.0 ran",
        "fewer_slots: 4 asked, 2.0 ran",
    } <= set(said)
    users = labels(roofline_views.pareto_picture(run))
    assert "fewer_slots: 4 asked, 2.0 ran" in users and "1024" in users
    step = roofline_views.waterfall_picture(run, "fewer_slots")
    assert step.get_suptitle().startswith("fewer_slots, 4 asked, 2.0 ran:")


def test_without_hardware_the_pictures_say_so(run: Run) -> None:
    run.campaign["hardware"] = None
    assert "hardware of this run is not known" in roofline_views.roof_picture(run).get_suptitle()
    assert "is not known" in roofline_views.waterfall_picture(run).get_suptitle()
    assert roofline_views.shares(run)["bound_fraction"].isna().all()
    assert roofline_views.gaps(run).empty and roofline_views.suspects(run).suspects == []
    roofline_views.pareto_picture(run)


def test_the_door_shows_and_keeps_everything(built: RunBuilder) -> None:
    view = lab.roofline_view(run=str(built.run.path), arm="fewer_slots")
    assert len(view.shares()) == len(view.gaps()) == 8
    assert view.suspects().suspects[0].name == "batch-not-reached"
    view.finish()
    kept = built.run.lever_folder("roofline")
    assert {path.name for path in (kept / "plots").iterdir()} == {"roof.png", "throughput.png", "gap.png", "users.png"}
    assert (kept / "DONE").is_file()


def test_the_door_takes_the_run_touched_last(tmp_path: Path, results: Path) -> None:
    build = RunBuilder(tmp_path, [lever_plan("mtp")])
    build.passes(1, {"mtp": 120})
    assert lab.roofline_view().run.path == build.run.path.resolve()
