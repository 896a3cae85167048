"""What a running SGLang server says is added up over its ranks, and its limits are the ones in force."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import requests

from lab import engines
from lab.engines import _prometheus, _sglang_facts
from lab.engines._sglang_reader import SglangServer, counters
from tests.engines import web
from tests.engines.web import Web

PAGE = web.text("sglang_metrics_c16.txt")
NO_SNAPSHOT = {"/v1/loads": None}


def attached(server: Web) -> SglangServer:
    found = engines.readers()["sglang"].attach(server.url, "/models/tiny")
    assert isinstance(found, SglangServer)
    return found


def values(pages: dict[str, Any]) -> dict[str, Any]:
    with Web(pages) as server:
        return {key: fact.value for key, fact in attached(server).describe().items()}


def info(**changes: Any) -> dict[str, Any]:
    """The captured /server_info with arguments changed at both places where they stand."""
    changed = copy.deepcopy(web.content("sglang_server_info.json"))
    changed |= changes
    changed["internal_states"] = [state | changes for state in changed["internal_states"]]
    return changed


def counted(page: str) -> dict[str, float]:
    return counters(_prometheus.read(page, _prometheus_names()))


def _prometheus_names() -> set[str]:
    return {line.split("{")[0] for line in PAGE.splitlines() if not line.startswith("#")} | {
        *("sglang:spec_verify_calls_total", "sglang:num_aborted_requests_total", "sglang:num_retracted_requests_total")
    }


def test_running_and_waiting_come_from_the_snapshot_and_not_from_gauges_that_lag() -> None:
    with Web(web.sglang()) as server:
        sample = attached(server).sample()
    assert (sample.running, sample.waiting, sample.kv_usage) == (0, 0, 0.0)
    assert sample.running_by_rank == ()


def test_data_parallel_ranks_are_added_and_shown_apart() -> None:
    with Web(web.sglang(**{"/v1/loads": web.content("sglang_v1_loads_dp2_during.json")})) as server:
        sample = attached(server).sample()
    assert (sample.running, sample.waiting) == (8, 8)
    assert sample.running_by_rank == (4, 4)
    assert sample.kv_usage == 0.0081


def test_gauges_stand_in_for_a_snapshot() -> None:
    with Web(web.sglang(**NO_SNAPSHOT)) as server:
        one = attached(server).sample()
    assert (one.running, one.waiting, one.kv_usage, one.running_by_rank) == (16, 0, 0.06, ())
    with Web(web.sglang(**NO_SNAPSHOT, **{"/metrics": web.text("sglang_metrics_dp2.txt")})) as server:
        two = attached(server).sample()
    assert (two.running, two.waiting, two.running_by_rank) == (8, 8, (4, 4))
    assert (two.kv_usage, two.counters) == (None, {})


def test_the_older_snapshot_counts_running_and_waiting_together() -> None:
    loads = [{"dp_rank": 0, "num_reqs": 16, "num_waiting_reqs": 12, "num_tokens": 900}]
    with Web(web.sglang(**NO_SNAPSHOT, **{"/get_load": loads})) as server:
        sample = attached(server).sample()
    assert (sample.running, sample.waiting) == (4, 12)
    assert sample.kv_usage == 0.06


def test_tensor_parallel_ranks_repeat_one_number_and_data_parallel_ranks_do_not() -> None:
    def line(name: str, tp: int, dp: int, value: float, extra: str = "") -> str:
        return f'sglang:{name}{{dp_rank="{dp}",engine_type="unified",tp_rank="{tp}",pp_rank="0"{extra}}} {value}\n'

    ranks = [(0, 0), (1, 0), (2, 1), (3, 1)]
    page = "".join(line("num_running_reqs", tp, dp, 4 + dp) for tp, dp in ranks)
    page += "".join(line("num_queue_reqs", tp, dp, 3, ',priority=""') for tp, dp in ranks)
    page += "".join(line("num_queue_reqs", tp, dp, 3, ',priority="7"') for tp, dp in ranks)
    page += "".join(line("realtime_tokens_total", tp, dp, 100, ',mode="prefill_compute"') for tp, dp in ranks)
    page += page.replace("unified", "draft")
    with Web(web.sglang(**NO_SNAPSHOT, **{"/metrics": page})) as server:
        sample = attached(server).sample()
    assert (sample.running, sample.running_by_rank) == (9, (4, 5))
    assert sample.waiting == 6
    assert sample.counters["prompt_tokens"] == 200
    assert sample.counters["cached_tokens"] == 0


def test_live_tokens_are_those_of_the_decode_and_the_first_one_of_each_request() -> None:
    found = counted(PAGE)
    finished, in_flight = 8 + 32, 16 * (1 + 60)
    assert found["output_tokens"] == finished + in_flight
    assert found["output_tokens_finished"] == finished
    assert found["requests_finished"] == 2
    assert (found["prompt_tokens"], found["cached_tokens"]) == (1108, 71)
    assert (found["prefix_queries"], found["prefix_hits"]) == (1179, 71)
    assert (found["decode_steps"], found["eager_steps"], found["graph_steps"]) == (98, 98, 0)


def test_gauges_of_speculation_are_no_counters_and_absent_counters_stay_absent() -> None:
    found = counted(PAGE)
    assert "sglang:spec_accept_length" in PAGE
    assert not {"drafts", "draft_tokens", "draft_accepted", "requests_aborted", "preemptions"} & found.keys()
    assert counted("sglang:num_running_reqs 1\n") == {}
    assert counted(PAGE + "sglang:spec_verify_calls_total 12\n")["drafts"] == 12


def test_only_counters_that_move_while_requests_run_are_called_live() -> None:
    live = engines.readers()["sglang"].live_counters
    assert live >= {"output_tokens", "prompt_tokens", "decode_steps"}
    assert not live & {"requests_finished", "requests_aborted", "drafts", "output_tokens_finished"}


def test_without_metrics_the_snapshot_is_left_and_the_switch_is_named() -> None:
    with Web(web.sglang(**{"/metrics": None})) as server:
        found = attached(server)
        assert found.missing == ("token and request counters: start SGLang with --enable-metrics",)
        sample = found.sample()
        assert found.describe()["kv_bytes_per_token"].value is None
    assert (sample.running, sample.waiting, sample.counters) == (0, 0, {})


def test_a_page_that_is_no_metrics_page_is_no_reading() -> None:
    with Web(web.sglang()) as server:
        found = attached(server)
        assert found.missing == ()
        server.pages["/metrics"] = "<html>502</html>"
        with pytest.raises(requests.RequestException, match=r"/metrics: no metrics page: '<html>"):
            found.sample()


def test_the_limit_in_force_is_said_and_not_the_null_of_the_arguments() -> None:
    found = values(web.sglang())
    assert found == found | {
        "cap": 4096,
        "cap_source": "the server itself: no --max-running-requests was given",
        "cap_asked": None,
        "cap_flag": "--max-running-requests",
        "ranks": 1,
        "kv_tokens": 32768,
        "kv_bytes_per_token": 4 * 2 * 64 * 2 * 2,
        "kv_dtype_k": None,
        "kv_dtype_asked": "auto",
        "context_tokens": 4096,
        "speculative": False,
        "graphs": False,
        "graph_max_batch": None,
        "prefix_caching": True,
        "block_tokens": 1,
        "model_path": "/models/tiny",
        "model_name": "/models/tiny",
        "version": "0.5.23",
        "attention_backend": "torch_native",
        "max_batched_tokens": 4096,
        "faked": None,
    }


def test_every_fact_has_a_source() -> None:
    with Web(web.sglang()) as server:
        assert all(fact.source for fact in attached(server).describe().values())


def test_limits_of_ranks_are_added_and_the_typed_one_is_told_apart() -> None:
    two = info(launch_command="--dp-size 2 --max-running-requests 4", max_running_requests=4, dp_size=2)
    two["internal_states"] = [
        state | {"effective_max_running_requests_per_dp": 4} for state in 2 * two["internal_states"]
    ]
    loads = web.content("sglang_v1_loads_dp2_during.json")
    found = values(web.sglang(**{"/server_info": two, "/v1/loads": loads}))
    assert (found["cap"], found["cap_asked"], found["ranks"]) == (8, 4, 2)
    assert found["cap_by_rank"] == [4, 4]
    assert found["cap_source"] == "--max-running-requests 4 was given, 2 data-parallel ranks"
    assert found["kv_tokens"] == 2 * 16384


@pytest.mark.parametrize(
    ("changes", "gpus"),
    [
        ({"device": "cuda", "tp_size": 4}, 4),
        ({"device": "cuda", "tp_size": 4, "dp_size": 2}, 8),
        ({"device": "cuda", "tp_size": 8, "dp_size": 8, "enable_dp_attention": True}, 8),
        ({"device": "cuda", "tp_size": 2, "pp_size": 2}, 4),
        ({"device": "cpu", "tp_size": 2}, None),
        ({"device": "cuda", "tp_size": None}, None),
    ],
)
def test_gpus_are_counted_once(changes: dict[str, Any], gpus: int | None) -> None:
    assert values(web.sglang(**{"/server_info": info(**changes)}))["gpus"] == gpus


def test_the_limit_that_speculation_sets_is_named() -> None:
    speculating = {
        "speculative_algorithm": "EAGLE",
        "speculative_num_draft_tokens": 4,
        "effective_max_running_requests_per_dp": 48,
        "max_running_requests": 48,
    }
    found = values(web.sglang(**{"/server_info": info(**speculating)}))
    assert found["cap_source"].startswith("speculative decoding reset the running limit to 48 (")
    assert (found["cap"], found["cap_asked"]) == (48, None)
    assert (found["speculative"], found["speculative_method"], found["speculative_tokens"]) == (True, "eagle", 3)
    typed = speculating | {"launch_command": "--max-running-req=48"}
    found = values(web.sglang(**{"/server_info": info(**typed)}))
    assert found["cap_source"] == "--max-running-requests 48 was given"
    assert found["cap_asked"] == 48
    old = info(**speculating)
    del old["launch_command"]
    found = values(web.sglang(**{"/server_info": old}))
    assert found["cap_source"].endswith("to 48 (unless somebody typed it)")
    other = info(**(speculating | {"effective_max_running_requests_per_dp": 6, "max_running_requests": None}))
    said = "the server itself, with speculative decoding on: no --max-running-requests was given"
    assert values(web.sglang(**{"/server_info": other}))["cap_source"] == said


def test_a_limit_that_the_server_lowered_is_told() -> None:
    command = {"launch_command": "--max-running-requests 64", "effective_max_running_requests_per_dp": 12}
    found = values(web.sglang(**{"/server_info": info(**command)}))
    assert (found["cap"], found["cap_asked"]) == (12, 64)
    assert found["cap_source"] == "--max-running-requests 64 was given, and the server lowered it"


def test_the_limit_that_speculation_sets_is_shared_by_attention_ranks() -> None:
    shared = info(
        speculative_algorithm="NEXTN", effective_max_running_requests_per_dp=6, dp_size=8, enable_dp_attention=True
    )
    shared["internal_states"] *= 8
    found = values(web.sglang(**{"/server_info": shared, "/v1/loads": None}))
    assert (found["cap"], found["ranks"]) == (48, 8)
    assert found["cap_source"].startswith("speculative decoding reset the running limit to 48 (")


def test_old_releases_are_asked_under_their_old_names_and_keep_what_they_do_not_say_open() -> None:
    old = info()
    for state in [old, *old["internal_states"]]:
        for key in ("effective_max_running_requests_per_dp", "decode_cuda_graph_bs", "launch_command"):
            state.pop(key, None)
    found = values(web.sglang(**{"/server_info": None, "/get_server_info": old, "/v1/loads": None}))
    assert (found["cap"], found["graphs"], found["version"]) == (None, None, "0.5.23")
    assert found["cap_source"].startswith("unknown: neither /get_server_info")
    snapshot = values(web.sglang(**{"/server_info": old}))
    found_by_itself = "the server itself: no --max-running-requests was given"
    assert (snapshot["cap"], snapshot["cap_source"]) == (4096, found_by_itself)


def test_captured_graphs_are_told_from_configured_ones() -> None:
    assert web.content("sglang_server_info.json")["cuda_graph_config"]["decode"]["backend"] == "full"
    found = values(web.sglang(**{"/server_info": info(decode_cuda_graph_bs=[1, 2, 4, 8, 16])}))
    assert (found["graphs"], found["graph_max_batch"]) == (True, 16)


def test_secrets_do_not_reach_the_facts() -> None:
    command = "--model-path m --api-key S3CRET-1 --admin-api-key=S3CRET-2 --max-total-tokens 32768"
    told = info(api_key="S3CRET-1", admin_api_key="S3CRET-2", ssl_keyfile_password="S3CRET-3", launch_command=command)
    with Web(web.sglang(**{"/server_info": told})) as server:
        facts = attached(server).describe()
    assert facts["launch_command"].value.endswith(
        "--api-key <removed> --admin-api-key=<removed> --max-total-tokens 32768"
    )
    assert "S3CRET" not in json.dumps({key: [fact.value, fact.source] for key, fact in facts.items()})


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"SGLANG_SIMULATE_ACC_LEN": "3.5"}, "SGLANG_SIMULATE_ACC_LEN=3.5"),
        (
            {"SGLANG_SIMULATE_UNIFORM_EXPERTS": "true", "SGLANG_SIMULATE_ACC_LEN": "-1"},
            "SGLANG_SIMULATE_UNIFORM_EXPERTS=true",
        ),
        ({"SGLANG_TEST_RETRACT": "1"}, "SGLANG_TEST_RETRACT=1"),
        ({"SGLANG_SIMULATE_ACC_METHOD": "match-expected", "SGLANG_TEST_RETRACT": "0"}, False),
        ({}, False),
    ],
)
def test_made_up_acceptance_routing_and_retraction_are_found(variables: dict[str, str], expected: object) -> None:
    assert values(web.sglang(**{"/server_info": info(env_vars=variables)}))["faked"] == expected


def test_a_log_proves_the_cache_type_and_the_limits() -> None:
    answers = web.content("sglang_server_info.json")
    bare = {key: value for key, value in answers.items() if key != "internal_states"}
    page = _prometheus.read(PAGE, _sglang_facts.METRICS)
    found = _sglang_facts.facts(bare, "/server_info", [], "", {}, page, web.text("sglang_cap4.log"), {})
    assert (found["kv_dtype_k"].value, found["cap"].value) == ("bfloat16", 4)
    assert found["cap_source"].source == "max_running_requests of the start-up log"


def test_an_idle_server_is_not_made_to_work_by_asking_whether_it_lives() -> None:
    with Web(web.sglang()) as server:
        found = attached(server)
        assert found.alive()
        server.pages["/ready"] = (503, "")
        assert not found.alive()
        del server.pages["/ready"]
        assert found.alive(), "before 0.5.20 there is no /ready"
        assert "/health" not in server.asked
    assert not found.alive()
