"""What a running vLLM server says is read by exact names, added up over ranks, and told from what was only asked."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import requests

from lab import engines
from lab.engines import _prometheus, _vllm_facts
from lab.engines._vllm_reader import VllmServer, counters
from tests.engines import web
from tests.engines.web import Web

INFO = "/server_info?config_format=json"
PAGE = web.text("vllm_metrics_ngram.txt")


def attached(server: Web) -> VllmServer:
    found = engines.readers()["vllm"].attach(server.url, "m")
    assert isinstance(found, VllmServer)
    return found


def values(pages: dict[str, Any]) -> dict[str, Any]:
    with Web(pages) as server:
        return {key: fact.value for key, fact in attached(server).describe().items()}


def config(**parts: dict[str, Any]) -> dict[str, Any]:
    """The captured /server_info with fields of its parts changed."""
    changed = copy.deepcopy(web.content("vllm_server_info_ngram.json"))
    for name, fields in parts.items():
        changed["vllm_config"][name] |= fields
    return changed


def counted(page: str) -> dict[str, float]:
    return counters(_prometheus.read(page, {line.split("{")[0] for line in page.splitlines() if "{" in line}))


def loaded(engine: int, running: int, waiting: int, usage: float) -> str:
    """A page of one rank under load, with the series whose names begin like the wanted ones."""
    labels = f'engine="{engine}",model_name="m"'
    return (
        f"vllm:num_requests_running{{{labels}}} {running}\nvllm:num_requests_waiting{{{labels}}} {waiting}\n"
        f'vllm:num_requests_waiting_by_reason{{{labels},reason="capacity"}} 0.0\n'
        f"vllm:kv_cache_usage_perc{{{labels}}} {usage}\nvllm:generation_tokens_total{{{labels}}} {100 + engine}\n"
        f"vllm:generation_tokens_created{{{labels}}} 1.7e9\n"
    )


def test_a_queue_is_not_hidden_by_the_series_by_reason() -> None:
    with Web(web.vllm(**{"/metrics": loaded(0, 4, 8, 0.5)})) as server:
        sample = attached(server).sample()
    assert (sample.running, sample.waiting, sample.kv_usage) == (4, 8, 0.5)
    assert sample.counters == {"output_tokens": 100}
    assert sample.running_by_rank == ()


def test_ranks_are_added_and_of_shares_the_fullest_counts() -> None:
    page = "".join(loaded(rank, 2 + rank, rank, 0.1 * rank) for rank in (10, 2, 0))
    pages = web.vllm(**{"/metrics": page, INFO: config(scheduler_config={"max_num_seqs": 16})})
    with Web(pages) as server:
        found = attached(server)
        sample, facts = found.sample(), found.describe()
    assert (sample.running, sample.waiting, sample.kv_usage) == (18, 12, 1.0)
    assert sample.running_by_rank == (2, 4, 12)
    assert sample.counters["output_tokens"] == 312
    assert (facts["ranks"].value, facts["cap"].value, facts["cap_asked"].value) == (3, 48, 16)
    assert facts["cap_by_rank"].value == [16, 16, 16]


def test_counters_of_a_speculating_server_have_the_labs_names() -> None:
    found = counted(PAGE)
    assert found == {
        "output_tokens": 832,
        "decode_steps": 193,
        "requests_finished": 16,
        "requests_aborted": 0,
        "prompt_tokens": 896,
        "cached_tokens": 0,
        "prefix_queries": 896,
        "prefix_hits": 0,
        "preemptions": 0,
        "drafts": 148,
        "draft_tokens": 485,
        "draft_accepted": 443,
        "draft_accepted_at_0": 144,
        "draft_accepted_at_1": 115,
        "draft_accepted_at_2": 99,
        "draft_accepted_at_3": 85,
    }


def test_the_servers_own_model_of_its_work_is_counted_where_it_keeps_one() -> None:
    page = "".join(
        f'vllm:estimated_{name}_per_gpu_total{{engine="0",model_name="m"}} {value}\n'
        for name, value in (("flops", 3e12), ("read_bytes", 2e9), ("write_bytes", 1e9))
    )
    estimated = {"estimated_flops": 3e12, "estimated_read_bytes": 2e9, "estimated_write_bytes": 1e9}
    assert counted(page) == estimated
    assert not estimated.keys() & counted(loaded(0, 4, 0, 0.5)).keys()


def test_cached_prompt_tokens_are_not_computed_ones() -> None:
    page = web.text("vllm_metrics_prefix.txt")
    found = counted(page)
    assert "vllm:prompt_tokens_total" in page
    assert (found["prompt_tokens"], found["cached_tokens"]) == (904, 1792)
    assert (found["prefix_queries"], found["prefix_hits"]) == (2696, 1792)
    without = "\n".join(line for line in page.splitlines() if "by_source" not in line)
    assert counted(without)["prompt_tokens"] == 904
    total_only = "\n".join(line for line in without.splitlines() if "cached" not in line)
    assert "prompt_tokens" not in counted(total_only)


def test_aborted_requests_are_no_finished_ones() -> None:
    lines = 'vllm:request_success_total{finished_reason="%s"} %d\n'
    page = lines % ("stop", 3) + lines % ("length", 5) + lines % ("abort", 2) + lines % ("error", 1)
    found = counted(page)
    assert (found["requests_finished"], found["requests_aborted"]) == (9, 2)


def test_no_counter_of_speculation_without_speculation() -> None:
    assert not any(name.startswith("draft") for name in counted(web.text("vllm_metrics_prefix.txt")))


def test_the_configuration_is_described_as_resolved() -> None:
    found = values(web.vllm())
    assert found == found | {
        "cap": 16,
        "cap_source": "--max-num-seqs, given or by default",
        "cap_flag": "--max-num-seqs",
        "ranks": 1,
        "kv_tokens": 5760,
        "kv_max_concurrency": 5.625,
        "kv_bytes_per_token": 46603,
        "kv_dtype_k": None,
        "kv_dtype_asked": "auto",
        "block_tokens": 128,
        "prefix_caching": True,
        "context_tokens": 1024,
        "speculative": True,
        "speculative_method": "ngram",
        "speculative_tokens": 4,
        "graphs": False,
        "graph_max_batch": None,
        "model_path": "/models/smollm2-135m",
        "version": "0.32.0",
        "max_batched_tokens": 2048,
        "attention_backend": None,
        "faked": False,
    }


def test_outside_of_developer_mode_the_limit_is_unknown_and_the_switch_is_named() -> None:
    with Web(web.vllm(**{INFO: (404, {"detail": "Not Found"})})) as server:
        found = attached(server)
        facts = found.describe()
    assert found.missing == (
        "the running limit and the rest of the configuration: start vLLM with VLLM_SERVER_DEV_MODE=1",
    )
    assert facts["cap"].value is None
    assert "VLLM_SERVER_DEV_MODE=1" in facts["cap_source"].value
    assert (facts["kv_tokens"].value, facts["prefix_caching"].value, facts["speculative"].value) == (5760, True, True)
    assert facts["context_tokens"].value == 1024
    assert all(fact.source for fact in facts.values())


def test_a_lower_limit_on_active_requests_is_the_cap() -> None:
    found = values(web.vllm(**{INFO: config(scheduler_config={"max_num_active_seqs": 6})}))
    assert (found["cap"], found["cap_asked"]) == (6, 16)
    assert found["cap_source"] == "max_num_active_seqs, lower than --max-num-seqs 16"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("{'model': 'm', 'max_num_seqs': 16, 'seed': 0}", "--max-num-seqs 16 was given"),
        ("{'model': 'm'}", "vLLM's default: no --max-num-seqs was given"),
    ],
)
def test_a_log_tells_a_typed_limit_from_the_default(arguments: str, said: str) -> None:
    log = f"(APIServer pid=1) INFO 11-30 21:30:03 [api_utils.py:286] non-default args: {arguments}\n"
    page = _prometheus.read("up 1\n", {"up"})
    assert _vllm_facts.facts(config(), {}, None, page, log)["cap_source"].value == said


def test_a_page_that_is_hidden_is_a_proxys_doing() -> None:
    with Web(web.vllm(**{"/metrics": None})) as server:
        assert "(/metrics answers 404): give the address of vLLM itself" in attached(server).missing[0]


def test_graphs_are_told_as_the_front_ends_word_and_for_whole_requests() -> None:
    graphs = {"cudagraph_mode": [2, 1], "cudagraph_capture_sizes": [1, 2, 4, 512]}
    with Web(web.vllm(**{INFO: config(compilation_config=graphs)})) as server:
        facts = attached(server).describe()
    assert facts["graphs"].value is True
    assert "a worker may have lowered it" in facts["graphs"].source
    assert facts["graph_max_batch"].value == 512 // (1 + 4)


def test_synthetic_acceptance_is_found() -> None:
    faked = config(speculative_config={"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 2.5})
    found = values(web.vllm(**{INFO: faked}))
    assert found["faked"] == "rejection_sample_method=synthetic, synthetic_acceptance_length=2.5"


def test_secrets_do_not_reach_the_facts() -> None:
    told = config(model_config={"hf_token": "S3CRET"})
    told["system_env"]["env_vars"] += "VLLM_API_KEY=S3CRET\n"
    with Web(web.vllm(**{INFO: told})) as server:
        facts = attached(server).describe()
    assert "S3CRET" not in json.dumps({key: [fact.value, fact.source] for key, fact in facts.items()})


def test_a_log_proves_what_the_front_end_only_asked() -> None:
    page = _prometheus.read("up 1\n", {"up"})
    found = _vllm_facts.facts({}, {}, None, page, web.text("vllm_mla.log"))
    assert (found["attention_backend"].value, found["attention_backend"].source) == (
        "CPU_MLA",
        "Using CPU_MLA backend.",
    )
    assert (found["kv_tokens"].value, found["kv_max_concurrency"].value) == (23296, 22.75)


def test_a_server_without_statistics_says_which_flag_took_them_away() -> None:
    with Web(web.vllm(**{"/metrics": "process_start_time_seconds 1\n"})) as server:
        found = attached(server)
        sample = found.sample()
    assert found.missing == ("gauges and counters: start vLLM without --disable-log-stats",)
    assert (sample.running, sample.waiting, sample.kv_usage, sample.counters) == (None, None, None, {})


def test_a_page_that_is_no_metrics_page_is_no_reading() -> None:
    with Web(web.vllm()) as server:
        found = attached(server)
        server.pages["/metrics"] = '{"error": "x"}'
        with pytest.raises(requests.RequestException, match="no metrics page"):
            found.sample()
        server.pages["/metrics"] = (500, "x")
        with pytest.raises(requests.RequestException, match="500"):
            found.sample()


def test_a_dead_engine_is_seen_although_its_front_end_answers() -> None:
    with Web(web.vllm()) as server:
        found = attached(server)
        assert found.alive()
        server.pages["/health"] = (503, "")
        assert not found.alive()
