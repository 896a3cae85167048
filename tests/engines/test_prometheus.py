"""A metrics page is read by exact names, absent and NaN stay absent, and any other page is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from lab.engines import _prometheus
from lab.engines._control import Control
from lab.engines._prometheus import Series
from tests.engines import web

Captured = Callable[[str], str]
NAMES = {
    *("vllm:num_requests_waiting", "vllm:generation_tokens_total", "vllm:iteration_tokens_total_count"),
    *("vllm:request_success_total", "vllm:no_such_metric"),
}


def test_a_name_that_begins_another_name_is_not_taken_for_it() -> None:
    page = _prometheus.read(
        'vllm:num_requests_waiting{engine="0"} 8\nvllm:num_requests_waiting_by_reason{engine="0",reason="x"} 3\n', NAMES
    )
    assert page.total("vllm:num_requests_waiting") == 8
    assert set(page.metrics) == {"vllm:num_requests_waiting"}


def test_created_twins_and_buckets_are_not_read() -> None:
    text = web.text("vllm_metrics_ngram.txt")
    assert "vllm:generation_tokens_created" in text
    assert set(_prometheus.read(text, NAMES).metrics) == NAMES - {"vllm:no_such_metric"}


def test_what_is_absent_or_not_a_number_stays_absent() -> None:
    page = _prometheus.read("a NaN\nb 1\n", {"a", "b", "c"})
    assert (page.total("a"), page.total("b"), page.total("c")) == (None, 1, None)
    assert page.largest("a") is None
    assert _prometheus.read(web.text("sglang_metrics_c16.txt"), {"sglang:fwd_occupancy"}).metrics == {}


@pytest.mark.parametrize("value", ["+Inf", "-Inf", "NaN", "-3", "1e999"])
def test_a_value_that_no_count_has_is_absent(value: str) -> None:
    page = _prometheus.read(f'a{{r="0"}} {value}\nb {value}\nb{{r="1"}} 2\n', {"a", "b"})
    assert (page.total("a"), page.largest("a"), page.total("b")) == (None, None, 2)


@pytest.mark.parametrize("before", [0, 60, 90])
def test_a_page_that_quotes_the_key_is_refused_without_it(before: int) -> None:
    key = "sk-SECRET-1234567890"
    with web.Web({"/metrics": f"error {'x' * before} for Bearer {key} {key}"}) as server:
        control = Control(server.url, {"Authorization": f"Bearer {key}"})
        with pytest.raises(requests.RequestException, match="no metrics page") as refused:
            _prometheus.scrape(control, {"a"})
    assert "SECRET" not in str(refused.value)
    assert "sk-" not in str(refused.value)
    assert len(str(refused.value)) < 120
    assert refused.value.__cause__ is None


def test_labels_choose_series() -> None:
    page = _prometheus.read(web.text("vllm_metrics_ngram.txt"), NAMES)
    assert page.total("vllm:request_success_total", finished_reason="length") == 16
    assert page.total("vllm:request_success_total", finished_reason="never") is None


@pytest.mark.parametrize(
    "wrong", ["<html>", '{"error":{"code":501}}', "name", "", "# HELP a b\n", "b 1\nInternal Server Error"]
)
def test_another_page_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="no metrics page"):
        _prometheus.read(wrong, {"a"})


@pytest.mark.parametrize("name", ["metrics_loaded.txt", "metrics_spec.txt"])
def test_all_of_a_captured_page_is_read_under_the_names_that_stand_there(captured: Captured, name: str) -> None:
    text = captured(name)
    values = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    samples = [sample for family in text_string_to_metric_families(values) for sample in family.samples]
    page = _prometheus.read(text, {sample.name for sample in samples})
    assert {(n, one.value) for n, series in page.metrics.items() for one in series} == {
        (sample.name, float(sample.value)) for sample in samples
    }


LABELS = st.dictionaries(st.sampled_from(["tp_rank", "dp_rank", "mode"]), st.sampled_from(["0", "1"]), min_size=3)


@given(st.lists(st.builds(Series, LABELS, st.floats(0, 100))))
def test_copies_never_add_up(series: list[Series]) -> None:
    kept = _prometheus.largest_of_copies(series, ("tp_rank",))
    groups = {(one.labels["dp_rank"], one.labels["mode"]) for one in series}
    assert {(one.labels["dp_rank"], one.labels["mode"]) for one in kept} == groups
    assert len(kept) == len(groups)
    assert max((one.value for one in kept), default=0) == max((one.value for one in series), default=0)


@given(st.lists(st.builds(Series, LABELS, st.integers(0, 100))))
def test_sums_by_label_lose_nothing(series: list[Series]) -> None:
    assert sum(_prometheus.by_label(series, "dp_rank").values()) == sum(one.value for one in series)
