"""The verdict table says the same thing in every format, and never a zero for something missing."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from verdict_rows import CAMPAIGN, EFFECTIVE, ROWS, row

from lab.errors import InputError
from lab.report import table, words
from lab.report.table import render

HEADING = words.heading(CAMPAIGN, 3, "20261130T204500Z", EFFECTIVE, "AMD EPYC, 2 processors")
AT_100 = """\
local · 20261130T204500Z · AMD EPYC, 2 processors
SmolLM2-135M-Instruct from smollm2-135m-q4_1: weights Q4_1, KV f16, llama.cpp b11549
rule: output_tok_s of chat at C=4, effects from 3 %, alpha 0.05, up to 3 passes

lever                   verdict         effect at C=4           ran/asked  of bound  accuracy
autotune (n_threads=2)  adopt           +31.0 % [+27.9, +34.2]  4.0 / 4    41 %      same
    the whole interval lies above +3 %
fewer_slots             reject          −38.2 % [−40.1, −36.2]  2.0 / 4    33 %      same
    capacity-limited, guard ttft_p50_ms broken: two slots serve four clients; n_parallel 4 would
    lift the cap; at equal batch −3.9 %
kv_cache_dtype (q8_0)   inconclusive    +1.6 % [−1.2, +4.4]     4.0 / 4    32 %      same
    drift: the interval [−1.2, +4.4] holds both 0 and the least effect of interest after 3 of 3
    passes
cuda_graphs             no-effect       0.0 % [−1.1, +1.0]      4.0 / 4    2.3 %     unknown
    structural-gap: the interval lies within ±3 %
nccl_ll_ring            not-applicable  –                       –          –         –
    one device: no collectives
nvfp4_checkpoint        failed          –                       –          –         not-tested
    the server would not start: missing-checkpoint: smollm2|135m-q4_0 not found
mtp                     invalid         –                       2.0 / 4    –         not-tested
    batch-cap: control and treatment both ran 2 of 4
