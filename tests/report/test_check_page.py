"""The page of `lab check`: every dash has its reason, every advice its flag, and nothing is said twice."""

from __future__ import annotations

from typing import Any

import pytest

from lab.audit.base import FINDING, INVALID, WARNING, Code
from lab.audit.diagnosis import Diagnosis
from lab.check import Checked
from lab.check_bound import CheckBound, bound_of
from lab.report.advice import advised
from lab.report.check_page import render
from lab.roofline.hardware_catalogue import find
from tests.builders import trial_in_memory

HEALTHY = Diagnosis("healthy", "the server ran what was offered")
CAPPED = {"concurrency": 16, "server.running": 8.0, "server.waiting": 7.1, "client.littles_law": 16.0}
BLIND = Diagnosis("blind", "no gauges", "metric-absent", "fix it")
NO_METRICS = ("gauges and counters: start it with --metrics", "use of the cache: start it with --slots")


def checked(
    changes: dict[str, Any] | None = None,
    facts: dict[str, Any] | None = None,
    codes: tuple[Code, ...] = (),
    diagnosis: Diagnosis = HEALTHY,
    missing: tuple[str, ...] = (),
    model: str = "m",
    bound: CheckBound | None = None,
) -> Checked:
    trial = trial_in_memory(changes, facts=facts or {})
    return Checked(
        server_url="http://127.0.0.1:1",
        engine="vllm",
        model=model,
        missing=missing,
        trial=trial,
        codes=list(codes),
        diagnosis=advised(diagnosis, trial, missing),
        seconds=60.0,
        bound=bound,
    )


def line(label: str, page: str) -> str:
    """The entry under a label, its lines joined."""
    rows = page.splitlines()
    at = next(number for number, row in enumerate(rows) if row.startswith(f"{label:<11}"))
    end = next(number for number in range(at + 1, len(rows) + 1) if not rows[number].startswith(" " * 11))
    return " ".join(row.strip() for row in rows[at:end]).removeprefix(label).strip()


def test_the_bound_is_told_with_what_it_was_taken_for() -> None:
    facts = {"tp_size": 4, "pp_size": 1, "ranks": 1, "gpus": 4, "kv_dtype_k": "fp8", "kv_dtype_v": "fp8"}
    ran = {"server.running": 16.0, "metrics.output_tok_s": 28.7, "metrics.mean_context_tokens": 1000.0}
    limit = bound_of(trial_in_memory(ran, facts), "DeepSeek-V4-Flash", find("rtx_pro_6000_server"))
    said = line("bound", render(checked(ran, facts, bound=limit)))
    assert said == (
        "28.7 tok/s is 1.9 % of 1,520 tok/s (memory and collectives) for the batch of 16.0 that ran; DeepSeek-V4-Flash "
        "in MXFP4 on 4 x RTX PRO 6000 Blackwell Server Edition, tp 4, KV cache fp8"
    )
    silent = render(checked(ran | {"metrics.output_tok_s": None}, facts, bound=limit))
    assert line("bound", silent).startswith("at most 1,520 tok/s (memory and collectives)")


def test_a_bound_that_is_unknown_says_why_and_one_that_nobody_asked_for_is_not_told() -> None:
    assert line("bound", render(checked(bound=CheckBound(unknown="no such model")))) == "unknown: no such model"
    assert "bound  " not in render(checked())


def test_a_median_that_needs_more_requests_names_the_window_that_brings_them() -> None:
    few = {f"metrics.{name}_{rank}_ms": None for name in ("ttft", "tpot") for rank in ("p50", "p99")}
    page = render(checked({"concurrency": 8, "metrics.requests_in_window": 18, "window.seconds": 20.0, **few}))
    said = line("TTFT, TPOT", page)
    assert said == "– (18 requests began in the window, 40 are needed: --seconds 50)"
    none = render(checked({"concurrency": 8, "metrics.requests_in_window": 0, **few}))
    assert "no request began in the window" in line("TTFT, TPOT", none)


def test_a_p99_that_is_missing_says_why() -> None:
    changes = {
        "metrics.requests_in_window": 50,
        "window.seconds": 30.0,
        "metrics.tpot_p50_ms": 20.0,
        "metrics.tpot_p99_ms": None,
    }
    page = render(checked(changes))
    expected = "p50 20.0 ms   p99 – (50 requests began in the window, 100 are needed: --seconds 70)"
    assert line("TPOT", page) == expected
    cut = render(checked(changes | {"metrics.requests_in_window": 500}))
    assert "the slowest had no end" in line("TPOT", cut)


def test_answers_in_one_piece_have_no_time_per_token() -> None:
    changes = {"metrics.tpot_p50_ms": None, "metrics.requests_in_window": 500, "client.zero_tpot_share": 1.0}
    said = line("TPOT", render(checked(changes)))
    assert "came in one piece" in said
    assert "--seconds" not in said


def test_a_latency_that_a_code_withdraws_is_marked() -> None:
    moved = Code("false-plateau", WARNING, "it moved", withdraws=("tpot_p50_ms",))
    page = render(checked(codes=(moved,)))
    assert line("TPOT", page).endswith("doubtful: false-plateau")
    assert "doubtful" not in line("TTFT", page)


