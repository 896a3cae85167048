"""Facts and failure reasons are read from logs that real servers wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab.engines import _llamacpp_log as log_lines
from lab.engines._llamacpp_facts import LlamaCppServer, facts_of_log, kv_usage
from tests.engines.web import Web

Captured = Callable[[str], str]


def values(text: str) -> dict[str, object]:
    return {key: fact.value for key, fact in facts_of_log(log_lines.lines(text)).items()}


def test_a_quantized_cache_is_read_with_its_exact_size(captured: Captured) -> None:
    facts = values(captured("kv_q8_trimmed.log"))
    assert (facts["kv_dtype_k"], facts["kv_dtype_v"]) == ("q8_0", "q8_0")
    assert facts["kv_tokens"] == 512 * 8
    assert facts["kv_bytes"] == round(47.81 * 1024 * 1024)
    assert facts["flash_attention"] is True
    assert facts["speculative_types"] == []


def test_a_draft_model_does_not_pass_for_the_target(captured: Captured) -> None:
    facts = values(captured("spec_draft_q4_0_n4_trimmed.log"))
    assert facts["kv_tokens"] == 4096
    assert facts["repacked_bytes"] == 0
    assert facts["speculative_types"] == ["draft_simple"]


def test_repacked_weights_are_counted(captured: Captured) -> None:
    facts = values(captured("checkpoint_q4_0_repack_trimmed.log"))
    assert facts["repacked_bytes"] == round(72.14 * 1024 * 1024)
    assert facts["load_mode"] == "mmap"
    assert facts["speculative_types"] == []


def test_graph_reuse_is_off_only_with_the_warning(captured: Captured) -> None:
    off = values(captured("graph_reuse_disabled_trimmed.log"))
    on = values(captured("kv_q8_trimmed.log"))
    assert (off["graph_reuse"], off["graphs_reused"]) == (False, 0)
    assert on["graph_reuse"] is True
    assert on["graphs_reused"] == 31


def test_threads_and_batches_are_read(captured: Captured) -> None:
    facts = values(captured("graph_reuse_disabled_trimmed.log"))
    assert (facts["n_threads"], facts["n_threads_batch"]) == (1, 1)
    assert (facts["n_batch"], facts["n_ubatch"]) == (1024, 512)


def test_speculation_that_could_not_start_is_none_in_use(captured: Captured) -> None:
    assert values(captured("spec_type_without_draft_trimmed.log"))["speculative_types"] == []
    assert values(captured("spec_ngram_never_fired_trimmed.log"))["speculative_types"] == ["ngram_simple"]


def test_a_unified_pool_is_counted_once() -> None:
    size = "size =  180.00 MiB (  8192 cells,  30 layers,  4/1 seqs), K (f16): 90.00 MiB, V (f16): 90.00 MiB"
    assert values(f"0.00.864.744 I llama_kv_cache: {size}\n")["kv_tokens"] == 8192


def test_nothing_is_made_up_from_an_empty_log() -> None:
    facts = facts_of_log([])
    assert {fact.value for fact in facts.values()} == {None}
    assert all(fact.source for fact in facts.values())


@given(end=st.integers(0, 9_000))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_log_that_is_being_written_gives_what_is_complete(captured: Captured, end: int) -> None:
    whole = captured("kv_q8_trimmed.log")
    complete, so_far = values(whole[: whole.rfind("\n", 0, end) + 1]), values(whole[:end])
    assert so_far == complete


@pytest.mark.parametrize(
    ("capture", "kind", "reason"),
    [
        ("failed_bad_model.log", "missing-checkpoint", "failed to open GGUF file '/nonexistent.gguf'"),
        ("failed_bad_draft.log", "missing-checkpoint", "failed to open GGUF file '/nonexistent.gguf'"),
        ("failed_vq4_fa_off.log", "unsupported", "quantized V cache requires flash_attn to be enabled"),
        ("failed_kv_q4_k.log", "unsupported", "K cache type q4_K with block size 256 does not divide"),
        ("failed_port_used_badhost.log", "port-in-use", "couldn't bind HTTP server socket, hostname: 203"),
    ],
)
def test_the_root_cause_is_named_not_the_last_line(captured: Captured, capture: str, kind: str, reason: str) -> None:
    failure = log_lines.failure(captured(capture), 1)
    assert failure.kind == kind
    assert failure.reason.startswith(reason)
    assert "exiting due to" in failure.detail


def test_other_ends_are_described_by_what_is_known() -> None:
    text = "0.00.010.789 E ggml_backend_buft_alloc_buffer: failed to allocate buffer of size 99999999999"
    assert log_lines.failure(text, 1).kind == "out-of-memory"
    assert log_lines.failure("\nBADFLAG flag nope: unknown, value 1\n", 2).kind == "bad-flag"
    assert log_lines.failure("", -9).reason == "killed by signal 9; last line: it wrote nothing"
    assert log_lines.failure("0.00.010.789 E srv  start: something new", 1).kind == "crashed"


def test_an_error_about_a_request_does_not_hide_a_violent_end(captured: Captured) -> None:
    served = captured("kv_q8_trimmed.log") + "0.16.673.003 E srv    send_error: task id = 507, error: request too long"
    assert log_lines.failure(served, -11).reason.startswith("killed by signal 11")
    assert log_lines.failure(served, 1).reason.startswith("task id = 507")


def test_the_share_of_the_cache_in_use_comes_from_busy_slots(captured: Captured) -> None:
    slots = json.loads(captured("slots_loaded.txt").partition("\n")[2])
    busy = [slot for slot in slots if slot["is_processing"]]
    held = sum(slot["n_prompt_tokens_processed"] + slot["next_token"][0]["n_decoded"] for slot in busy)
    assert held > 0
    assert kv_usage(slots, 2048) == held / 2048
    assert kv_usage([{**slot, "is_processing": False} for slot in slots], 2048) == 0
    assert kv_usage([], 2048) is None


def test_what_is_not_known_of_the_cache_is_not_guessed(captured: Captured) -> None:
    slots = json.loads(captured("slots_loaded.txt").partition("\n")[2])
    assert kv_usage(slots, None) is None
    del slots[0]["n_prompt_tokens"]
    assert kv_usage(slots, 2048) is None


def test_a_shared_cache_is_counted_once_and_not_for_each_slot(captured: Captured, tmp_path: Path) -> None:
    slots = json.loads(captured("slots_unified.txt").partition("\n")[2])
    assert [slot["n_ctx"] for slot in slots] == [2048] * 4
    held = sum(slot["n_prompt_tokens"] for slot in slots if slot["is_processing"])
    log = tmp_path / "server.log"
    log.write_text(captured("unified_context.log"))
    with Web({"/slots": slots, "/metrics": captured("metrics_loaded.txt")}) as web:
        launched, attached = LlamaCppServer(web.url, "m", log=log), LlamaCppServer(web.url, "m")
        assert launched.look() == ()
        assert launched.sample().kv_usage == held / 2048
        assert attached.look() == (
            "use of the cache: only llama.cpp's log says whether its slots share one (--kv-unified)",
        )
        assert attached.sample().kv_usage is None
        web.pages["/slots"] = [slot for slot in slots if slot["is_processing"]][:1]
        assert attached.look() == ()
        assert attached.sample().kv_usage == web.pages["/slots"][0]["n_prompt_tokens"] / 2048