"""
MAYBE = st.none() | st.floats(-1e4, 1e4)
ANY_ROW = st.builds(
    lambda reason, verdict, effect, low, high, running: row(
        "mtp", verdict, reason, effect_pct=effect, ci_low_pct=low, ci_high_pct=high, concurrency_running=running
    ),
    st.text(min_size=1),
    st.sampled_from(["adopt", "reject", "no-effect", "inconclusive", "invalid", "failed", "not-applicable"]),
    MAYBE,
    MAYBE,
    MAYBE,
    st.none() | st.floats(0, 4),
)


def test_the_reason_stands_below_the_figures_in_a_narrow_terminal() -> None:
    assert render(ROWS, "table", 100, HEADING) == AT_100


def test_the_reason_stands_beside_the_figures_in_a_wide_terminal() -> None:
    lines = render(ROWS, "table", 200).splitlines()
    assert lines[0].split()[-1] == "why"
    assert lines[1].endswith("same        the whole interval lies above +3 %")
    assert max(map(len, lines)) <= 200


@pytest.mark.parametrize("width", [100, 120, 160, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(map(len, render(ROWS, "table", width, HEADING).splitlines())) <= width


def test_a_simulated_row_is_marked_above_the_table() -> None:
    rows = [{**ROWS[0], "simulated": True}]
    assert all(render(rows, fmt).count("SIMULATED") == 1 for fmt in ("table", "md", "html"))
    assert all("SIMULATED" not in render(ROWS, fmt) for fmt in ("table", "md", "html"))


def test_an_empty_table_says_so() -> None:
    assert render([], "table", 100) == "no verdicts yet\n"


def test_a_finding_that_the_reason_names_is_not_said_twice() -> None:
    reason = "capacity-limited: the server runs 2; at equal batch of 2: −3.9 %"
    text = render([row("x", "reject", reason, findings=["capacity-limited"], effect_matched_batch_pct=-3.9)], width=200)
    assert text.count("capacity-limited") == text.count("at equal batch") == 1


GAP = "28.7 tok/s is 1.9 % of the 1,520 tok/s that the hardware allows"


def test_findings_are_told_in_words_below_the_table_and_levers_share_a_sentence() -> None:
    found = {"findings": ["structural-gap"], "structural_gap": GAP}
    rows = [row("mtp", "reject", "hurts", **found), row("kv", "no-effect", "small", **found)]
    rows.append(row("graphs", "adopt", "helps", findings=["structural-gap-control"], structural_gap=GAP))
    for fmt in ("table", "md", "html"):
        text = " ".join(render(rows, fmt, 100).split())
        assert text.count(f"structural-gap (mtp, kv): {GAP}") == 1
        assert text.count(f"structural-gap-control (graphs): of the control alone: {GAP}") == 1
    assert GAP not in render(rows[:0], "table", 100)


def test_a_missed_sign_is_told_with_both_figures() -> None:
    values = {"predicted_effect_pct": -12.0, "effect_pct": 5.0, "ci_low_pct": 3.0, "ci_high_pct": 7.0}
    missed = row("kv", "adopt", "helps", findings=["expected-sign-missed"], **values)
    (text,) = words.explanations([missed])
    assert "expects −12.0 %" in text and "+5.0 % [+3.0, +7.0]" in text and "other side of zero" in text
    assert words.explanations([{**missed, "findings": ["drift"]}]) == []


def test_the_share_of_the_gap_is_a_column_only_when_there_is_a_target() -> None:
    assert "of gap" not in render(ROWS, "md")
    assert "| +34 % |" in render([{**ROWS[0], "gap_closed_pct": 34.2}], "md")


def test_an_unknown_format_is_refused_with_a_suggestion() -> None:
    with pytest.raises(InputError, match="did you mean 'json'"):
        render(ROWS, "jsno")


def test_colours_are_for_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in render(ROWS, "table", 100)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    coloured = render(ROWS, "table", 100, HEADING)
    assert "\x1b[1;32madopt\x1b[0m" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == AT_100
    monkeypatch.setenv("NO_COLOR", "1")
    assert render(ROWS, "table", 100, HEADING) == AT_100


def test_the_table_loads_neither_pandas_nor_matplotlib() -> None:
    code = "import sys, lab.report.table; print({'pandas', 'matplotlib', 'mlflow', 'rich'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@given(st.lists(ANY_ROW, min_size=1, max_size=4))
def test_markdown_has_as_many_cells_in_every_line(rows: list[dict]) -> None:
    lines = render(rows, "md").splitlines()
    assert len(lines) == len(rows) + 2
    assert {len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in lines} == {9}


@given(st.lists(ANY_ROW, min_size=1, max_size=4))
def test_csv_and_json_give_back_every_row(rows: list[dict]) -> None:
    assert json.loads(render(rows, "json")) == rows
    read = list(csv.DictReader(io.StringIO(render(rows, "csv"), newline="")))
    assert [line["verdict"] for line in read] == [row["verdict"] for row in rows]
    assert [line["effect_pct"] for line in read] == [
        "" if r["effect_pct"] is None else str(r["effect_pct"]) for r in rows
    ]
    assert list(read[0]) == list(table.KEYS)


@given(st.lists(ANY_ROW, min_size=1, max_size=4), st.integers(80, 250))
def test_any_row_can_be_drawn(rows: list[dict], width: int) -> None:
    text = render(rows, "table", width)
    assert all(verdict in text for verdict in {row["verdict"] for row in rows})


@given(st.floats(-1e6, 1e6))
def test_a_figure_reads_back_to_one_decimal_and_zero_has_no_sign(value: float) -> None:
    text = words.percent(value, signed=True)
    assert float(text.replace("−", "-")) == pytest.approx(value, abs=0.0501)
    assert text not in ("+0.0", "−0.0", "-0.0")


@pytest.mark.parametrize("value", [None, float("nan"), float("inf")])
def test_what_is_missing_is_a_dash(value: float | None) -> None:
    assert words.percent(value) == "–"
    assert words.ran_of_asked({"concurrency_running": None, "concurrency_offered": 4}) == "–"
    assert words.of_bound({"bound_fraction": None}) == "–"


def test_a_page_escapes_what_a_reason_holds() -> None:
    page = render([row("mtp", "failed", "<script>alert(1)</script>")], "html")
    assert "<script>" not in page and "&lt;script&gt;" in page


def test_the_heading_names_what_was_served_not_what_was_asked() -> None:
    mixed = {**EFFECTIVE, "kv_dtype_v": {"value": "q8_0", "source": "log"}}
    assert "KV f16/q8_0" in words.heading(CAMPAIGN, 3, "r", mixed)
    assert "formats not known" in words.heading(CAMPAIGN, 3, "r")