def test_the_rate_for_each_is_of_our_own_requests() -> None:
    ours = {"metrics.output_tok_s": 100.0, "server.running": 8.0, "client.littles_law": 4.0}
    assert "25.0 for each running request" in render(checked(ours))
    foreign = Code("foreign-traffic", INVALID, "somebody else")
    assert "for each" not in render(checked(ours, codes=(foreign,)))


def test_figures_under_an_invalid_code_are_marked() -> None:
    wrong = Code("count-mismatch", INVALID, "they differ")
    page = render(checked(codes=(wrong,)))
    assert line("output", page).endswith("doubtful: count-mismatch")
    assert "invalid: do not quote" in page
    told = Diagnosis("not to be believed", "they differ", "count-mismatch", "compare them")
    assert line("output", render(checked(codes=(wrong,), diagnosis=told))).endswith("doubtful: count-mismatch")


def test_the_code_of_the_diagnosis_is_no_finding_once_more() -> None:
    capped = Code("batch-cap", INVALID, "asked 16, ran 8.0, 8.0 waited")
    other = Code("structural-gap", FINDING, "something else")
    diagnosis = Diagnosis("cap-bound", capped.text, "batch-cap", "raise the cap")
    facts = {"cap": 8, "cap_source": "a flag", "cap_flag": "--max-num-seqs"}
    page = render(checked(CAPPED, facts, (capped, other), diagnosis))
    assert "batch-cap" not in page and "doubtful" not in page
    assert "structural-gap: something else" in page
    assert "asked 16   ran 8.0   waited 8.0   cap 8   in flight at the client 16.0" in page
    assert line("cap set by", page) == "a flag"


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"cap_flag": "--parallel"}, "start the server with --parallel 16; or call this result C=8"),
        ({"cap_flag": "--seqs", "ranks": 2}, "a higher --seqs, so that its 2 ranks run 16 together"),
        ({"cap_flag": "--seqs", "cap_asked": 64}, "find out what lowered --seqs 64"),
        ({}, "raise the server's limit"),
    ],
)
def test_the_advice_names_the_engines_flag(facts: dict[str, Any], words: str) -> None:
    diagnosis = Diagnosis("cap-bound", "", "batch-cap", "raise the cap")
    assert words in (checked(CAPPED, {"cap": 8, **facts}, diagnosis=diagnosis).diagnosis.fix or "")


def test_a_hidden_cap_keeps_the_audits_own_words() -> None:
    diagnosis = Diagnosis("cap-bound", "it ran a flat 8", "batch-cap", "look for a limit")
    assert checked(CAPPED, {"cap": 64}, diagnosis=diagnosis).diagnosis == diagnosis


@pytest.mark.parametrize(
    ("running", "words"),
    [
        (None, "neither how many requests ran nor how many waited; at most 4 of your 8 can have run at once"),
        (3.9, "3.9 requests ran; the server does not show how many waited; at most 4 of your 8"),
    ],
)
def test_a_server_without_gauges_is_told_its_switch(running: float | None, words: str) -> None:
    changes = {"concurrency": 8, "server.running": running, "server.waiting": None}
    found = checked(changes, {"cap": 4}, diagnosis=BLIND, missing=NO_METRICS)
    assert words in found.diagnosis.text
    assert found.diagnosis.fix == "start it with --metrics"
    assert line("unseen", render(found)) == NO_METRICS[0]


def test_gauges_that_are_shown_and_wrong_are_no_matter_of_a_switch() -> None:
    assert checked(diagnosis=BLIND, missing=NO_METRICS).diagnosis == BLIND


@pytest.mark.parametrize(
    ("caching", "hits", "words"),
    [
        (True, 0.0, "prefix cache on, 0.0 % hits (the lab's prompts are all different on purpose)"),
        (None, 0.0, "prefix cache: 0.0 % hits (the lab's"),
        (None, None, "prefix cache: hits not shown"),
        (False, 0.0, "prefix cache off"),
    ],
)
def test_hits_are_told_with_what_they_say(caching: bool | None, hits: float | None, words: str) -> None:
    page = render(checked({"metrics.prefix_hit_share": hits}, {"prefix_caching": caching}))
    assert words in line("cache", page)


@pytest.mark.parametrize(
    ("speculative", "each", "words"),
    [
        (False, 1.0, "none: no speculative decoding"),
        (False, 2.69, "none, says the server; but a chunk carries 2.69 tokens"),
        (None, 1.0, "does not show whether"),
        (True, 1.0, "counters do not tell"),
    ],
)
def test_drafts_that_are_not_counted_are_explained(speculative: bool | None, each: float, words: str) -> None:
    changes = {"metrics.acceptance": None, "metrics.acceptance_length": None, "client.tokens_per_chunk": each}
    assert words in line("drafts", render(checked(changes, {"speculative": speculative})))


@pytest.mark.parametrize("width", [50, 80, 100, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    path = "/root/.cache/huggingface/hub/models--org--A-Long-Name/snapshots/0123456789abcdef0123456789abcdef01234567"
    rows = render(checked(CAPPED, missing=NO_METRICS, model=path), width).splitlines()
    assert max(map(len, rows)) <= min(100, width)
    if width >= 80:
        assert rows[0] == "vllm"
