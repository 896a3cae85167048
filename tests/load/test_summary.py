"""Window arithmetic: what counts, where, and what stays missing."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from lab.load.figures_requests import Requests
from lab.load.summary import counter_delta
from tests.load.tables import CLOSED, OPENED, request, summary, timeline


def test_tokens_count_where_they_arrived():
    rows = [request(90, 99, [(99.0, 1), (100.0, 2), (107.999, 3), (108.0, 4)], 109)]
    measured = summary(rows)
    assert measured["client"]["window_tokens"] == 5
    assert measured["client"]["output_tokens"] == 10
    assert measured["metrics"]["output_tok_s"] == 5 / 8
    assert measured["metrics"]["tok_s_per_user"] == 5 / 16
    assert measured["client"]["bins_tok_s"] == pytest.approx([2 * 12 / 8, *[0] * 10, 3 * 12 / 8])
    assert (measured["window"]["started_s"], measured["window"]["drained_s"]) == (90, 109)


def test_littles_law_cuts_requests_to_the_window():
    rows = [
        request(96, 97, [(97.0, 4)], 104),
        request(104, 105, [(105.0, 4)], 200),
        request(10, 11, [(11.0, 4)], 12),
    ]
    client = summary(rows)["client"]
    assert client["littles_law"] == pytest.approx(1.0)
    assert client["littles_law_run"] == pytest.approx((8 + 96 + 2) / 190)
    assert client["peak_in_flight"] == 1


def test_failed_and_aborted_requests_stay_in_the_record():
    rows = [
        request(100, 101, [(101.0, 1)] * 4, 102),
        request(100, 101, [(101.0, 1)], 104, error="disconnected", error_text="cut", tokens_source="chunks"),
        request(101, None, [], 102, error="http-5xx", error_text="no", prompt_tokens=None, tokens_source="chunks"),
        request(104, 105, [(106.0, 2)], 120, error="aborted", error_text="late", tokens_source="chunks"),
    ]
    client = summary(rows)["client"]
    names = ("sent", "completed", "failed", "aborted", "aborted_of_window", "errors", "tokens_source")
    assert {name: client[name] for name in names} == {
        "sent": 4, "completed": 1, "failed": 2, "aborted": 1, "aborted_of_window": 1,
        "errors": {"disconnected": 1, "http-5xx": 1}, "tokens_source": "usage",
    }  # fmt: skip
    assert (client["window_tokens"], client["output_tokens"], client["prompt_tokens"]) == (7, 7, 30)
    assert client["error_text"] == "cut"


def test_nothing_completed_is_nothing_measured():
    measured = summary([request(100, None, [], 101, error="http-5xx", error_text="x", prompt_tokens=None)])
    assert measured["client"]["window_tokens"] == 0
    assert measured["client"]["tokens_source"] is None
    assert measured["client"]["prompt_tokens"] is None
    times = {name: value for name, value in measured["metrics"].items() if name.endswith(("_ms", "_tok_s"))}
    assert len(times) == 10 and set(times.values()) == {None}
    assert measured["steady"]["outcome"] == "too-short"


def test_latencies_are_missing_below_five_requests_per_client():
    row = request(100, 100.5, [(100.5, 1), (102.0, 3)], 102)
    assert summary([row] * 9)["metrics"]["ttft_p50_ms"] is None
    metrics = summary([row] * 10)["metrics"]
    assert metrics["ttft_p50_ms"] == pytest.approx(500)
    assert metrics["tpot_p50_ms"] == pytest.approx(500)
    assert metrics["e2e_p50_ms"] == pytest.approx(2000)
    assert metrics["ttft_p99_ms"] is None
    assert summary([row] * 100)["metrics"]["ttft_p99_ms"] == pytest.approx(500)


def test_latencies_are_those_of_requests_issued_in_the_window_whenever_they_end():
    before = request(OPENED - 0.001, 100.5, [(100.5, 1), (102.0, 3)], 102)
    issued = request(OPENED, 103, [(103, 1), (104.0, 3)], CLOSED + 50)
    metrics = summary([before] * 50 + [issued] * 10)["metrics"]
    assert metrics["requests_in_window"] == 10
    assert metrics["e2e_p50_ms"] == pytest.approx(58_000)


def test_requests_that_were_aborted_are_longer_than_all_others_and_not_forgotten():
    whole = request(100, 101, [(101.0, 1), (102.0, 3)], 102)
    cut = request(100, 103, [(103.0, 1), (120.0, 1)], 120, error="aborted")
    metrics = summary([whole] * 6 + [cut] * 5)["metrics"]
    assert metrics["requests_in_window"] == 11
    assert (metrics["ttft_p50_ms"], metrics["e2e_p50_ms"]) == (1000, 2000)
    metrics = summary([whole] * 5 + [cut] * 6)["metrics"]
    assert (metrics["ttft_p50_ms"], metrics["e2e_p50_ms"]) == (3000, None)
    silent = request(100, None, [], 120, error="aborted")
    assert summary([whole] * 5 + [silent] * 6)["metrics"]["ttft_p50_ms"] is None


def test_failed_requests_have_no_latency():
    whole = request(100, 101, [(101.0, 1), (102.0, 3)], 102)
    cut = request(100, 100.001, [(100.001, 1)], 100.002, error="disconnected")
    assert summary([whole] * 10 + [cut] * 30)["metrics"]["e2e_p50_ms"] == 2000


def test_whole_answer_in_one_chunk_has_no_time_per_token():
    measured = summary([request(100, 101, [(101.0, 4)], 101)] * 10)
    assert measured["metrics"]["tpot_p50_ms"] is None
    assert measured["metrics"]["ttft_p50_ms"] == 1000
    client = measured["client"]
    assert (client["zero_ttft_share"], client["zero_tpot_share"], client["zero_latency_share"]) == (0, 1, 1)


def test_a_single_token_has_no_time_per_token_and_that_is_no_fault():
    assert summary([request(100, 101, [(101.0, 1)], 101)])["client"]["zero_latency_share"] == 0


def test_zero_is_never_a_time():
    measured = summary([request(100, 100, [(100.0, 1), (102.0, 3)], 102)] * 20)
    assert measured["metrics"]["ttft_p50_ms"] is None
    assert measured["client"]["zero_ttft_share"] == 1


def test_in_an_open_loop_five_requests_for_each_in_flight_are_needed_not_for_each_slot():
    rows = [request(100, 101, [(101.0, 1), (102.0, 3)], 102)] * 6
    assert summary(rows, concurrency=100, arrivals="poisson", rate_rps=1.0)["metrics"]["ttft_p50_ms"] is None
    metrics = summary(rows[:5], concurrency=100, arrivals="poisson", rate_rps=1.0)["metrics"]
    assert metrics["ttft_p50_ms"] is None
    later = [request(t, t + 0.5, [(t + 0.5, 1), (t + 1, 3)], t + 1) for t in range(100, 108)]
    measured = summary(later, concurrency=100, arrivals="poisson", rate_rps=1.0)
    assert measured["metrics"]["ttft_p50_ms"] == pytest.approx(500)
    assert measured["metrics"]["tok_s_per_user"] == pytest.approx(measured["metrics"]["output_tok_s"])
    assert measured["client"]["achieved_rps"] == pytest.approx(1.0)


def test_what_waited_for_a_slot_is_told_with_those_that_never_got_one():
    rows = [
        request(102, 103, [(103.0, 4)], 104, due_s=101),
        request(None, None, [], math.nan, due_s=104, tokens_source=None),
        request(101, 103, [(103.0, 4)], 104, due_s=98),
    ]
    measured = summary(rows, arrivals="poisson", rate_rps=1.0)
    client = measured["client"]
    assert (client["sent"], client["never_sent"], client["backlog_at_open"]) == (2, 1, 1)
    assert client["wait_for_slot_mean_ms"] == pytest.approx((1000 + 4000) / 2)
    assert client["due_in_window"] == 2
    assert client["due_delay_mean_ms"] == pytest.approx(1000)
    assert summary(rows)["client"]["wait_for_slot_mean_ms"] is None


def test_mean_context_is_weighted_by_tokens():
    rows = [request(99, 101, [(101.0, 1), (102.0, 3)], 103)]
    assert summary(rows)["metrics"]["mean_context_tokens"] == (11 * 1 + 14 * 3) / 4
    rows.append(request(99, 101, [(101.0, 9)], 103, prompt_tokens=None))
    assert summary(rows)["metrics"]["mean_context_tokens"] == (11 * 1 + 14 * 3) / 4


def test_clients_that_wait_after_a_failure_are_counted_over_their_whole_wait():
    """From the end of the failure until the next request of the same client falls due, cut to the window."""
    refused = {"error": "http-5xx", "error_text": "busy"}
    rows = [
        request(99, None, [], 99, client=1, **refused),  # until the next, two seconds after the window opened
        request(100, 101, [(101.0, 4)], 107, client=0),
        request(102, None, [], 103, client=1, **refused),  # one second
        request(104, 105, [(105.0, 4)], 106, client=1),
        request(107, None, [], 107, client=0, **refused),  # until the window closes
        request(106, 107, [(107.0, 4)], 120, client=1, error="aborted", error_text="late"),
    ]
    assert summary(rows)["client"]["backing_off"] == pytest.approx((2 + 1 + 1) / 8)
    assert summary(rows[::-1])["client"]["backing_off"] == pytest.approx((2 + 1 + 1) / 8)
    assert summary(rows, time_factor=10.0)["client"]["backing_off"] == pytest.approx((2 + 1 + 1) / 8)
    assert summary(rows, arrivals="poisson", rate_rps=1)["client"]["backing_off"] is None
    none = [request(None, None, [], math.nan, due_s=104, tokens_source=None)]
    assert summary(rows[1:2])["client"]["backing_off"] == summary(none)["client"]["backing_off"] == 0


def test_what_was_in_flight_is_worked_out_once():
    sent = Requests(pd.DataFrame([request(100, 101, [(101.0, 4)], 102)]), OPENED, 8.0, 1.0)
    assert sent.flight is sent.flight


def test_tokens_a_step_are_known_without_drafted_tokens_where_steps_are_counted():
    """Of twelve tokens that two finished requests got, two come from their prefills and ten from four steps."""
    rows = [request(100, 101, [(101.0, 4)], 102)]
    delta = {"drafts": 4.0, "output_tokens_finished": 12.0, "requests_finished": 2.0}
    metrics = summary(rows, delta=delta)["metrics"]
    names = ("acceptance", "acceptance_length", "acceptance_source")
    assert [metrics[n] for n in names] == [None, 2.5, "tokens-per-step"]
    for silent in ({"drafts": 0.0}, {"drafts": None}, {"requests_finished": None}, {"output_tokens_finished": None}):
        known = {name: value for name, value in {**delta, **silent}.items() if value is not None}
        metrics = summary(rows, delta=known)["metrics"]
        assert [metrics[n] for n in names] == [None, None, None]
    both = delta | {"draft_tokens": 16.0, "draft_accepted": 4.0}
    assert [summary(rows, delta=both)["metrics"][n] for n in names] == [0.25, 2.0, "counters"]


def test_acceptance_prefers_counters_inside_the_window_then_of_the_trial_then_the_requests():
    rows = [request(100, 101, [(101.0, 4)], 102, draft_tokens=10, draft_accepted=5)]
    delta = {"draft_tokens": 8, "draft_accepted": 2, "drafts": 2}
    metrics = summary(rows, delta=delta)["metrics"]
    assert [metrics[n] for n in ("acceptance", "acceptance_length", "acceptance_source")] == [0.25, 2.0, "counters"]
    metrics = summary(rows)["metrics"]
    assert [metrics[n] for n in ("acceptance", "acceptance_length", "acceptance_source")] == [0.5, None, "requests"]
    assert summary(rows, delta={"draft_tokens": 0, "draft_accepted": 0})["metrics"]["acceptance"] is None
    grows = pd.concat([timeline((t, 1, 0), draft_tokens=4.0 * t, draft_accepted=3.0 * t) for t in (99, 104, 109)])
    live = {"live_counters": {"draft_tokens", "draft_accepted"}}
    assert summary(rows, grows, delta=delta, **live)["metrics"]["acceptance"] == pytest.approx(0.75)


def test_chunks_and_lengths():
    rows = [
        request(99, 100, [(100.0, 1), (101.0, 2), (102.0, 6)], 103, output_tokens=9, max_tokens=9, repeats=True),
        request(99, 100, [(100.0, 3)], 103, max_tokens=9, repeats=False),
        request(99, 100, [(100.0, 3)], 103, max_tokens=3),
    ]
    client = summary(rows, output_tokens=9, ignore_eos=True)["client"]
    assert (client["chunks"], client["tokens_per_chunk"]) == (5, 15 / 5)
    assert client["late_tokens_share"] == pytest.approx((6 - 2) / 15)
    assert client["output_tokens_mean"] == 6
    assert client["length_errors_share"] == 0.5
    assert client["repeats_share"] == 0.5
    assert client["lengths_measured"] == [9, 3]
    assert client["prompts_measured"] == [rows[0]["prompt"], rows[1]["prompt"]]
    assert summary(rows, output_tokens=9)["client"]["length_errors_share"] is None
    assert summary(rows, output_tokens=None)["client"]["output_tokens_mean"] == 5


def test_a_request_that_never_got_a_slot_counts_in_the_time_from_when_it_was_due():
    """Served in 100 ms each; thirty more fell due and were never sent: half of those due have no end."""
    served = [request(100, 100.05, [(100.05, 1), (100.08, 3)], 100.1) for _ in range(31)]
    never = [request(100, None, [], None, sent_s=None, due_s=100.5, error="not-sent") for _ in range(30)]
    told = summary([*served, *never], arrivals="poisson", concurrency=1)["metrics"]
    assert told["e2e_p50_ms"] == pytest.approx(100)
    assert told["queue_e2e_p50_ms"] == pytest.approx(100)
    told = summary([*served[1:], *never, never[0]], arrivals="poisson", concurrency=1)["metrics"]
    assert told["e2e_p50_ms"] == pytest.approx(100)
    assert told["queue_e2e_p50_ms"] is None


def test_an_answer_cut_after_its_first_chunk_is_slower_than_all():
    whole = [request(100, 101, [(101.0, 1), (102.0, 11)], 102) for _ in range(5)]
    cut = [request(100, 101, [(101.0, 1)], 104, error="aborted") for _ in range(6)]
    assert summary([*whole, *cut[:4]], concurrency=1)["metrics"]["tpot_p50_ms"] == pytest.approx(1000 / 11)
    assert summary([*whole, *cut], concurrency=1)["metrics"]["tpot_p50_ms"] is None


def test_a_role_only_event_long_before_the_first_token_is_told():
    early = request(100, 105, [(105.0, 1), (106.0, 3)], 107, first_event_s=100.001)
    prompt = request(100, 105, [(105.0, 1), (106.0, 3)], 107, first_event_s=104.9)
    assert summary([early, prompt])["client"]["first_event_early_share"] == 0.5


@pytest.mark.parametrize(("lead_s", "share"), [(0.0009, 0.0), (0.0011, 1.0)])
def test_events_that_were_sent_together_are_read_within_a_millisecond(lead_s: float, share: float):
    row = request(100, 100.003, [(100.003, 1), (106.0, 3)], 107, first_event_s=100.003 - lead_s)
    assert summary([row])["client"]["first_event_early_share"] == share


def test_slow_first_requests_are_told_from_chance():
    def trial(slow: float) -> dict:
        rows = []
        for number in range(60):
            t, pace = 97 + number * 0.15, 0.1 * (1 + number % 3 / 10) * (slow if number < 8 else 1)
            rows.append(request(t, t + pace, [(t + pace, 1), (t + 4 * pace, 3)], t + 4 * pace + 3))
        return summary(rows)["client"]

    calm, cold = trial(1.0), trial(50.0)
    assert calm["early_ratio_ttft"] == pytest.approx(1, abs=0.15) and calm["early_p_ttft"] > 0.01
    assert cold["early_ratio_ttft"] > 10 and cold["early_p_ttft"] < 1e-3


def test_early_ratios_need_twenty_requests():
    rows = [request(100, 101, [(101.0, 1), (102.0, 3)], 103)] * 20
    assert summary(rows)["client"]["early_ratio_tpot"] == pytest.approx(1)
    assert summary(rows[:19])["client"]["early_ratio_tpot"] is None


def test_a_fill_inside_the_window_is_seen_by_the_shares_of_time():
    rows = [request(100 + 4 * n, 101 + 4 * n, [(101.0 + 4 * n, 4)], 112) for n in range(2)]
    client = summary(rows)["client"]
    assert client["full_share"] == pytest.approx(8 / 12)
    assert client["in_flight_bins"][0] == pytest.approx(1) and client["in_flight_bins"][-1] == pytest.approx(2)
    assert client["in_flight_flat_pct"] == pytest.approx(50 / 1.5)


def test_a_token_count_that_is_missing_is_not_guessed():
    row = request(100, 101, [(101.0, 1), (102.0, 3)], 103)
    row["chunk_tokens"] = [1]
    with pytest.raises(ValueError, match="row 0: not every chunk has a token count"):
        summary([row])


def test_counters_that_fell_or_vanished_are_left_out():
    before = {"grew": 1, "stood": 2, "fell": 3, "vanished": 4}
    assert counter_delta(before, {"grew": 5, "stood": 2, "fell": 1}) == {"grew": 4, "stood": 0}


def test_a_counter_that_appears_with_its_first_event_began_at_zero():
    assert counter_delta({"grew": 1}, {"grew": 5, "preemptions": 9}) == {"grew": 4, "preemptions": 9}
    assert counter_delta({}, {"grew": 5, "preemptions": 9}) == {}  # nothing was to be read before
